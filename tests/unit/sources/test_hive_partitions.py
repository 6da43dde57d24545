"""Tests of the columns in the names of ``key=value`` folders, beside DuckDB and plain Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.config.row_steps import Filter
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.sources.hive_partitions import infer_type, partition_of
from mrflight.storage import disk
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused


def write_csv(table: pa.Table, path: Path) -> None:
    pc.write_csv(table, path)


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"n": {n}}}\n' for n in table["n"].to_pylist()))


WRITERS = {"parquet": pq.write_table, "csv": write_csv, "json": write_json, "arrow": write_arrow}


def open_at(folder: Path, path: str, **spec: Any) -> Source:
    return open_source("visits", InputSpec(path=path, **spec), folder, {}, 1 << 20)


def read(source: Source) -> pa.Table:
    batches = (batch for split in source.splits for batch in source.reader.read(split))
    return pa.Table.from_batches(batches, source.reader.schema)


def lay_out(folder: Path, suffix: str, *folders: str) -> None:
    """Write a file with one number into each folder: its position in ``folders``."""
    for number, name in enumerate(folders):
        path = folder / name / f"a.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[suffix](pa.table({"n": [number]}), path)


@pytest.mark.parametrize(
    ("folders", "partition"),
    [
        ([], ()),
        (["plain", "=x"], ()),
        (["year=2024", "x", "month=01"], (("year", "2024"), ("month", "01"))),
        (["a%20b=c%2Fd", "e=f=g"], (("a b", "c/d"), ("e", "f=g"))),
        (["k=__HIVE_DEFAULT_PARTITION__", "m="], (("k", None), ("m", ""))),
    ],
)
def test_folders_have_keys_and_values(
    folders: list[str], partition: tuple[tuple[str, str | None], ...]
) -> None:
    assert partition_of(folders) == partition


@pytest.mark.parametrize(
    ("texts", "type"),
    [
        (["1", "-20", "007", None], pa.int64()),
        (["9" * 18], pa.int64()),
        (["9" * 19], pa.string()),
        (["+1"], pa.string()),
        (["1", "x"], pa.string()),
        (["2024-02-29", None], pa.date32()),
        (["2023-02-29"], pa.string()),
        (["2024-01-01", "2024"], pa.string()),
        (["\u0662"], pa.string()),  # a digit, but not of ASCII
        ([""], pa.string()),
        ([None], pa.string()),
    ],
)
def test_types_are_inferred_from_all_values(texts: list[str | None], type: pa.DataType) -> None:
    assert infer_type(texts) == type


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_has_the_columns_of_its_folders(tmp_path: Path, suffix: str) -> None:
    lay_out(tmp_path, suffix, "v/y=1/d=2024-01-31/c=a%20b", "v/y=-2/d=2024-02-01/c=ü")
    source = open_at(tmp_path, "v")
    assert source.partitioned_by == ("y", "d", "c")
    expected = pa.table(
        {
            "n": [1, 0],
            "y": [-2, 1],
            "d": [date(2024, 2, 1), date(2024, 1, 31)],
            "c": ["ü", "a b"],
        }
    )
    assert read(source).equals(expected)
    assert read(open_at(tmp_path, "v/*/*/*/*", hive=True)).equals(expected)
    for columns in (["c", "n"], ["c"], ["n"], ["d", "y"]):
        assert read(open_at(tmp_path, "v", columns=columns)).equals(expected.select(columns))
        selected = open_at(tmp_path, "v")
        in_order = [name for name in expected.column_names if name in columns]
        reader = selected.reader.select(in_order)
        batches = (batch for split in selected.splits for batch in reader.read(split))
        assert pa.Table.from_batches(batches).equals(expected.select(in_order))
    assert read(open_at(tmp_path, "v", hive=False)).equals(expected.select(["n"]))


def test_encoded_strings_are_dictionaries_of_one_value(tmp_path: Path) -> None:
    lay_out(tmp_path, "parquet", "v/c=a/y=1", "v/c=__HIVE_DEFAULT_PARTITION__/y=1")
    source = open_at(tmp_path, "v")
    null, text = (next(source.reader.read_encoded(split)) for split in source.splits)
    assert (text["c"].type.value_type, text["c"].to_pylist()) == (pa.string(), ["a"])
    assert (null["c"].type, null["c"].to_pylist()) == (pa.string(), [None])
    assert text["y"].type == pa.int64()


def test_folders_that_the_path_names_are_no_columns(tmp_path: Path) -> None:
    lay_out(tmp_path, "csv", "v/y=1/m=2", "v/y=1/m=3")
    assert open_at(tmp_path, "v/y=1").partitioned_by == ("m",)
    assert open_at(tmp_path, "v/y=1/m=2/a.csv").partitioned_by == ()
    assert open_at(tmp_path, "v/y=1/m=*").partitioned_by == ("m",)
    lay_out(tmp_path, "csv", "w/k=a[1]")
    assert open_at(tmp_path, "w/k=a[1]").partitioned_by == ()


@pytest.mark.parametrize("suffix", WRITERS)
def test_types_of_folders_can_be_set(tmp_path: Path, suffix: str) -> None:
    lay_out(tmp_path, suffix, "v/y=007/t=2024-01-01 10%3A00%3A00")
    types = {"y": "string", "t": "timestamp[us, UTC]"}
    rows = read(open_at(tmp_path, "v", types=types))
    assert rows.schema.field("t").type == pa.timestamp("us", "UTC")
    assert rows["y"].to_pylist() == ["007"]
    assert rows["t"][0].as_py().isoformat() == "2024-01-01T10:00:00+00:00"


@pytest.mark.parametrize(
    ("folders", "spec", "error", "key"),
    [
        (
            ["v/y=1", "v"],
            {},
            InputError,
            "inputs.visits.path",
        ),
        (
            ["v/y=1/m=2", "v/m=2/y=1"],
            {},
            InputError,
            "inputs.visits.path",
        ),
        (
            ["v/y=1/y=2"],
            {},
            InputError,
            "inputs.visits.path",
        ),
        (
            ["v/n=1"],
            {},
            InputError,
            None,
        ),
        (["v/n=1"], {"columns": ["n"]}, InputError, None),
        (
            ["v/y=1", "v/y=x"],
            {"types": {"y": "int32"}},
            JobFileError,
            "inputs.visits.types.y",
        ),
        (["v/y=1"], {"columns": ["x"]}, ColumnNotFoundError, "inputs.visits.columns"),
        (["v/y=1"], {"columns": ["n", "n"]}, JobFileError, "inputs.visits.columns"),
    ],
)
def test_folders_that_disagree_are_refused(
    tmp_path: Path,
    folders: list[str],
    spec: dict[str, Any],
    error: type[Exception],
    key: str | None,
) -> None:
    lay_out(tmp_path, "csv", *folders)
    with refused(error, key):
        read(open_at(tmp_path, "v", **spec))


@pytest.mark.parametrize("suffix", ["parquet", "json", "arrow"])
def test_a_column_of_a_later_file_is_not_hidden_by_its_folder(tmp_path: Path, suffix: str) -> None:
    lay_out(tmp_path, suffix, "v/y=1")
    folder = tmp_path / "v" / "y=2"
    folder.mkdir()
    if suffix == "json":
        (folder / "a.json").write_text('{"n": 1, "y": 3}\n')
    else:
        WRITERS[suffix](pa.table({"n": [1], "y": [3]}), folder / f"a.{suffix}")
    with refused(InputError):
        open_at(tmp_path, "v")


class CountedDisk:
    """Counts the folders that are listed on the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed: list[str] = []
        whole = disk.Disk.list

        def counted(store: disk.Disk, folder: str, *, recursive: bool) -> Any:
            self.listed.append(folder)
            return whole(store, folder, recursive=recursive)

        monkeypatch.setattr(disk.Disk, "list", counted)


