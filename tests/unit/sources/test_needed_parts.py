"""Row groups and files that a condition cannot need are not read, and no row is lost by that."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.sources import open_source
from mrflight.sources.base import Source, split_runs
from mrflight.storage.store import FileVersion

GROUP_ROWS = 10
DAY = date(2024, 1, 1)
TIME = datetime(2024, 1, 1)

ROWS = pa.table(
    {
        "n": range(100),
        "text": [f"{n:03}" for n in range(100)],
        "day": [DAY + timedelta(days=n) for n in range(100)],
        "at": pa.array([TIME + timedelta(days=n) for n in range(100)], pa.timestamp("us")),
        "seen": [(TIME + timedelta(days=n)).replace(tzinfo=UTC) for n in range(100)],
        "cost": [Decimal(n) / 4 for n in range(100)],
        "float": [n / 2 for n in range(100)],
        "few": [None if n < 10 else n for n in range(100)],
        "kind": pa.array([f"{n:03}" for n in range(100)]).dictionary_encode(),
        "at.ns": pa.array(range(100), pa.timestamp("ns")),
        "x.y": range(100),
        "x": [{"y": 100 - n} for n in range(100)],
    }
)


def opened(folder: Path, path: str, **spec: Any) -> Source:
    return open_source("rows", InputSpec(path=path, **spec), folder, {}, 1 << 20)


def read(source: Source) -> pa.Table:
    batches = (batch for split in source.splits for batch in source.reader.read(split))
    return pa.Table.from_batches(batches, source.reader.schema)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(ROWS, folder / "a.parquet", row_group_size=GROUP_ROWS)
    return folder


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        ("n > 85", [8, 9]),
        ("n >= 90", [9]),
        ("n < 10", [0]),
        ("12 > n", [0, 1]),
        ("n = 31", [3]),
        ("n between 8 and 12", [0, 1]),
        ("not (n > 12)", [0, 1]),
        ("n in (1, 2, 3, 41)", [0, 4]),
        ("n not in (1, 2, 3, 4)", list(range(10))),
        ("n = 31 or n = 55", [3, 5]),
        ("n = 31 or float = 1", list(range(10))),
        ("n > 70 and (n < 75 or n = 2) and abs(n) > 1", [7]),
        ("n + 1 > 95", list(range(10))),
        ("n < 0", []),
        ("text >= '095'", [9]),
        ("day < date '2024-01-05'", [0]),
        ("day < '2024-01-05'", [0]),
        ("at < timestamp '2024-01-05'", [0]),
        ("seen < timestamp '2024-01-05T00:00:00Z'", [0]),
        ("cost < 1.5", [0]),
        ("float < 1.5", list(range(10))),
        ("few > 85", [0, 8, 9]),  # the first has no value that could bound it
        ("kind = '001'", list(range(10))),
        ("\"at.ns\" < timestamp '1970-01-01'", list(range(10))),
        ('"x.y" = 5', list(range(10))),
        ("nothing > 3", list(range(10))),  # the map says why
    ],
)
def test_only_row_groups_that_a_condition_can_need_are_read(
    folder: Path, condition: str, groups: list[int]
) -> None:
    for keys in ({"filter": condition}, {"sql": f"select n from rows where {condition}"}):
        source = opened(folder, "a.parquet", **keys)
        wanted = [
            n for group in groups for n in range(group * GROUP_ROWS, (group + 1) * GROUP_ROWS)
        ]
        assert read(source)["n"].to_pylist() == wanted
        assert source.skipped_row_groups == 10 - len(groups)
        assert bool(source.size_bytes) == bool(groups)


def test_conditions_on_folders_and_on_row_groups_go_together(tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"v/year={year}").mkdir(parents=True)
        pq.write_table(ROWS, tmp_path / f"v/year={year}/a.parquet", row_group_size=GROUP_ROWS)
    source = opened(tmp_path, "v", filter="year = 2024 and n > 85")
    assert read(source).select(["n", "year"]).to_pydict() == {
        "n": list(range(80, 100)),
        "year": [2024] * 20,
    }
    assert (source.skipped_folders, source.skipped_row_groups) == (1, 8)


ALL_FILES = [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Delta table of five files, of which each is in its own partition."""
    folder = tmp_path_factory.mktemp("table")
    for part in range(5):
        rows = ROWS.slice(20 * part, 20).select(["n", "text", "day", "at", "cost", "float", "few"])
        kind = pa.array([f"part {part % 2}" if part < 4 else None] * 20)
        rows = rows.append_column("part", kind).append_column("year", pa.array([2020 + part] * 20))
        write_deltalake(str(folder / "t"), rows, mode="append", partition_by=["part", "year"])
    return folder / "t"


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("n > 85", [4]),
        ("text in ('001', '002', '003', '041')", [0, 2]),
        ("day < date '2024-01-05'", [0]),
        ("cost < 1.5", ALL_FILES),
        ("at < timestamp '2024-01-05'", ALL_FILES),
        ("float < 1.5", ALL_FILES),
        ("part = 'part 1'", [1, 3, 4]),  # the last one has a null
        ("part is null or n = 3", ALL_FILES),
        ("year >= 2023 and part <> 'x'", [3, 4]),
        ("n < 0", []),
    ],
)
def test_only_files_of_a_table_that_a_condition_can_need_are_opened(
    tmp_path: Path, table: Path, condition: str, files: list[int]
) -> None:
    whole = mrflight.read_table(table)
    shutil.copytree(table, tmp_path / "t")
    for file in (tmp_path / "t").rglob("*.parquet"):
        if int(file.parent.name.removeprefix("year=")) - 2020 not in files:
            file.unlink()
    assert opened(tmp_path, "t", filter=condition).skipped_files == 5 - len(files)
    found = mrflight.read_table(tmp_path / "t", filter=condition)
    assert found.sort_by("n").equals(rows_of(whole, condition))
    scanned = mrflight.scan_table(tmp_path / "t", filter=condition).head(1000)
    assert scanned.sort_by("n").equals(rows_of(whole, condition))


