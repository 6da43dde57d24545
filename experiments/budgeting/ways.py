"""Ways to do the work of one stage alone, by library.

Each is a function that does it piece by piece, as its result is iterated.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from mrflight.compute import kernel

BATCH_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20
_BUFFER_BYTES = 64 << 20
_ROWS_AT_ONCE = 1 << 16

T = TypeVar("T")
Ways = Mapping[str, Callable[[], Iterable[T]]]


def read(files: Sequence[Path]) -> Ways[None]:
    buffer = memoryview(bytearray(BATCH_BYTES))

    def read_file(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return {"readinto": lambda: map(read_file, files)}


def decode(files: Sequence[Path]) -> Ways[Any]:
    """Decode files, one after the other; DuckDB reads them as well."""
    contents = [path.read_bytes() for path in files]
    if files[0].suffix == ".csv":
        options = pc.ReadOptions(use_threads=False, block_size=BATCH_BYTES)
        return {
            "Arrow": lambda: (pc.read_csv(pa.BufferReader(each), options) for each in contents),
            "Polars": lambda: map(pl.read_csv, contents),
            "DuckDB": lambda: (duckdb.read_csv(str(path)).to_arrow_table() for path in files),
        }
    parquet = partial(pq.read_table, use_threads=False)
    return {
        "Arrow": lambda: (parquet(pa.BufferReader(each)) for each in contents),
        "Polars": lambda: (pl.read_parquet(io.BytesIO(each)) for each in contents),
        "DuckDB": lambda: (duckdb.read_parquet(str(path)).to_arrow_table() for path in files),
    }


def map_rows(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], tables: Sequence[pa.Table]
) -> Ways[pa.Table]:
    return {
        "the function": lambda: (
            pa.Table.from_batches(map(function, table.to_batches())) for table in tables
        )
    }


def place(tables: Sequence[pa.Table], key: Sequence[str], partitions: int) -> Ways[pa.RecordBatch]:
    """Hash and scatter rows to blocks of the size that is sent."""

    def blocks() -> Iterator[pa.RecordBatch]:
        rows = kernel.scatter(tables[0].schema, partitions, _BUFFER_BYTES, BLOCK_BYTES)
        assert rows is not None, "the kernel in Rust knows these columns"
        for batch in _pieces(tables):
            rows.add(batch, kernel.partition_ids([batch[name] for name in key], partitions))
            _, sizes = rows.measure()
            for partition in np.flatnonzero(sizes >= BLOCK_BYTES).tolist():
                yield rows.take(partition)
        counts, _ = rows.measure()
        for partition in np.flatnonzero(counts).tolist():
            yield rows.take(partition)

    return {"the kernel": blocks}


def _pieces(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches(max_chunksize=_ROWS_AT_ONCE)


def encode_blocks(blocks: Sequence[pa.RecordBatch]) -> Ways[pa.Buffer]:
    def encode(batch: pa.RecordBatch) -> pa.Buffer:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        return out.getvalue()

    return {"Arrow IPC": lambda: map(encode, blocks)}


def decode_blocks(blocks: Sequence[pa.Buffer]) -> Ways[pa.Table]:
    def decode_block(block: pa.Buffer) -> pa.Table:
        with pa.ipc.open_stream(block) as stream:
            return stream.read_all()

    return {"Arrow IPC": lambda: map(decode_block, blocks)}


def copy(size_bytes: int, *, keeps: bool) -> Ways[None]:
    """Copy so many bytes, by blocks, once; ``keeps``: into memory that is new."""
    given = np.ones(_BUFFER_BYTES, np.uint8)
    taken = np.ones(_BUFFER_BYTES, np.uint8)
    blocks = -(-size_bytes // BLOCK_BYTES)
    left = [min(BLOCK_BYTES, size_bytes - i * BLOCK_BYTES) for i in range(blocks)]
    places = [i * BLOCK_BYTES % _BUFFER_BYTES for i in range(blocks)]

    def copy_all() -> Iterator[None]:
        for at, size in zip(places, left, strict=True):
            yield np.copyto(taken[at : at + size], given[at : at + size])

    def keep_all() -> Iterator[None]:
        kept = np.empty(size_bytes, np.uint8)
        for i, (at, size) in enumerate(zip(places, left, strict=True)):
            start = i * BLOCK_BYTES
            yield np.copyto(kept[start : start + size], given[at : at + size])

    return {"memcpy, to new memory": keep_all} if keeps else {"memcpy": copy_all}


def group(rows: pa.Table, key: Sequence[str], sums: Mapping[str, str]) -> Ways[pa.Table]:
    """Sum columns by key; the column ``*`` is counted."""
    frame = _frame(rows)
    polars = [
        (pl.len() if column == "*" else pl.col(column).cast(pl.Int64).sum()).alias(name)
        for name, column in sums.items()
    ]
    arrow = [([], "count_all") if column == "*" else (column, "sum") for column in sums.values()]
    sql = ", ".join(
        f"count(*) as {name}" if column == "*" else f"sum({column})::bigint as {name}"
        for name, column in sums.items()
    )
    keys = ", ".join(key)
    names = [*key, *sums]

    def acero() -> pa.Table:
        return rows.group_by(list(key), use_threads=False).aggregate(arrow).rename_columns(names)

    return {
        "Arrow": lambda: [acero()],
        "DuckDB": lambda: [_duckdb(f"select {keys}, {sql} from rows group by {keys}", rows)],
        "Polars": lambda: [frame.group_by(list(key)).agg(polars).to_arrow()],
    }


def sort(rows: pa.Table, key: Sequence[str]) -> Ways[pa.Table]:
    frame = _frame(rows)
    return {
        "Arrow": lambda: [rows.sort_by([(name, "ascending") for name in key])],
        "DuckDB": lambda: [_duckdb(f"from rows order by {', '.join(key)}", rows)],
        "Polars": lambda: [frame.sort(list(key)).to_arrow()],
    }


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _duckdb(sql: str, rows: pa.Table) -> pa.Table:
    with duckdb.connect() as database:
        database.register("rows", rows)
        return database.sql(sql).to_arrow_table()


def encode_parts(rows: pa.Table, files: int) -> Ways[memoryview]:
    """Encode so many Parquet files, as mrflight compresses them: by zstd of level 1."""
    size = max(1, -(-rows.num_rows // files))
    parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    frames = list(map(_frame, parts))

    def arrow(part: pa.Table, dictionary: bool) -> memoryview:
        out = pa.BufferOutputStream()
        pq.write_table(
            part,
            out,
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionary,
            store_decimal_as_integer=True,
        )
        return memoryview(out.getvalue())

    def polars(part: pl.DataFrame) -> memoryview:
        out = io.BytesIO()
        part.write_parquet(out, compression="zstd", compression_level=1)
        return out.getbuffer()

    return {
        "Arrow": lambda: (arrow(part, True) for part in parts),
        "Arrow, no dictionaries": lambda: (arrow(part, False) for part in parts),
        "Polars": lambda: map(polars, frames),
    }


def write(parts: Sequence[memoryview], folder: Path) -> Ways[None]:
    def write_file(number: int, part: memoryview) -> None:
        with (folder / str(number)).open("wb", buffering=0) as file:
            file.write(part)
            os.fsync(file.fileno())

    return {"write, fsync": lambda: map(write_file, range(len(parts)), parts)}


def commit(schema: pa.Schema, folder: Path) -> Ways[None]:
    from deltalake import write_deltalake

    names = (str(folder / f"table{number}") for number in range(1000))
    return {"delta-rs": lambda: [write_deltalake(next(names), schema.empty_table())]}


def query(sql: str, folder: Path) -> Ways[pa.Table]:
    """Run a query on the Parquet files of its tables, one file each."""
    import datafusion

    def duck() -> pa.Table:
        with duckdb.connect() as database:
            for path in folder.glob("*.parquet"):
                database.execute(f"create view {path.stem} as from '{path}'")
            return database.sql(sql).to_arrow_table()

    def fusion() -> pa.Table:
        context = datafusion.SessionContext()
        for path in folder.glob("*.parquet"):
            context.register_parquet(path.stem, str(path))
        return context.sql(sql).to_arrow_table()

    return {"DataFusion": lambda: [fusion()], "DuckDB": lambda: [duck()]}