@pytest.mark.parametrize(
    ("where", "numbers", "skipped"),
    [
        ("y = 2024", [0, 1], 1),
        ("y = 2024 and m = 2", [1], 2),
        ("m = 2 and n < 9", [1, 3], 2),
        ("y = 2024 or n = 3", [0, 1, 2, 3], 0),
        ("y > 2024 and random() < 2", [2, 3], 1),
        ("y is null", [0], 2),  # one file is left, which has the columns
        ("abs(y) = 2024", [0, 1, 2, 3], 0),
    ],
)
@pytest.mark.parametrize("path", ["v", "v/*/*"])
@pytest.mark.parametrize(
    "keys",
    [
        lambda where: {"sql": f"select n from visits where {where}"},
        lambda where: {"filter": where},
        lambda where: {"filter": where, "columns": ["n"]},
        lambda where: {"filter": "n >= 0", "sql": f"select n from visits where {where}"},
        lambda where: {"steps": (Filter(call="", table="visits", conditions=("n >= 0", where)),)},
    ],
    ids=["sql", "filter", "columns", "both", "steps"],
)
def test_only_folders_that_the_conditions_can_need_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    keys: Callable[[str], dict[str, Any]],
    where: str,
    numbers: list[int],
    skipped: int,
) -> None:
    lay_out(tmp_path, "csv", "v/y=2024/m=1", "v/y=2024/m=2", "v/y=2025/m=1", "v/y=2025/m=2")
    disk_lists = CountedDisk(monkeypatch)
    source = open_at(tmp_path, path, **keys(where))
    assert read(source)["n"].to_pylist() == numbers
    if path == "v":
        assert source.skipped_folders == skipped
        below = {folder for folder in disk_lists.listed if "y=2025" in folder}
        assert bool(below) == (3 in numbers)


