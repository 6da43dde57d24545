"""The ways of `experiments.kernel` to do each step with the same batches, on one thread."""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.shuffle.client.partition_buffers import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    PartitionBuffers,
    SlicedBuffers,
    partition_buffers,
)

UNBOUNDED = 2**30

STREAMED = 8
"""The number of times that a stream gets all batches. Its buffers are then reused."""

Batches = list[pa.RecordBatch]
Counts = dict[int, int]
Way = Callable[["Input"], Counts]


@dataclass(frozen=True)
class Input:
    """The batches, and the values that each way may compute from them beforehand."""

    key: list[str]
    batches: Batches
    partitions: int
    ids: list[pa.Array]
    frames: list[pl.DataFrame]
    """The batches with the partition of each row in ``id``."""
    tables: list[pd.DataFrame]


def keys(rows: int, seed: int) -> dict[str, dict[str, pa.Array]]:
    """Return the key columns by kind of key."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 10**9, rows)
    digits = np.char.zfill(numbers.astype("U"), 9)
    short = np.char.add(np.char.add("www.s", digits), ".com")
    long = np.char.add(short, "/" + "path/" * 20)
    lengths = random.integers(8, 19, rows)
    mixed = [text[-length:] for text, length in zip(short.tolist(), lengths, strict=True)]
    return {
        "int64": {"k": pa.array(numbers)},
        "8 to 18 bytes": {"k": pa.array(mixed)},
        "119 bytes": {"k": pa.array(long)},
        "int64, 18 bytes": {"k": pa.array(numbers % 1000), "l": pa.array(short)},
    }


def make_batches(kind: str, rows: int, batch_rows: int) -> tuple[list[str], Batches]:
    """Return the names of the key columns, and batches with a float and an integer in addition."""
    random = np.random.default_rng(1)
    columns = keys(rows, 2)[kind]
    payload = {"x": pa.array(random.random(rows)), "n": pa.array(random.integers(0, 99, rows))}
    table = pa.table({**columns, **payload})
    return list(columns), table.to_batches(max_chunksize=batch_rows)


def make_input(key: list[str], batches: Batches, partitions: int) -> Input:
    ids = [kernel.partition_ids(columns(batch, key), partitions) for batch in batches]
    placed = [batch.append_column("id", id_) for batch, id_ in zip(batches, ids, strict=True)]
    frames = [pl.from_arrow(batch) for batch in placed]
    tables = [batch.to_pandas(types_mapper=_arrow_strings) for batch in placed]
    return Input(key, batches, partitions, ids, frames, tables)


def _arrow_strings(type_: pa.DataType) -> pd.ArrowDtype | None:
    return pd.ArrowDtype(type_) if pa.types.is_string(type_) else None


def columns(batch: pa.RecordBatch, key: list[str]) -> list[pa.Array]:
    return [batch.column(name) for name in key]


# Hash


def hash_mrflight(data: Input) -> Counts:
    for batch in data.batches:
        kernel.hash_rows(columns(batch, data.key))
    return {}


def hash_polars(data: Input) -> Counts:
    for frame in data.frames:
        frame.select(data.key).hash_rows()
    return {}


def hash_pandas(data: Input) -> Counts:
    for table in data.tables:
        pd.util.hash_pandas_object(table[data.key], index=False)
    return {}


# Place


def place_mrflight(data: Input) -> Counts:
    for batch in data.batches:
        ids = kernel.partition_ids(columns(batch, data.key), data.partitions)
        kernel.order_by_partition(ids, data.partitions)
    return {}


def order_mrflight(data: Input) -> Counts:
    for ids in data.ids:
        kernel.order_by_partition(ids, data.partitions)
    return {}


def place_numpy(data: Input) -> Counts:
    for ids in data.ids:
        np.argsort(ids.to_numpy(), kind="stable")
    return {}


def place_numpy_narrow(data: Input) -> Counts:
    """Order 16-bit ids, which NumPy sorts by radix."""
    for ids in data.ids:
        np.argsort(ids.to_numpy().astype(np.uint16), kind="stable")
    return {}


# Partition


def partition_mrflight(data: Input) -> Counts:
    """Partition by key, the hash included."""
    ids = (kernel.partition_ids(columns(b, data.key), data.partitions) for b in data.batches)
    return _buffered(data, ids)


def partition_by_id_mrflight(data: Input) -> Counts:
    return _buffered(data, iter(data.ids))


def _buffered(data: Input, ids: Iterator[pa.Array]) -> Counts:
    buffers = partition_buffers(data.batches[0].schema, data.partitions, UNBOUNDED, UNBOUNDED)
    for batch, id_ in zip(data.batches, ids, strict=True):
        assert not list(buffers.add(batch, id_))
    return {partition: rows.num_rows for partition, rows in buffers.take_all()}


def partition_by_id_slices(data: Input) -> Counts:
    """Partition without the kernel's scatter: take, slice and concatenate."""
    buffers = SlicedBuffers(data.partitions, UNBOUNDED, UNBOUNDED)
    for batch, id_ in zip(data.batches, data.ids, strict=True):
        assert not list(buffers.add(batch, id_))
    return {partition: rows.num_rows for partition, rows in buffers.take_all()}


