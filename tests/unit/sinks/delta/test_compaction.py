"""Compactions of Delta tables on a disk; readers find the same rows as before."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.storage.part_name import is_part
from tests.support.commands.threads import run_threads
from tests.support.tables.delta_outputs import entry, run, versions
from tests.support.tables.maintained_table import append, compacted, maintain, read

NAN = float("nan")


def test_a_sorted_table_stays_sorted_and_its_files_have_bounds(tmp_path: Path) -> None:
    import duckdb

    rows = pa.table({"n": list(range(40)), "f": [NAN if n % 10 == 3 else n / 2 for n in range(40)]})
    for start in range(0, 40, 10):
        run(tmp_path, rows.slice(start, 10), job_id=f"job{start}")
    report = maintain(tmp_path)
    assert compacted(report) == (4, 1)
    assert report.version == 4
    (uri,) = DeltaTable(tmp_path / "t").file_uris()
    found = pq.read_table(uri).to_pylist()
    assert str(found) == str(rows.to_pylist())  # as text, because NaN does not equal NaN
    assert is_part(Path(uri).name)
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("n") > 37)["n"].to_pylist() == [38, 39]
    assert dataset.to_table(filter=pc.is_nan(pc.field("f")))["n"].to_pylist() == [3, 13, 23, 33]
    with duckdb.connect() as duck:
        over = f"select count(*) from read_parquet('{uri}') where f > 19.5"
        assert duck.execute(over).fetchall() == [(4,)]  # NaN is greater than all numbers
    actions = entry(tmp_path, 4)
    assert {action["dataChange"] for kind in ("add", "remove") for action in actions[kind]} == {
        False
    }
    assert compacted(maintain(tmp_path)) == (0, 0)
    assert versions(tmp_path) == 5


def test_files_of_other_writers_are_compacted(tmp_path: Path) -> None:
    """They have unusual partition values, and some lack a column that was added later."""
    values = ["50%", "a b", "x/y", None]
    first = pa.table({"p": values, "n": [1, 2, 3, 4]})
    append(tmp_path, first, partition_by=["p"])
    wider = pa.table({"p": values, "n": [5, 6, 7, 8], "s": ["a", "b", "c", "d"]})
    append(tmp_path, wider, schema_mode="merge")
    before = read(tmp_path)
    assert compacted(maintain(tmp_path)) == (8, 4)
    assert read(tmp_path) == before
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 4


def test_a_file_whose_path_is_encoded_differently_is_left_alone(tmp_path: Path) -> None:
    """deltalake would remove it under another path than the one that was added."""
    append(tmp_path, *(pa.table({"p": ["a:b"], "n": [n]}) for n in range(2)), partition_by=["p"])
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"path":"p', '"path":"%70'))
    before = read(tmp_path)
    assert compacted(maintain(tmp_path)) == (0, 0)
    assert read(tmp_path) == before


def test_an_append_only_table_is_compacted(tmp_path: Path) -> None:
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


def test_rows_that_others_append_meanwhile_are_kept(tmp_path: Path) -> None:
    """mrflight and another writer append rows during several compactions."""
    append(tmp_path, *(pa.table({"n": [n], "k": ["old"]}) for n in range(4)))
    maintained: list[int] = []

    def append_some(writer: int) -> None:
        for n in range(6):
            rows = pa.table({"n": [10 * writer + n], "k": ["new"]})
            if writer == 1:
                run(tmp_path, rows, job_id=f"job{n}")
            else:
                append(tmp_path, rows)

    def compact_repeatedly() -> None:
        maintained.extend(compacted(maintain(tmp_path))[0] for _ in range(4))

    run_threads([partial(append_some, 1), partial(append_some, 2), compact_repeatedly])
    # The four old files, and those of the twelve others that were appended by then.
    assert 4 <= maintained[0] <= 16
    assert compacted(maintain(tmp_path))[1] <= 1  # none if the last compaction came after all rows
    numbers = [*range(4), *range(10, 16), *range(20, 26)]
    assert sorted(row["n"] for row in read(tmp_path)) == numbers
    (uri,) = DeltaTable(tmp_path / "t").file_uris()
    parts = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    names = {Path(path).name for path in files_in_log(tmp_path)}
    assert Path(uri).name in names
    assert parts == names


def files_in_log(folder: Path) -> set[str]:
    """Return all files that a version has added."""
    return {
        action["path"]
        for n in range(versions(folder))
        for action in entry(folder, n).get("add", [])
    }


def test_files_that_others_remove_meanwhile_stay_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes one of two bins, so the new file for that bin is deleted."""
    for n in range(2):
        append(tmp_path, pa.table({"p": ["a", "b"], "n": [n, n]}), partition_by=["p"])
    write = FilePartWriter.write
    overtaken: list[int] = []

    def write_slowly(self: FilePartWriter, *of: Any, **more: Any) -> Any:
        parts = write(self, *of, **more)
        if not overtaken:
            overtaken.append(1)
            DeltaTable(tmp_path / "t").delete("p = 'a'")
            append(tmp_path, pa.table({"p": ["a"], "n": [7]}))
        return parts

    monkeypatch.setattr(FilePartWriter, "write", write_slowly)
    report = maintain(tmp_path)
    assert (compacted(report), report.version) == ((2, 1), 4)
    assert read(tmp_path) == [{"p": "a", "n": 7}, {"p": "b", "n": 0}, {"p": "b", "n": 1}]
    assert len([path for path in (tmp_path / "t").rglob("part-*") if is_part(path.name)]) == 1