def rows_of(table: pa.Table, condition: str) -> pa.Table:
    """Return rows by DataFusion alone."""
    session = datafusion.SessionContext()
    session.from_arrow(table, "rows")
    found = session.sql(f"select * from rows where {condition} order by n").to_arrow_table()
    return found.cast(table.schema)


def test_times_that_python_does_not_have_are_not_bounded(tmp_path: Path) -> None:
    far = {
        "day": pa.array([10_000_000, 1], pa.int32()).cast(pa.date32()),
        "at": pa.array([2**62, 1]).cast(pa.timestamp("us")),
        "n": [1, 2],
    }
    pq.write_table(pa.table(far), tmp_path / "a.parquet")
    write_deltalake(str(tmp_path / "t"), pa.table(far))
    for path in ("a.parquet", "t"):
        for condition in ("day > date '2024-01-01'", "at > timestamp '2024-01-01T00:00:00'"):
            rows = mrflight.read(str(tmp_path / path)).filter(condition).select("n").head(10)
            assert rows.to_pylist() == [{"n": 1}]


def test_times_in_a_log_are_cut_to_milliseconds(tmp_path: Path) -> None:
    """The log says that the largest one is before the time of the condition."""
    time = datetime(2024, 1, 1, microsecond=123456)
    table = pa.table({"at": pa.array([time], pa.timestamp("us"))})
    write_deltalake(str(tmp_path / "t"), table)
    condition = "at > timestamp '2024-01-01T00:00:00.123400'"
    assert mrflight.read_table(tmp_path / "t", filter=condition).num_rows == 1
    assert opened(tmp_path, "t", filter=condition).skipped_row_groups == 0
    later = "at > timestamp '2024-01-01T00:00:00.123456'"
    assert opened(tmp_path, "t", filter=later).skipped_row_groups == 1


def test_files_with_other_types_or_without_statistics_are_read(tmp_path: Path) -> None:
    rows = ROWS.select(["n"])
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=GROUP_ROWS)
    pq.write_table(rows, tmp_path / "b.parquet", write_statistics=False)
    pq.write_table(pa.table({"n": pa.nulls(3)}), tmp_path / "c.parquet")
    source = opened(tmp_path, "*.parquet", filter="n > 85")
    assert read(source)["n"].to_pylist() == [*range(80, 100), *range(100), None, None, None]