def partition_by_id_polars(data: Input) -> Counts:
    return _polars(data, data.frames)


def partition_polars(data: Input) -> Counts:
    """Partition by key: hash modulo partitions."""
    spread = pl.struct(data.key).hash() if len(data.key) > 1 else pl.col(data.key[0]).hash()
    spread = (spread % data.partitions).cast(pl.Int32)
    return _polars(data, [frame.with_columns(id=spread) for frame in data.frames])


def _polars(data: Input, frames: list[pl.DataFrame]) -> Counts:
    whole = pl.concat(frames, rechunk=False)
    parts = whole.partition_by("id", maintain_order=True, include_key=False, as_dict=True)
    return {int(key[0]): part.height for key, part in parts.items()}


def partition_by_id_pandas(data: Input) -> Counts:
    """Group by id, and materialize each group."""
    whole = pd.concat(data.tables, ignore_index=True)
    return {int(key): len(part) for key, part in whole.groupby("id", sort=False)}


def partition_by_id_numpy(data: Input) -> Counts:
    """Order the ids by a stable argsort, and take the rows in pandas, as NumPy has no strings."""
    whole = pd.concat(data.tables, ignore_index=True)
    ids = whole["id"].to_numpy()
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    ordered = whole.take(order)
    ends = np.cumsum(np.bincount(ids, minlength=data.partitions))
    starts = ends - np.bincount(ids, minlength=data.partitions)
    parts = ((p, ordered.iloc[starts[p] : ends[p]]) for p in range(data.partitions))
    return {partition: len(part) for partition, part in parts if len(part)}


# Stream


def stream_mrflight(data: Input) -> Counts:
    return _streamed(data, partition_buffers(data.batches[0].schema, data.partitions))


def stream_slices(data: Input) -> Counts:
    return _streamed(data, SlicedBuffers(data.partitions, BLOCK_BYTES, BUFFER_BYTES))


def _streamed(data: Input, buffers: PartitionBuffers) -> Counts:
    counts: Counts = Counter()
    for _ in range(STREAMED):
        for batch, ids in zip(data.batches, data.ids, strict=True):
            for partition, block in buffers.add(batch, ids):
                counts[partition] += block.num_rows
    for partition, block in buffers.take_all():
        counts[partition] += block.num_rows
    return counts


@dataclass(frozen=True)
class Step:
    """A step: ways that do the same, and the pairs of which ratios are taken."""

    ways: dict[str, Way]
    ratios: tuple[tuple[str, str], ...]
    moves_rows: bool = False
    repeats: int = 1
    """The number of times that a way processes all rows."""


STEPS = {
    "hash": Step(
        {"mrflight": hash_mrflight, "polars": hash_polars, "pandas": hash_pandas},
        (("mrflight", "polars"), ("mrflight", "pandas")),
    ),
    "place": Step(
        {
            "mrflight, from the hash on": place_mrflight,
            "mrflight by id": order_mrflight,
            "numpy argsort by id": place_numpy,
            "numpy argsort by id of 16 bits": place_numpy_narrow,
        },
        (
            ("mrflight by id", "numpy argsort by id"),
            ("mrflight by id", "numpy argsort by id of 16 bits"),
        ),
    ),
    "partition": Step(
        {
            "mrflight by key": partition_mrflight,
            "polars by key": partition_polars,
            "mrflight by id": partition_by_id_mrflight,
            "pyarrow take and slices by id": partition_by_id_slices,
            "polars partition_by by id": partition_by_id_polars,
            "pandas groupby by id": partition_by_id_pandas,
            "numpy argsort, pandas take by id": partition_by_id_numpy,
        },
        (
            ("mrflight by key", "polars by key"),
            ("mrflight by id", "polars partition_by by id"),
            ("mrflight by id", "pandas groupby by id"),
            ("mrflight by id", "numpy argsort, pandas take by id"),
        ),
        moves_rows=True,
    ),
    "stream": Step(
        {"mrflight by id": stream_mrflight, "pyarrow take and slices by id": stream_slices},
        (("mrflight by id", "pyarrow take and slices by id"),),
        moves_rows=True,
        repeats=STREAMED,
    ),
}