def test_folders_are_chosen_by_the_types_of_all_folders(tmp_path: Path) -> None:
    """``c=10`` alone would be a number, which is not less than 5; as text it is less than '5'."""
    lay_out(tmp_path, "csv", "v/c=10", "v/c=x")
    source = open_at(tmp_path, "v", sql="select n, c from visits where c < '5'")
    assert read(source).to_pydict() == {"n": [0], "c": ["10"]}


NAMES = st.sampled_from(["k", "a b", "ü/%", "K"])
VALUES = st.one_of(
    st.none(),
    st.integers(-(10**6), 10**6).map(str),
    st.dates(date(1990, 1, 1), date(2030, 1, 1)).map(str),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[str], list[tuple[str | None, ...]]]:
    keys = draw(st.lists(NAMES, min_size=1, max_size=2, unique_by=str.lower))
    kinds = [draw(st.sampled_from([VALUES, st.integers(0, 99).map("{:02}".format)])) for _ in keys]
    rows = draw(st.lists(st.tuples(*kinds), min_size=1, max_size=5, unique=True))
    return keys, rows


def folder_of(keys: list[str], values: tuple[str | None, ...]) -> str:
    texts = ["__HIVE_DEFAULT_PARTITION__" if v is None else quote(v, safe="") for v in values]
    return "/".join(f"{quote(key, safe='')}={text}" for key, text in zip(keys, texts, strict=True))


@settings(deadline=None, max_examples=some_of(25))
@given(trees())
def test_trees_are_read_as_duckdb_reads_them(
    tree: tuple[list[str], list[tuple[str | None, ...]]],
) -> None:
    keys, rows = tree
    with TemporaryDirectory() as root:
        folder = Path(root)
        for number, values in enumerate(rows):
            path = folder / "v" / folder_of(keys, values)
            path.mkdir(parents=True)
            pq.write_table(pa.table({"n": [number]}), path / "a.parquet")
        read_rows = read(open_at(folder, "v"))
        # Texts are compared, as DuckDB also infers booleans and times. It decodes no keys.
        found = duckdb.sql(
            f"select * from read_parquet('{folder}/v/**/*.parquet', hive_partitioning = true, "
            "hive_types_autocast = false)"
        )
        texts = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    expected = {row["n"]: tuple(row[quote(key, safe="")] for key in keys) for row in texts}
    assert expected == dict(enumerate(rows))
    for row in read_rows.to_pylist():
        for key, text in zip(keys, expected[row["n"]], strict=True):
            kind = read_rows.schema.field(key).type
            value = row[key]
            if text is None:
                assert value is None
            elif pa.types.is_int64(kind):
                assert value == int(text)
            else:
                assert str(value) == text
    assert sorted(read_rows["n"].to_pylist()) == list(range(len(rows)))
