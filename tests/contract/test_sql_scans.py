"""Which files a query reads by DataFusion itself, in which versions, and what plans say of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import feather

from mrflight.errors import InputError
from mrflight.planner.job_plan import JobPlan
from mrflight.tasks.file_groups import GroupSplit, ScannedFile
from tests.support.queries.stages_in_process import planned, query_spec, run
from tests.support.suite.messages import refused

ROWS = pa.table({"n": range(6_000), "s": [f"text {n}" for n in range(6_000)]})
TOTAL = "select count(*) c, sum(n) n, max(s) s from t"
EXPECTED = {"c": [6_000], "n": [sum(range(6_000))], "s": ["text 999"]}


@pytest.fixture(autouse=True)
def _datafusion() -> None:
    pytest.importorskip("datafusion")


def thirds() -> list[pa.Table]:
    return [ROWS.slice(start, 2_000) for start in range(0, 6_000, 2_000)]


def write(folder: Path, parts: list[pa.Table], **options: object) -> str:
    folder.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=500, **options)
    return str(folder)


def alike(folder: Path) -> str:
    return write(folder, thirds())


def glob(folder: Path) -> str:
    return f"{write(folder, thirds())}/[0-2].parquet"


def strange_names(folder: Path) -> str:
    path = write(folder, thirds())
    for number, name in enumerate(("a b%20c", "ü#?*[x]", "{} ~^|")):
        (folder / f"{number}.parquet").rename(folder / f"{name}.pq")
    return path


def delta(folder: Path) -> str:
    for part in thirds():
        write_deltalake(folder, part, mode="append")
    return str(folder)


def delta_with_removed_files(folder: Path) -> str:
    write_deltalake(folder, ROWS)
    write_deltalake(folder, ROWS.slice(0, 4_000), mode="overwrite")
    write_deltalake(folder, ROWS.slice(4_000), mode="append")
    return str(folder)


def old_timestamps(folder: Path) -> str:
    """Timestamps as Spark wrote them, of a year that nanoseconds do not have."""
    far = pa.array([datetime(9999, 1, 1)] * 2_000, pa.timestamp("us"))
    parts = [part.append_column("at", far) for part in thirds()]
    return write(folder, parts, use_deprecated_int96_timestamps=True)


def other_order(folder: Path) -> str:
    first, *others = thirds()
    return write(folder, [first, *(part.select(["s", "n"]) for part in others)])


def other_layout(folder: Path) -> str:
    first, *others = thirds()
    large = pa.schema([("n", pa.int64()), ("s", pa.large_string())])
    return write(folder, [first, *(part.cast(large) for part in others)])


def of_key_folders(folder: Path) -> str:
    folder.mkdir()
    for number, part in enumerate(thirds()):
        write(folder / f"k={number}", [part])
    return str(folder)


def partitioned_delta(folder: Path) -> str:
    digits = pa.array([n % 3 for n in range(6_000)])
    write_deltalake(folder, ROWS.append_column("k", digits), partition_by=["k"])
    return str(folder)


def evolved_delta(folder: Path) -> str:
    write_deltalake(folder, ROWS.slice(0, 4_000))
    more = ROWS.slice(4_000).append_column("more", pa.array(range(2_000)))
    write_deltalake(folder, more, mode="append", schema_mode="merge")
    return str(folder)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("make", "is_scanned"),
    [
        *((make, True) for make in (alike, glob, strange_names, delta, delta_with_removed_files)),
        (old_timestamps, True),
        *((make, False) for make in (other_order, other_layout)),
        *((make, False) for make in (of_key_folders, partitioned_delta, evolved_delta)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_tables_that_datafusion_reads(
    tmp_path: Path, make: Callable[[Path], str], is_scanned: bool, partitions: int
) -> None:
    """All give the same rows, read by DataFusion or by our readers."""
    spec = query_spec(TOTAL, {"t": make(tmp_path / "t")}, partitions)
    plan = planned(spec, tmp_path)
    assert scans(plan) is is_scanned
    assert run(plan, tmp_path).to_pydict() == EXPECTED


def scans(plan: JobPlan) -> bool:
    """Return whether the first stage reads files by DataFusion."""
    first = plan.stages[0].fragment
    assert first is not None
    return first.reads_files


def test_far_timestamps_are_read_as_they_are(tmp_path: Path) -> None:
    spec = query_spec("select max(at) at from t", {"t": old_timestamps(tmp_path / "t")}, 2)
    found = run(planned(spec, tmp_path), tmp_path)
    assert found["at"].to_pylist() == [datetime(9999, 1, 1)]


def test_a_version_of_a_delta_table(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    spec = query_spec(TOTAL, {"t": path}, 3, options={"version": 1})
    plan = planned(spec, tmp_path)
    assert scans(plan)
    assert run(plan, tmp_path)["c"].to_pylist() == [4_000]


@pytest.mark.parametrize(
    "option",
    [
        {"columns": ["n", "s"]},
        {"filter": "n >= 0"},
        {"schema": "union"},
    ],
)
def test_options_of_an_input_need_our_reader(tmp_path: Path, option: dict[str, object]) -> None:
    spec = query_spec(TOTAL, {"t": alike(tmp_path / "t")}, 3, options=option)
    plan = planned(spec, tmp_path)
    assert not scans(plan)
    assert run(plan, tmp_path).to_pydict() == EXPECTED


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("change", ["longer", "rewritten", "gone"])
def test_a_file_that_changes_after_it_was_planned(
    tmp_path: Path, partitions: int, change: str
) -> None:
    folder = Path(alike(tmp_path / "t"))
    plan = planned(query_spec(TOTAL, {"t": str(folder)}, partitions), tmp_path)
    file = folder / "2.parquet"
    if change == "gone":
        file.unlink()
    else:
        pq.write_table(ROWS.slice(0, 2_000 if change == "rewritten" else 3_000), file)
    with refused(InputError):
        run(plan, tmp_path)


def test_a_file_that_comes_after_it_was_planned_is_not_read(tmp_path: Path) -> None:
    folder = Path(alike(tmp_path / "t"))
    plan = planned(query_spec(TOTAL, {"t": str(folder)}, 3), tmp_path)
    pq.write_table(ROWS, folder / "late.parquet")
    assert run(plan, tmp_path).to_pydict() == EXPECTED


def test_fragments_do_not_grow_with_files(tmp_path: Path) -> None:
    """A task gets the files of its own group only."""
    sizes = []
    for count in (30, 300):
        step = 6_000 // count
        parts = [ROWS.slice(start, step) for start in range(0, 6_000, step)]
        path = write(tmp_path / f"{count}", parts)
        plan = planned(query_spec(TOTAL, {"t": path}, 3), tmp_path)
        fragment = plan.stages[0].fragment
        assert fragment is not None
        assert len({file for each in fragment.splits for file in files(each)}) == count
        assert sum(len(files(each)) for each in fragment.splits) <= count + 2  # some are cut
        sizes.append(len(pickle.dumps(fragment.fragment)))
        assert run(plan, tmp_path).to_pydict() == EXPECTED
    assert sizes[1] <= sizes[0] + 10


def files(split: GroupSplit) -> list[ScannedFile]:
    return [file for group in split.groups for file in group.files]


def csv(folder: Path, name: str, rows: pa.Table) -> str:
    path = folder / f"{name}.csv"
    pyarrow.csv.write_csv(rows, path)
    return str(path)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select count(*) c from t", [6_000]),
        ("select count(*) c from (select * from t limit 5000)", [5_000]),
        (
            "select count(*) c from t union all select count(*) + n from t where n = 3 group by n "
            "order by c",
            [4, 6_000],
        ),
        ("select count(*) c from t, (select * from t limit 2) b", [12_000]),
    ],
)
def test_estimated_rows_are_not_taken_for_facts(
    tmp_path: Path, query: str, expected: list[int], partitions: int
) -> None:
    spec = query_spec(query, {"t": csv(tmp_path, "t", ROWS)}, partitions)
    assert run(planned(spec, tmp_path), tmp_path)["c"].to_pylist() == expected


def arrow(folder: Path, name: str, rows: pa.Table) -> str:
    path = folder / f"{name}.arrow"
    feather.write_feather(rows, str(path), compression="uncompressed")
    return str(path)


def lines(folder: Path, name: str, rows: pa.Table) -> str:
    path = folder / f"{name}.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    return str(path)


@pytest.mark.parametrize("join", ["large join small", "small join large"])
@pytest.mark.parametrize("make", [csv, arrow, lines])
def test_a_small_table_is_broadcast(
    tmp_path: Path, make: Callable[[Path, str, pa.Table], str], join: str
) -> None:
    """In any format, and wherever it is in the query."""
    small = pa.table({"n": range(0, 6_000, 600), "of": ["small"] * 10})
    paths = {"large": make(tmp_path, "large", ROWS), "small": make(tmp_path, "small", small)}
    query = f"select max(s) s, count(of) c from {join} on large.n = small.n"
    plan = planned(query_spec(query, paths, 3), tmp_path)
    inputs = plan.stages[0].spec.inputs
    assert {name: each.broadcast for name, each in inputs.items()} == {"large": None, "small": True}
    assert run(plan, tmp_path).to_pydict() == {"s": ["text 600"], "c": [10]}