def test_runs_end_where_row_groups_are_left_out() -> None:
    needed = [False, True, True, True, False, True]
    splits = split_runs("x", FileVersion(24), [4] * 6, 8, needed)
    assert [(split.start, split.stop) for split in splits] == [(1, 3), (3, 4), (5, 6)]
    assert [(s.start, s.stop) for s in split_runs("x", FileVersion(8), [4, 4], 8, [False] * 2)] == [
        (0, 0)
    ]
    assert [(s.start, s.stop) for s in split_runs("x", FileVersion(0), [], 8, [])] == [(0, 0)]


NUMBERS = st.integers(-20, 20)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int32(), NUMBERS),
    "u": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "text": (pa.string(), st.sampled_from(["", "a", "ab", "z", "é", "\U0001f600", "a" * 70])),
    "day": (pa.date32(), NUMBERS.map(lambda days: DAY + timedelta(days=days))),
    "at": (pa.timestamp("ms"), NUMBERS.map(lambda hours: TIME + timedelta(hours=hours))),
    "cost": (pa.decimal128(9, 2), NUMBERS.map(lambda n: Decimal(n) / 4)),
    "float": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan"), float("-inf")])),
    "yes": (pa.bool_(), st.booleans()),
}
LITERALS = {
    "n": ["-3", "0", "7", "2.5"],
    "u": ["1", "9223372036854775808"],
    "text": ["''", "'a'", "'b'", "'é'"],
    "day": ["date '2023-12-30'", "'2024-01-03'"],
    "at": ["timestamp '2024-01-01T05:00:00'", "date '2024-01-01'"],
    "cost": ["-1.25", "0", "1.001"],
    "float": ["0", "-0.0", "2.0", "'nan'"],
    "yes": ["true", "false"],
}


@st.composite
def conditions(draw: st.DrawFn) -> str:
    terms = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(list(LITERALS)))
        first, second = (draw(st.sampled_from(LITERALS[name])) for _ in range(2))
        operator = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "is distinct from"]))
        shapes = [f"({name} {operator} {first})", f"({first} {operator} {name})"]
        shapes += [f"not ({name} {operator} {first})", f"{name} is null", f"{name} is not null"]
        shapes += [f"{name} in ({first}, {second})", f"{name} between {first} and {second}"]
        shapes += [f"{name} not in ({', '.join([first, second] * 3)})"]
        terms.append(draw(st.sampled_from([s for s in shapes if "distinct" not in s or "(" in s])))
    return f" {draw(st.sampled_from(['and', 'or']))} ".join(terms)


@settings(max_examples=12, derandomize=True, deadline=None)
@given(st.data())
def test_files_with_statistics_give_the_rows_of_files_without(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 30))
    columns = {
        name: pa.array(
            data.draw(st.lists(values | st.none(), min_size=rows, max_size=rows), name), kind
        )
        for name, (kind, values) in VALUES.items()
    }
    table = pa.table({"row": range(rows), **columns})
    if data.draw(st.booleans(), "sorted"):
        table = table.sort_by(data.draw(st.sampled_from(list(VALUES))))
    condition = data.draw(conditions(), "condition")
    with TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=data.draw(st.integers(1, 5)))
        pa.feather.write_feather(table, f"{folder}/a.arrow")
        pruned, whole = (
            mrflight.read(f"{folder}/a.{suffix}").filter(condition).select("row").head(100)
            for suffix in ("parquet", "arrow")
        )
    assert pruned.to_pylist() == whole.to_pylist()


def test_the_types_of_all_files_decide(tmp_path: Path) -> None:
    """With NaN in the second file, the column has floats, of which no bounds are known."""
    pq.write_table(ROWS.select(["n", "day"]), tmp_path / "a.parquet", row_group_size=GROUP_ROWS)
    pq.write_table(pa.table({"n": [1.0, float("nan")]}), tmp_path / "b.parquet")
    source = opened(tmp_path, "*.parquet", schema="union", filter="n > 98 or n = 98")
    assert source.skipped_row_groups == 0
    source = opened(tmp_path, "*.parquet", schema="union", filter="day = date '2024-01-02'")
    assert source.skipped_row_groups == 9
    assert read(source)["n"].to_pylist()[:-1] == [*range(10), 1]
