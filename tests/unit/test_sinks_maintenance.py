"""A Delta table on a disk is kept in order; what its readers find is what they found before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.errors import CommitError, InputError, OutputError
from mrflight.sinks.compaction_plan import plan_bins
from mrflight.sinks.file_part_writer import FilePartWriter
from mrflight.sinks.landing import Landing
from mrflight.sinks.leftovers import find_leftovers
from mrflight.sinks.maintenance import MaintenanceReport, Upkeep
from mrflight.sinks.maintenance import maintain as maintain_at
from mrflight.sinks.part_name import is_part
from mrflight.sinks.vacuum import Retention
from mrflight.sources.delta_source import ActiveFile
from mrflight.storage import locate
from mrflight.storage.disk import Disk
from tests.support.delta_outputs import entry, run, versions
from tests.support.leftovers import tree
from tests.support.threads import run_threads

NAN = float("nan")
COMPACT = Upkeep(retention=None, checkpoints=False)


def maintain(folder: Path, upkeep: Upkeep = COMPACT, **more: Any) -> MaintenanceReport:
    return maintain_at(locate("t", folder), upkeep, **more)


def vacuum(folder: Path, time: timedelta | None, **more: bool) -> int:
    """How many files it deletes."""
    report = maintain(folder, Upkeep(None, Retention(time, **more), checkpoints=False))
    assert report.vacuum is not None
    return report.vacuum.files


def compacted(report: MaintenanceReport) -> tuple[int, int]:
    assert report.compaction is not None
    return report.compaction.files, report.compaction.into_files


def read(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / "t").to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def append(folder: Path, *tables: pa.Table, **more: Any) -> None:
    """By another writer, a version for each."""
    for table in tables:
        write_deltalake(folder / "t", table, mode="append", **more)


def file_of(path: str, size_bytes: int, time: int = 0, value: object = None) -> ActiveFile:
    return ActiveFile(path, size_bytes, time, None, (("p", value),))


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ([], []),
        ([1], []),
        ([100, 100], []),
        ([60, 60, 60], []),
        ([50, 50, 50], [[0, 1]]),
        ([10, 500, 10, 10], [[2, 3]]),
        ([40, 40, 40, 40, 40], [[0, 1], [2, 3]]),
        ([0, 0, 101], [[0, 1]]),
    ],
)
def test_neighbours_go_together_up_to_the_target(sizes: list[int], bins: list[list[int]]) -> None:
    files = [file_of(f"part-{i:05}", size) for i, size in enumerate(sizes)]
    found = [[files.index(file) for file in bin.files] for bin in plan_bins(files, 100)]
    assert found == bins


def names(files: Iterable[ActiveFile]) -> list[str]:
    return [file.path for file in files]


def test_files_of_a_bin_are_of_one_value_and_in_the_order_of_their_commits() -> None:
    files = [
        file_of("b", 1, 2, NAN),
        file_of("a", 1, 2, NAN),
        file_of("z", 1, 1, NAN),
        file_of("c", 1, 1, None),
        file_of("d", 1, 1, 0.5),
    ]
    (bin,) = plan_bins(files, 100)
    assert names(bin.files) == ["z", "a", "b"]


def test_a_table_of_one_job_stays_sorted_with_bounds_of_its_files(tmp_path: Path) -> None:
    rows = pa.table({"n": list(range(40)), "f": [NAN if n % 10 == 3 else n / 2 for n in range(40)]})
    for start in range(0, 40, 10):
        run(tmp_path, rows.slice(start, 10), job_id=f"job{start}")
    report = maintain(tmp_path)
    assert compacted(report) == (4, 1)
    assert report.version == 4
    (uri,) = DeltaTable(tmp_path / "t").file_uris()
    assert str(pq.read_table(uri).to_pylist()) == str(rows.to_pylist())  # NaN is no NaN's equal
    assert is_part(Path(uri).name)
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("n") > 37)["n"].to_pylist() == [38, 39]
    assert dataset.to_table(filter=pc.is_nan(pc.field("f")))["n"].to_pylist() == [3, 13, 23, 33]
    with duckdb.connect() as duck:
        over = f"select count(*) from read_parquet('{uri}') where f > 19.5"
        assert duck.execute(over).fetchall() == [(4,)]  # NaN is greater than all
    actions = entry(tmp_path, 4)
    assert {action["dataChange"] for kind in ("add", "remove") for action in actions[kind]} == {
        False
    }
    assert compacted(maintain(tmp_path)) == (0, 0)
    assert versions(tmp_path) == 5


def test_what_others_wrote_in_their_way_is_compacted(tmp_path: Path) -> None:
    """Odd partition values, a column that came later, files that lack it."""
    values = ["50%", "a b", "x/y", None]
    first = pa.table({"p": values, "n": [1, 2, 3, 4]})
    append(tmp_path, first, partition_by=["p"])
    wider = pa.table({"p": values, "n": [5, 6, 7, 8], "s": ["a", "b", "c", "d"]})
    append(tmp_path, wider, schema_mode="merge")
    before = read(tmp_path)
    assert compacted(maintain(tmp_path)) == (8, 4)
    assert read(tmp_path) == before
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 4


def test_a_path_that_another_writer_encoded_otherwise_is_left_alone(tmp_path: Path) -> None:
    """Its removal would name another path than the one that was added."""
    append(tmp_path, *(pa.table({"p": ["a:b"], "n": [n]}) for n in range(2)), partition_by=["p"])
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"path":"p', '"path":"%70'))
    before = read(tmp_path)
    assert compacted(maintain(tmp_path)) == (0, 0)
    assert read(tmp_path) == before


def test_a_dry_run_changes_nothing_and_says_what_would_be(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(3)))
    before = tree(tmp_path)
    report = maintain(tmp_path, Upkeep(retention=Retention(timedelta(0), True)), dry_run=True)
    assert tree(tmp_path) == before
    lines = report.summary().splitlines()
    assert re.fullmatch(r"compact     3 files, 1\.\d KiB, would be written as 1", lines[0])
    assert lines[1:] == [
        "vacuum      nothing to do",
        "checkpoint  of version 2 would be written",
        f"{tmp_path}/t, version 2",
    ]


def test_rows_that_others_append_meanwhile_are_kept(tmp_path: Path) -> None:
    """Those of mrflight and of another writer; the log takes one version of each at a time."""
    append(tmp_path, *(pa.table({"n": [n], "k": ["old"]}) for n in range(4)))
    maintained: list[int] = []

    def append_some(writer: int) -> None:
        for n in range(6):
            rows = pa.table({"n": [10 * writer + n], "k": ["new"]})
            if writer == 1:
                run(tmp_path, rows, job_id=f"job{n}")
            else:
                append(tmp_path, rows)

    def keep_in_order() -> None:
        maintained.extend(compacted(maintain(tmp_path))[0] for _ in range(4))

    run_threads([partial(append_some, 1), partial(append_some, 2), keep_in_order])
    assert maintained[0] >= 4
    assert compacted(maintain(tmp_path))[1] <= 1
    numbers = [*range(4), *range(10, 16), *range(20, 26)]
    assert sorted(row["n"] for row in read(tmp_path)) == numbers
    (uri,) = DeltaTable(tmp_path / "t").file_uris()
    parts = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    names = {Path(path).name for path in named_by_the_log(tmp_path)}
    assert Path(uri).name in names
    assert parts == names


def named_by_the_log(folder: Path) -> set[str]:
    """Every file that some version added."""
    return {
        action["path"]
        for n in range(versions(folder))
        for action in entry(folder, n).get("add", [])
    }


def test_files_that_others_remove_meanwhile_stay_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two bins one is overtaken, and what was written for it is gone."""
    for n in range(2):
        append(tmp_path, pa.table({"p": ["a", "b"], "n": [n, n]}), partition_by=["p"])
    write = FilePartWriter.write
    overtaken: list[int] = []

    def written_slowly(self: FilePartWriter, *of: Any, **more: Any) -> Any:
        parts = write(self, *of, **more)
        if not overtaken:
            overtaken.append(1)
            DeltaTable(tmp_path / "t").delete("p = 'a'")
            append(tmp_path, pa.table({"p": ["a"], "n": [7]}))
        return parts

    monkeypatch.setattr(FilePartWriter, "write", written_slowly)
    report = maintain(tmp_path)
    assert (compacted(report), report.version) == ((2, 1), 4)
    assert read(tmp_path) == [{"p": "a", "n": 7}, {"p": "b", "n": 0}, {"p": "b", "n": 1}]
    assert len([path for path in (tmp_path / "t").rglob("part-*") if is_part(path.name)]) == 1


