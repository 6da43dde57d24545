"""Tests of inputs with several paths, beside DuckDB."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.commands.leftovers import tree
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused
from tests.unit.sources.test_hive_partitions import CountedDisk
from tests.unit.sources.test_written_folders import write

FILES = ["a/1.csv", "a/2.csv", "b/1.csv", "b/c/1.csv", "c.csv"]


def open_paths(folder: Path, *paths: str, **spec: Any) -> Source:
    return open_source("v", InputSpec(path=list(paths), **spec), folder, {}, 1 << 20)


def read(source: Source) -> list[Any]:
    batches = (batch for split in source.splits for batch in source.reader.read(split))
    return pa.Table.from_batches(batches, source.reader.schema).to_pylist()


def lay_out(folder: Path, *files: str, suffix: str = "csv") -> None:
    """Write files whose only value is their name."""
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".csv":
            path.write_text(f"n\n{name}\n")
        else:
            pq.write_table(pa.table({"n": [name]}), path)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["b", "a/*.csv"], ["b/1.csv", "b/c/1.csv", "a/1.csv", "a/2.csv"]),
        (["c.csv", "a/2.csv", "a/1.csv"], ["c.csv", "a/2.csv", "a/1.csv"]),
        (["a/**/1.csv", "b/**/**/1.csv"], ["a/1.csv", "b/1.csv", "b/c/1.csv"]),
        (["a"], ["a/1.csv", "a/2.csv"]),
    ],
)
def test_files_come_in_the_order_of_the_paths(
    tmp_path: Path, paths: list[str], found: list[str]
) -> None:
    lay_out(tmp_path, *FILES)
    assert read(open_paths(tmp_path, *paths)) == [{"n": name} for name in found]
    absolute = [f"file://{tmp_path}/{path}" for path in paths]
    assert read(open_paths(tmp_path, *absolute)) == [{"n": name} for name in found]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a", "./a/"], "inputs.v.path names FOLDER/a twice; name it once"),
        (
            ["a/*.csv", "c.csv", "a/2.csv"],
            "inputs.v.path: FOLDER/a/2.csv is found by two paths, FOLDER/a/*.csv and "
            "FOLDER/a/2.csv; a file is read once, so change one of them",
        ),
        (["b", "b/c"], "inputs.v.path: FOLDER/b/c/1.csv is found by two paths, FOLDER/b and "),
        (["a", "b/*.json"], "inputs.v.path: nothing matches FOLDER/b/*.json"),
        (["a", "empty"], "inputs.v.path: the folder FOLDER/empty has no files to read"),
        (["a", "table"], "inputs.v.path: FOLDER/table is a Delta table, which cannot be one of s"),
        (["a", "s3://bucket/a"], "inputs.v.path: FOLDER/a and s3://bucket/a are in different st"),
        (["x.json", "y.json"], "inputs.v.path: FOLDER/x.json and 1 other path has no json object"),
        (["a", "x.json"], "inputs.v.path: the files have several formats: FOLDER/a/1.csv (csv), "),
        (["a", "k=1"], "inputs.v.path: FOLDER/a/1.csv lies in folders of no column, and FOLDER/k"),
    ],
)
def test_paths_that_do_not_make_one_input(tmp_path: Path, paths: list[str], message: str) -> None:
    lay_out(tmp_path, *FILES, "k=1/m=1/1.csv")
    for name in ("x.json", "y.json"):
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        open_paths(tmp_path, *paths)
    assert str(caught.value).replace(str(tmp_path), "FOLDER").startswith(message)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("y = '2024'", [0, 2]),
        ("y < '2'", [1]),  # as text, although the folders of one path are numbers
        ("y = 'x' and m = 1", [3]),
        ("y is null", [1]),  # one file is left, which has the columns
    ],
)
@pytest.mark.parametrize("paths", [["p", "q"], ["p", "q/*"]])
def test_folders_of_several_paths_are_chosen_by_the_types_of_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    paths: list[str],
    where: str,
    numbers: list[int],
) -> None:
    folders = ["p/y=2024/m=1", "p/y=10/m=1", "q/y=2024/m=2", "q/y=x/m=1"]
    lay_out(tmp_path, *(f"{folder}/a.parquet" for folder in folders))
    disk_lists = CountedDisk(monkeypatch)
    if paths[1] == "q/*":  # then these folders are no columns
        paths = ["p/y=*/m=*", "q/y=*/m=*"]
    source = open_paths(tmp_path, *paths, sql=f"select n from v where {where}")
    assert [row["n"] for row in read(source)] == [f"{folders[n]}/a.parquet" for n in numbers]
    assert source.reader.schema is not None
    assert source.reader.schema.field("y").type == pa.string()
    if paths == ["p", "q"]:
        assert any("y=x" in folder for folder in disk_lists.listed) == (3 in numbers)


@pytest.mark.parametrize(
    ("paths", "columns"),
    [
        (["p/y=2023", "p/y=2024/m=2"], ["y", "m"]),
        (["p/y=2023/m=1/a.parquet", "p/y=2024/m=2/a.parquet"], ["y", "m"]),
        (["p/y=2024/m=1", "p/y=2024/m=2/*"], ["m"]),
        (["p/y=2024/m=2/a.parquet"], []),
    ],
)
def test_folders_that_not_all_paths_name_are_columns(
    tmp_path: Path, paths: list[str], columns: list[str]
) -> None:
    for y in (2023, 2024):
        lay_out(tmp_path, *(f"p/y={y}/m={m}/a.parquet" for m in (1, 2)))
    rows = read(open_paths(tmp_path, *paths))
    assert [list(row) for row in rows] == [["n", *columns]] * len(rows)
    for row in rows:
        named = dict(part.split("=") for part in row["n"].split("/")[1:-1])
        assert {key: str(row[key]) for key in columns} == {key: named[key] for key in columns}
    if "y" in columns:
        source = open_paths(tmp_path, *paths, sql="select n from v where y = 2024")
        assert {row["n"] for row in read(source)} == {"p/y=2024/m=2/a.parquet"}
        assert source.skipped_folders >= 1


def test_folders_that_jobs_wrote(tmp_path: Path) -> None:
    first = pa.table({"n": [1], "k": pa.array([7], pa.int32())})
    for name, rows in (("p", first), ("q", first.set_column(0, "n", pa.array([2])))):
        (tmp_path / name).mkdir()
        write(tmp_path / name, rows, name, partition_by=["k"])
        write(tmp_path / name, rows, "killed", commit=False, partition_by=["k"])
    for sql in (None, "select * from v where k = 7"):
        source = open_paths(tmp_path, "q/t", "p/t", sql=sql)
        assert read(source) == [{"n": 2, "k": 7}, {"n": 1, "k": 7}]
        assert source.reader.schema is not None
        assert source.reader.schema.field("k").type == pa.int32()
    (tmp_path / "r").mkdir()
    write(tmp_path / "r", pa.table({"n": [3], "k": ["7"]}), "r", partition_by=["k"])
    with refused(InputError, "inputs.v.path"):
        open_paths(tmp_path, "q/t", "r/t")
    assert read(open_paths(tmp_path, "q/t", "r/t", types={"k": "int8"})) == [
        {"n": 2, "k": 7},
        {"n": 3, "k": 7},
    ]


PATHS = st.lists(st.sampled_from(["a", "a/1.csv", "a/*.csv", "b/**", "b/c", "c.csv", "*.csv"]))


@settings(deadline=None, max_examples=some_of(20))
@given(PATHS.filter(bool))
def test_files_are_those_of_duckdb_unless_it_reads_one_twice(paths: list[str]) -> None:
    with TemporaryDirectory() as root:
        folder = Path(root)
        lay_out(folder, *FILES)
        globs = [f"{folder}/{path}" + "/**" * ("." not in path) for path in paths]
        globs = [glob.replace("/**/**", "/**") for glob in globs]
        expected = [row[0] for row in duckdb.sql(f"from read_csv({globs}, delim=';')").fetchall()]
        before = tree(folder)
        if len(set(expected)) < len(expected):
            with pytest.raises(InputError, match=r"is found by two paths|names .* twice"):
                open_paths(folder, *paths)
        else:
            assert [row["n"] for row in read(open_paths(folder, *paths))] == expected
        assert tree(folder) == before
