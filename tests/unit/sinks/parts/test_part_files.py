"""Part files: their names, their rows, their encoding, and the memory it takes to write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.formats import OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.parts.dictionaries import unify_dictionaries
from mrflight.sinks.parts.encoders import PARQUET_CHUNK
from mrflight.sinks.parts.file_statistics import leaf_paths
from mrflight.sinks.parts.open_files import PartLimits
from mrflight.sinks.parts.parquet_encoder import (
    MAX_ROWS_AT_ONCE,
    MIN_ROWS_AT_ONCE,
    dictionary_columns,
    rows_at_once,
)
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.partition_values import partition_path, split_by_values
from mrflight.storage.part_name import (
    PartId,
    hash_run_id,
    is_part,
    is_part_of_job,
    is_part_of_run,
    part_name,
)
from tests.support.commands.own_process import in_own_process
from tests.support.suite.messages import refused
from tests.support.tables.outputs import FORMATS

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])


def writer_of(
    folder: Path, format: OutputFormat = "parquet", partition_by: tuple[str, ...] = ()
) -> FilePartWriter:
    section = OutputSection(table="t", format=format, partition_by=list(partition_by))
    writer = open_sink(section, folder, {}, "job", None).part_writer
    assert isinstance(writer, FilePartWriter)
    return writer


# Names


@pytest.mark.parametrize(
    ("partition", "slice", "attempt", "number", "name"),
    [
        (3, None, 0, 0, "part-00003-0-20261120T101500-ab12.parquet"),
        (3, None, 1, 2, "part-00003-1-20261120T101500-ab12.2.parquet"),
        (3, 0, 1, 2, "part-00003.0-1-20261120T101500-ab12.2.parquet"),
        (3, 12, 1, 0, "part-00003.12-1-20261120T101500-ab12.parquet"),
        (100_000, None, 0, 0, "part-100000-0-20261120T101500-ab12.parquet"),
    ],
)
def test_names(partition: int, slice: int | None, attempt: int, number: int, name: str) -> None:
    job = "20261120T101500-ab12"
    assert part_name(PartId(partition, attempt, slice), job, number, "parquet") == name
    assert is_part(name)
    assert is_part_of_job(name, job)


def test_names_of_a_run() -> None:
    mark = hash_run_id("mrflight/clicks/2026-11-20")
    name = part_name(PartId(3, 0), "ab-12", 2, "csv", mark)
    assert name == "part-00003-0-ab-12.2.rfdb88d73d580.csv"
    assert is_part_of_job(name, "ab-12")
    assert is_part_of_run(name, mark)
    assert not is_part_of_run(name, hash_run_id("mrflight/clicks/2026-11-21"))
    assert not is_part_of_run(name, hash_run_id(None))
    assert not is_part_of_run(part_name(PartId(3, 0), "ab-12", 2, "csv"), hash_run_id(None))


@pytest.mark.parametrize(
    "job", ["ab12", "20261120T101500", "20261120T101500-ab1", "x-20261120T101500-ab12", "0"]
)
def test_a_file_of_another_job_is_not_of_this_job(job: str) -> None:
    assert not is_part_of_job("part-00003-0-20261120T101500-ab12.parquet", job)
    assert not is_part_of_job(part_name(PartId(3, 0), job, 0, "csv"), "20261120T101500-ab12")


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-76e3759b-4db9-4bdb-8388-64297f0e5899-c000.snappy.parquet",
        "part-0.parquet",
        "part-00003-0-job.parquet.crc",
        "part-00003-0-job.txt",
        "xpart-00003-0-job.csv",
    ],
)
def test_files_of_other_programs_are_no_part_files(name: str) -> None:
    assert not is_part(name)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(["a", "b", ""])),
            st.one_of(st.none(), st.booleans()),
            st.one_of(st.none(), st.integers(-1, 1)),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_split_has_every_row_once_with_its_values(rows: list[tuple[object, ...]]) -> None:
    names = ["s", "b", "i"]
    kinds = [pa.string(), pa.bool_(), pa.int32()]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    batch = pa.record_batch([*columns, pa.array(range(len(rows)))], names=[*names, "n"])
    found: dict[int, tuple[str | None, ...]] = {}
    for values, piece in split_by_values(batch, names, is_delta=False):
        assert piece.schema.names == ["n"]
        numbers = piece.column("n").to_pylist()
        assert numbers == sorted(numbers)
        found |= dict.fromkeys(numbers, values)

    assert len(set(found.values())) == len(set(rows))
    for n, row in enumerate(rows):
        assert found[n] == tuple(map(text_of, row))


def text_of(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_pieces_do_not_hold_the_memory_of_their_batch() -> None:
    rows = 100_000
    keys = pa.array(["few" if i % 1_000 == 0 else "many" for i in range(rows)])
    batch = pa.record_batch({"k": keys, "n": range(rows)})
    pieces = dict(split_by_values(batch, ["k"], is_delta=False))
    few = pieces[("few",)]
    assert few.get_total_buffer_size() < 2_000
    assert few.num_rows == 100


def test_the_path_of_several_partition_columns() -> None:
    assert partition_path(["a b", "c"], ("x/y", None)) == "a%20b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__"
    assert partition_path([], ()) == ""


# Streaming


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_written_before_the_last_batch_has_come(
    tmp_path: Path, format: OutputFormat
) -> None:
    in_own_process(lambda: write_batch_by_batch(tmp_path, format))


def write_batch_by_batch(tmp_path: Path, format: OutputFormat) -> None:
    sizes = []
    rows = PARQUET_CHUNK.rows // 4
    batch = pa.record_batch({"n": range(rows), "k": [f"k{i}" for i in range(rows)]})

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(16):
            yield batch
            sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("part-*")))

    before = pa.total_allocated_bytes()
    (part,) = writer_of(tmp_path, format).write(PartId(0, 0), SCHEMA, batches())
    assert part.rows == 16 * rows
    grown = [size for size in sizes if size > 1_000]
    # A row group has four batches, and a chunk of csv or Arrow is smaller than a batch.
    assert (len(grown), len(set(grown))) == (
        (13, 4) if format in ("delta", "parquet") else (16, 16)
    )
    assert pa.total_allocated_bytes() - before < 10 * batch.nbytes


def test_row_groups_are_full_whatever_the_batches(tmp_path: Path) -> None:
    rows = PARQUET_CHUNK.rows
    batch = pa.record_batch({"n": range(1_000), "k": ["x"] * 1_000})
    writer = writer_of(tmp_path)
    (part,) = writer.write(PartId(0, 0), SCHEMA, [batch] * (2 * rows // 1_000))
    metadata = pq.read_metadata(tmp_path / "t" / part.path)
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert len(groups) == 2
    assert groups[0] - rows in range(1_000)
    large = pa.record_batch({"n": range(3 * rows), "k": pa.nulls(3 * rows, pa.string())})
    (part,) = writer.write(PartId(1, 0), SCHEMA, [large])
    metadata = pq.read_metadata(tmp_path / "t" / part.path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [rows] * 3


def test_buffered_rows_are_bounded_over_all_values(tmp_path: Path) -> None:
    limits = PartLimits(max_open_files=1_000, max_buffered_bytes=200_000)
    writer = replace(writer_of(tmp_path, partition_by=("k",)), limits=limits)
    rows = 50_000
    batch = pa.record_batch({"n": range(rows), "k": [f"k{i % 50}" for i in range(rows)]})
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 1_000):
            yield batch.slice(start, 1_000)
            seen.append(len(list(tmp_path.rglob("part-*"))))

    parts = writer.write(PartId(0, 0), SCHEMA, batches())
    assert len(parts) == 50
    assert seen[40] > 0  # long before any value has a row group


# Encoding


def test_columns_whose_values_repeat_get_dictionaries() -> None:
    rows = 100_000
    table = pa.table(
        {
            "unique": [f"key {i}" for i in range(rows)],
            "few": [f"kind {i % 100}" for i in range(rows)],
            "sorted": [i // 10 for i in range(rows)],
            "constant": [1.5] * rows,
            "null": pa.nulls(rows, pa.string()),
            "list": [["x"]] * rows,
        }
    )
    assert dictionary_columns(table) == ["few", "constant", "null", "list.list.element"]


def test_pages_of_wide_columns_are_looked_at_more_often() -> None:
    narrow, wide = pa.array(range(100)), pa.array(["x" * 700] * 100)
    assert rows_at_once(pa.table({"narrow": narrow})) == MAX_ROWS_AT_ONCE
    assert 1400 < rows_at_once(pa.table({"narrow": narrow, "wide": wide})) < 1500
    assert rows_at_once(pa.table({"wide": pa.array(["x" * 7000] * 100)})) == MIN_ROWS_AT_ONCE
    assert rows_at_once(pa.table({"wide": wide[:0]})) == MIN_ROWS_AT_ONCE


def test_a_dictionary_keeps_the_values_that_are_in_rows() -> None:
    rows = [0] * 20_000 + [2, None]
    values = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int32()), pa.array(["a", "b", "c"]))
    unified = unify_dictionaries(pa.table({"c": values}))["c"]
    assert unified.chunk(0).dictionary.to_pylist() == ["a", "c"]
    assert unified.to_pylist() == values.to_pylist()
    used = unify_dictionaries(pa.table({"c": values.slice(1, 10)}))["c"]
    assert used.chunk(0).dictionary.to_pylist() == ["a"]


def test_leaf_paths_are_those_of_parquet(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64()), ("y.z", pa.list_(pa.string()))])
    schema = pa.schema(
        [
            ("a.b", pa.int64()),
            ("list", pa.list_(inner)),
            ("fixed", pa.list_(pa.float32(), 2)),
            ("map", pa.map_(pa.string(), inner)),
            ("deep", pa.list_(pa.list_(pa.int8()))),
        ]
    )
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    written = pq.ParquetFile(tmp_path / "x.parquet").schema
    paths = [written.column(i).path for i in range(len(written.names))]
    assert [path for field in schema for path in leaf_paths(field)] == paths


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        (None, "ZSTD"),
        ("zstd", "ZSTD"),
        ("snappy", "SNAPPY"),
        ("lz4", "LZ4"),
        ("none", "UNCOMPRESSED"),
    ],
)
def test_parquet_is_compressed_with_the_requested_codec(
    tmp_path: Path, format: str, compression: str | None, codec: str
) -> None:
    spec = OutputSection(table="out", format=format, compression=compression)
    sink = open_sink(spec, tmp_path, {}, "job-1", None)
    rows = pa.record_batch({"a": ["x"] * 1000})
    (part,) = sink.part_writer.write(PartId(0, 0), rows.schema, [rows])
    footer = pq.ParquetFile(tmp_path / "out" / part.path).metadata
    assert footer.row_group(0).column(0).compression == codec
    sink.abort()


@pytest.mark.parametrize("format", ["csv", "arrow"])
def test_a_format_without_compression_refuses_it(tmp_path: Path, format: str) -> None:
    spec = OutputSection(table="out", format=format, compression="lz4")
    with refused(OutputError, "output.compression"):
        open_sink(spec, tmp_path, {}, "job-1", None)