def test_files_that_do_not_hold_what_their_log_says_are_left_alone(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace(r"\"numRecords\":1", r"\"numRecords\":2"))
    before = tree(tmp_path)
    with pytest.raises(CommitError, match="hold 3 rows by its log were read as 2 rows; nothing"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_new_files_that_somebody_removes_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    before = tree(tmp_path)
    write = FilePartWriter.write

    def removed(self: FilePartWriter, *of: Any, **more: Any) -> Any:
        parts = write(self, *of, **more)
        (tmp_path / "t" / parts[0].path).unlink()
        return parts

    monkeypatch.setattr(FilePartWriter, "write", removed)
    with pytest.raises(CommitError, match="is gone, which this compaction wrote; nothing was"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The files of the second value cannot be read, when those of the first are written."""
    for n in range(2):
        append(tmp_path, pa.table({"p": ["a", "b"], "n": [n, n]}), partition_by=["p"])
    for path in (tmp_path / "t" / "p=b").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"p=b/.* such a file never changes: bring back"):
        maintain(tmp_path)
    assert tree(tmp_path) == before


def test_a_compaction_whose_commit_nobody_can_look_up_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had landed, and the store fails from then on."""
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    log = tmp_path / "t" / "_delta_log"
    call = Landing.call

    def failing(self: Landing, *of: Any) -> None:
        call(self, *of)
        (log / f"{3:020}.json").write_text('{"add": ')
        raise CommitError("the store does not answer")

    monkeypatch.setattr(Landing, "call", failing)
    with pytest.raises(CommitError, match="cannot be read"):
        maintain(tmp_path)
    (log / f"{3:020}.json").unlink()
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 1


@pytest.mark.parametrize("error", [CommitError("no answer"), KeyboardInterrupt()])
def test_a_compaction_that_landed_all_the_same_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    call = Landing.call

    def failing(self: Landing, *of: Any) -> None:
        call(self, *of)
        raise error

    monkeypatch.setattr(Landing, "call", failing)
    if isinstance(error, CommitError):
        assert compacted(maintain(tmp_path)) == (2, 1)
    else:
        with pytest.raises(KeyboardInterrupt):
            maintain(tmp_path)
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
    assert (versions(tmp_path), len(DeltaTable(tmp_path / "t").file_uris())) == (3, 1)


def test_what_a_killed_compaction_wrote_is_left_over_to_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    kept = tree(tmp_path)
    maintain(tmp_path)
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()  # as if it had not come to that
    left = find_leftovers(locate("t", tmp_path), datetime.now(UTC) + timedelta(minutes=1))
    assert {f"t/{file.path}" for file in left.files} == tree(tmp_path).keys() - kept.keys()


def test_removed_files_are_kept_as_long_as_the_table_says(tmp_path: Path) -> None:
    for n in range(2):
        write_deltalake(tmp_path / "t", pa.table({"n": [n]}), mode="overwrite")
    assert vacuum(tmp_path, None) == 0
    assert vacuum(tmp_path, timedelta(days=7)) == 0
    told = (
        f"{tmp_path}/t keeps removed files for longer than that, for those who read an older "
        "version (7 days); --force removes them all the same, and who is reading such a version "
        "then fails"
    )
    with pytest.raises(OutputError) as raised:
        vacuum(tmp_path, timedelta(days=6))
    assert str(raised.value) == told
    assert versions(tmp_path) == 2
    age_removals(tmp_path, timedelta(hours=29, minutes=30))
    assert vacuum(tmp_path, timedelta(hours=31), is_forced=True) == 0
    assert vacuum(tmp_path, timedelta(hours=29, minutes=10), is_forced=True) == 0  # rounded up
    assert vacuum(tmp_path, timedelta(hours=29), is_forced=True) == 1
    assert read(tmp_path) == [{"n": 1}]


def test_what_no_log_names_stays_and_what_one_has_removed_goes_wherever_it_is(
    tmp_path: Path,
) -> None:
    """Hidden names, as of a partition column with an underscore, make no difference."""
    for n in range(2):
        rows = pa.table({"_p": ["a"], "n": [n]})
        write_deltalake(tmp_path / "t", rows, mode="overwrite", partition_by=["_p"])
    old = {path.name for path in (tmp_path / "t" / "_p=a").iterdir()}
    old -= {Path(uri).name for uri in DeltaTable(tmp_path / "t").file_uris()}
    part = "part-00000-0-20200101T000000-0123456789ab.parquet"
    others = [part, f"_p=a/{part}", f"_p=b/{part}", "_mrflight.json", ".x/y", "notes.txt"]
    for name in others:
        (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "t" / name).write_text("somebody's")
    before = tree(tmp_path / "t")
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 1
    gone = before.keys() - tree(tmp_path / "t").keys()
    assert gone == {f"_p=a/{name}" for name in old}


def test_where_commits_need_a_fence_a_vacuum_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        write_deltalake(tmp_path / "t", pa.table({"n": [n]}), mode="overwrite")
    monkeypatch.setattr(Disk, "fence", lambda self, path: path)
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 2
    assert vacuum(tmp_path, timedelta(0), is_forced=True) == 0
    assert (versions(tmp_path), len(list((tmp_path / "t").glob("*.parquet")))) == (3, 1)
    assert read(tmp_path) == [{"n": 2}]


def age_removals(folder: Path, age: timedelta) -> None:
    """Let the log say that what it removed was removed so long ago."""
    then = int((datetime.now(UTC) - age).timestamp() * 1000)
    for path in (folder / "t" / "_delta_log").glob("*.json"):
        text = re.sub(r'"deletionTimestamp":\d+', f'"deletionTimestamp":{then}', path.read_text())
        path.write_text(text)


def test_a_table_says_itself_how_long_removed_files_are_kept(tmp_path: Path) -> None:
    configuration: dict[str, str | None] = {"delta.deletedFileRetentionDuration": "interval 2 days"}
    for n in range(2):
        rows = pa.table({"n": [n]})
        write_deltalake(tmp_path / "t", rows, mode="overwrite", configuration=configuration)
    with pytest.raises(OutputError, match=r"deletedFileRetentionDuration = 'interval 2 days'"):
        vacuum(tmp_path, timedelta(days=1))
    assert vacuum(tmp_path, None) == 0
    age_removals(tmp_path, timedelta(days=3))
    assert vacuum(tmp_path, None) == 1


def set_features(folder: Path, *features: str, **configuration: str) -> None:
    """Make the table one that has them."""
    path = folder / "t" / "_delta_log" / f"{0:020}.json"
    lines = []
    for line in path.read_text().splitlines():
        action = json.loads(line)
        if "protocol" in action:
            both = [name for name in features if name in ("deletionVectors", "columnMapping")]
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": both,
                "writerFeatures": list(features),
            }
        lines.append(json.dumps(action))
    path.write_text("\n".join(lines))


def test_a_table_with_a_feature_that_is_not_known_is_refused(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    set_features(tmp_path, "rowTracking")
    with pytest.raises(OutputError) as raised:
        maintain(tmp_path)
    assert str(raised.value) == (
        f"the Delta table {tmp_path}/t needs writers to know rowTracking, which mrflight does not; "
        "maintain it with what writes it"
    )


def test_a_table_that_may_only_be_appended_to_is_compacted(tmp_path: Path) -> None:
    configuration: dict[str, str | None] = {"delta.appendOnly": "true"}
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)), configuration=configuration)
    assert compacted(maintain(tmp_path)) == (2, 1)
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]


def test_a_table_with_constraints_is_compacted(tmp_path: Path) -> None:
    append(tmp_path, pa.table({"n": [0]}))
    DeltaTable(tmp_path / "t").alter.add_constraint({"least": "n >= 0"})
    append(tmp_path, pa.table({"n": [1]}))
    assert compacted(maintain(tmp_path)) == (2, 1)
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]


def test_a_folder_that_is_no_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"t is no Delta table; name the folder that is output\."):
        maintain(tmp_path)
