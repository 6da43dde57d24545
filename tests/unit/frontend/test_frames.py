"""Tests of rows in memory as inputs: what is taken for rows, and that each is read once."""

from __future__ import annotations

import gc
import pickle
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mrflight
from mrflight.compute.layout import canonical_schema
from mrflight.config.input_spec import InputSpec
from mrflight.errors import (
    ColumnNotFoundError,
    DeadlineExceededError,
    InputError,
    JobError,
    JobFailedError,
    JobFileError,
)
from mrflight.frontend import frames
from mrflight.frontend.frames import frame_of
from mrflight.scheduler.frames import FrameFiles
from mrflight.sources import open_source
from mrflight.sources.base import Source, pack_splits
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.progress import QuietProgress
from tests.integration.test_column_types import UNION, kinds
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

LARGE = 1 << 30
TABLE = pa.table({"id": [1, 2, 3, 4], "word": ["a", None, "", "b"], "x": [0.5, None, -1.0, 2.0]})


class OnlyStream:
    """An object that has Arrow's stream interface, and nothing else."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def reader_of(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def open_rows(rows: Any, **spec: Any) -> Source:
    return open_source("rows", InputSpec(frame=frame_of(rows), **spec), Path("nowhere"), {}, LARGE)


def files_in(folder: Path, deadline: Deadline = NO_DEADLINE) -> FrameFiles:
    return FrameFiles(folder, QuietProgress(), deadline)


def read(source: Source, units: int | None = None) -> pa.Table:
    """Return the rows of a source, which is cut into splits of so many units."""
    splits = [
        piece
        for split in source.splits
        for piece in split.divide(-(-(split.stop - split.start) // units) if units else 1)
    ]
    assert {type(split).__name__ for split in splits} == {"FrameSplit"}
    batches = (batch for split in splits for batch in source.reader.read(split))
    return pa.Table.from_batches(batches, source.reader.schema)


TABLES: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow.Table": lambda table: table,
    "pyarrow.RecordBatch": lambda table: table.combine_chunks().to_batches()[0],
    "polars.DataFrame": pl.from_arrow,
    "pandas.DataFrame": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "DuckDB relation": lambda table: duckdb.connect().from_arrow(table),
    "test_frames.OnlyStream": lambda table: OnlyStream(table),
    "pyarrow.RecordBatchReader": reader_of,
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_of_every_kind_are_looked_at_and_written(tmp_path: Path, kind: str) -> None:
    rows = TABLES[kind](TABLE)
    source = open_rows(rows)
    assert read(source).equals(TABLE)
    assert read(open_rows(rows, columns=["x", "id"])).equals(TABLE.select(["x", "id"]))
    files = files_in(tmp_path)
    written = files.write(source, LARGE)
    assert read(written).equals(TABLE)
    assert read(files.write(open_rows(TABLE, columns=["word"]), LARGE)).equals(
        TABLE.select(["word"])
    )
    assert read(files.write(source, LARGE)).equals(TABLE)
    assert written.size_bytes > 0
    assert written.splits[0].place == "the frame 'rows' from 0"
    assert pack_splits([*written.splits, *written.splits]).place == "the frame 'rows' from 0"
    known = "" if source.reader.count_rows(source.splits[0]) is None else ", 4 rows, "
    assert (
        str(frame_of(TABLES[kind](TABLE)))
        .removeprefix("tests.unit.frontend.")
        .startswith(f"{kind.replace('test_frames', 'tests')}{known}")
    )


def test_the_index_of_a_pandas_frame_is_a_column_if_it_has_a_name() -> None:
    frame = TABLE.to_pandas()
    assert read(open_rows(frame[frame["id"] > 2])).column_names == ["id", "word", "x"]
    counted = frame.groupby("id").agg(n=("x", "size"))
    assert read(open_rows(counted)).to_pydict() == {"id": [1, 2, 3, 4], "n": [1, 1, 1, 1]}


def test_columns_of_every_type_are_written(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), *kinds()])
    columns = [pa.array([1, 2, 3])] + [pa.nulls(3, field.type) for field in list(schema)[1:]]
    source = open_rows(pa.RecordBatch.from_arrays(columns, schema=schema))
    written = files_in(tmp_path).write(source, LARGE)
    for each in (source, written):
        assert each.reader.schema == canonical_schema(schema)
        back = read(each)
        assert back["n"].to_pylist() == [1, 2, 3]
        assert {back[name].null_count for name, _ in kinds()} == {3}


def test_layouts_of_other_libraries_keep_their_values(tmp_path: Path) -> None:
    words = pa.chunked_array([pa.array(["a", "b"]), pa.array(["c", None])])
    stream = pa.RecordBatchReader.from_batches(
        pa.schema([("w", pa.dictionary(pa.int8(), pa.string()))]),
        [
            pa.record_batch(
                {"w": chunk.dictionary_encode().cast(pa.dictionary(pa.int8(), "string"))}
            )
            for chunk in words.chunks
        ],
    )  # each batch has a dictionary of its own
    enum = pl.DataFrame({"w": words}, schema={"w": pl.Enum(["a", "b", "c"])})
    relation = duckdb.connect().sql("select unnest(['a', 'b', 'c', null])::enum('a','b','c') as w")
    categories = pd.DataFrame({"w": pd.Categorical(words.to_pylist())})
    for number, rows in enumerate((stream, enum, relation, categories)):
        (folder := tmp_path / str(number)).mkdir()
        assert read(files_in(folder).write(open_rows(rows), LARGE)).equals(pa.table({"w": words}))


@settings(deadline=None, max_examples=some_of(25))
@given(
    st.lists(st.integers(0, 7), max_size=6),
    st.integers(1, 9),
    st.sampled_from(["pyarrow.Table", "pyarrow.RecordBatchReader", "polars.DataFrame"]),
)
def test_splits_have_each_row_once(sizes: list[int], units: int, kind: str) -> None:
    ids = iter(range(sum(sizes)))
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    chunks = [[next(ids) for _ in range(size)] for size in sizes]
    table = pa.Table.from_batches(
        [pa.record_batch([chunk, [f"w{n}" for n in chunk]], schema=schema) for chunk in chunks],
        schema,
    )
    rows = pl.DataFrame(table) if kind == "polars.DataFrame" else TABLES[kind](table)
    source = open_rows(rows)
    counted = kind != "pyarrow.RecordBatchReader"
    assert read(source, units if counted else None).equals(table)
    if counted:
        pieces = source.splits[0].divide(3)
        assert sum(source.reader.count_rows(piece) or 0 for piece in pieces) == len(table)
    with TemporaryDirectory() as folder:
        written = files_in(Path(folder)).write(source, 1)
        assert read(written).equals(table)


def test_a_large_table_is_cut(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(3 << 20)})  # 24 MiB in one chunk
    source = files_in(tmp_path).write(open_rows(table), 8 << 20)
    assert 2 <= len(source.splits) <= 6
    assert read(source).equals(table)


def test_rows_of_a_reader_are_left_for_a_job(tmp_path: Path) -> None:
    """Whatever looks at them first, and although the dataset that looked is gone."""
    reader = reader_of(pa.concat_tables([TABLE, TABLE]))
    rows = mrflight.read(reader).map(lambda batch: batch.slice(1))
    assert rows.schema == TABLE.schema
    assert rows.head(2).equals(TABLE.slice(1, 2))
    assert mrflight.read(reader, columns=["id"]).head(5)["id"].to_pylist() == [1, 2, 3, 4, 1]
    assert "input rows:     pyarrow.RecordBatchReader\n  estimated: " in rows.explain()
    for take in (rows.count, rows.distinct().head, rows.describe):
        with refused(JobFileError):
            take()
    del rows, take
    gc.collect()
    files = files_in(tmp_path)
    first, second = open_rows(reader), open_rows(reader, columns=["id"])
    assert read(files.write(first, LARGE)).equals(pa.concat_tables([TABLE, TABLE]))
    assert read(files.write(second, LARGE)).num_rows == 8
    assert [path.name for path in tmp_path.iterdir()] == ["frame-0.arrow"]
    message = "a job has taken the rows of this pyarrow.RecordBatchReader before"
    for again in (lambda: open_rows(reader), lambda: mrflight.read(reader).schema):
        with pytest.raises(InputError, match=message):
            again()
    with refused(InputError):
        files_in(tmp_path).write(first, LARGE)


def test_a_stream_is_not_gathered(tmp_path: Path) -> None:
    alive: list[weakref.ref[pa.RecordBatch]] = []
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(60):
            batch = pa.record_batch({"n": np.full(100_000, number)})
            alive.append(weakref.ref(batch))
            most = max(most, sum(each() is not None for each in alive))
            yield batch

    schema = pa.schema([("n", pa.int64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    written = files_in(tmp_path).write(open_rows(reader), LARGE)
    assert read(written).num_rows == 6_000_000
    assert 1 <= most <= 8


def test_a_look_holds_little_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_MAX_LOOK_BYTES", 100)
    rows = mrflight.read(reader_of(pa.concat_tables([TABLE] * 9)))
    assert rows.head(4).num_rows == 4
    with refused(JobFileError):
        rows.map(lambda batch: batch.slice(0, 0)).head(1)


def test_a_look_at_a_relation_frees_its_connection() -> None:
    """A connection of DuckDB has one open result, and other queries are refused meanwhile."""
    connection = duckdb.connect()
    relation = connection.sql("select range as n from range(1_000_000)")
    rows = mrflight.read(relation)
    assert rows.head(1).num_rows == 1
    assert rows.sql("select n + 1 as m from rows").head(1).to_pydict() == {"m": [1]}
    assert rows.schema == pa.schema([("n", pa.int64())])
    assert connection.sql("select 7").fetchall() == [(7,)]


def failing(after: int) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(after):
            yield pa.record_batch({"n": [1, 2]})
        raise ZeroDivisionError("no more")

    return pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())


TWICE = pa.table([[1], [2]], names=["n", "n"])


@pytest.mark.parametrize(
    ("rows", "error", "key"),
    [
        (failing(3), InputError, "inputs.rows"),
        (TWICE, InputError, "inputs.rows"),
        (pl.DataFrame(), InputError, "inputs.rows"),
        (
            pa.table({"n": pa.nulls(1, pa.struct([("x", UNION)]))}),
            InputError,
            "inputs.rows",
        ),
    ],
)
def test_rows_that_cannot_be_read(
    tmp_path: Path, rows: Any, error: type[JobError], key: str
) -> None:
    with refused(error, key):
        files_in(tmp_path).write(open_rows(rows), LARGE)


def test_columns_that_are_not_there() -> None:
    with refused(ColumnNotFoundError, "inputs.rows.columns"):
        open_rows(TABLE, columns=["wrod"])


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "frame-0.arrow").symlink_to("/dev/full")
    with refused(JobFailedError):
        files_in(tmp_path).write(open_rows(TABLE), LARGE)
    (tmp_path / "frame-0.arrow").unlink()
    with refused(DeadlineExceededError):
        files_in(tmp_path, Deadline(time.monotonic())).write(open_rows(TABLE), LARGE)


@pytest.mark.parametrize(
    "given",
    [
        7,
        [TABLE],
        pl.LazyFrame({"n": [1]}),
        pl.Series([1]),
        pd.DataFrame({"n": [1, "a"]}),
        pa.chunked_array([[1]]),
    ],
)
def test_what_is_neither_a_path_nor_a_table(given: Any) -> None:
    with refused(JobFileError):
        mrflight.read(given)


@pytest.mark.parametrize(
    "options",
    [
        {"format": "arrow"},
        {"types": {"id": "int8"}},
        {"hive": False},
        {"version": 1},
    ],
)
def test_options_that_only_files_have(options: Any) -> None:
    with refused(JobFileError):
        mrflight.read(TABLE, **options).job("out")


def test_a_job_is_shown_and_sent_without_its_rows() -> None:
    job = mrflight.read(TABLE, name="words").job("out")
    assert "frame=<pyarrow.Table, 4 rows, " in repr(job)
    there = pickle.loads(pickle.dumps(job))
    assert there.paths == ["out"]
    frame = there.inputs["words"].frame
    assert (str(frame), frame.schema) == (str(job.inputs["words"].frame), TABLE.schema)
    source = open_source("words", there.inputs["words"], Path("nowhere"), {}, LARGE)
    with refused(JobFileError):
        read(source)
