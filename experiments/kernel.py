"""How fast rows are hashed, placed and moved to their partitions: one core, beside others' ways.

    python -m experiments.kernel [--rows N] [--batch-rows N] [--rounds N] [--out FOLDER]

Three steps, in million rows per second (the median of the rounds, in which all
ways take turns), on one core and with one thread each:

- ``hash``: the 64-bit hash of each row's key.
- ``place``: the partition of each row, and the rows in the order of partitions.
- ``partition``: batches into one batch per partition with all its rows,
  contiguous; what a shuffle does before it sends. Every way gets the same
  batches and must come to the same rows per partition, which is checked.

The ways of others hash with their own functions, so that only ``by id``, which is given
the partition of each row, moves the very same rows.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from experiments import machine
from mrflight import kernel
from mrflight.shuffle.partition_buffers import SlicedBuffers, partition_buffers

PARTITIONS = (20, 200, 2000)
UNBOUNDED = 2**30

Batches = list[pa.RecordBatch]
Counts = dict[int, int]
Way = Callable[["Input"], Counts]


@dataclass(frozen=True)
class Input:
    """Batches, and what each way may know of them beforehand."""

    key: list[str]
    batches: Batches
    partitions: int
    ids: list[pa.Array]
    frames: list[pl.DataFrame]
    """With the partition of each row in ``id``."""
    tables: list[pd.DataFrame]


def keys(rows: int, seed: int) -> dict[str, dict[str, pa.Array]]:
    """The columns of each kind of key."""
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
    """The key's columns, with a float and an integer beside them."""
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


def place_numpy(data: Input) -> Counts:
    for ids in data.ids:
        np.argsort(ids.to_numpy(), kind="stable")
    return {}


def place_numpy_narrow(data: Input) -> Counts:
    """16 bits are sorted by radix."""
    for ids in data.ids:
        np.argsort(ids.to_numpy().astype(np.uint16), kind="stable")
    return {}


# Partition


def partition_mrflight(data: Input) -> Counts:
    """By key, from the hash on."""
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
    """As without the kernel's scatter: take, slice, concatenate."""
    buffers = SlicedBuffers(data.partitions, UNBOUNDED, UNBOUNDED)
    for batch, id_ in zip(data.batches, data.ids, strict=True):
        assert not list(buffers.add(batch, id_))
    return {partition: rows.num_rows for partition, rows in buffers.take_all()}


def partition_by_id_polars(data: Input) -> Counts:
    return _polars(data, data.frames)


def partition_polars(data: Input) -> Counts:
    """By key: hash modulo partitions."""
    spread = pl.struct(data.key).hash() if len(data.key) > 1 else pl.col(data.key[0]).hash()
    spread = (spread % data.partitions).cast(pl.Int32)
    return _polars(data, [frame.with_columns(id=spread) for frame in data.frames])


def _polars(data: Input, frames: list[pl.DataFrame]) -> Counts:
    whole = pl.concat(frames, rechunk=False)
    parts = whole.partition_by("id", maintain_order=True, include_key=False, as_dict=True)
    return {int(key[0]): part.height for key, part in parts.items()}


def partition_by_id_pandas(data: Input) -> Counts:
    """Groupby, each group made."""
    whole = pd.concat(data.tables, ignore_index=True)
    return {int(key): len(part) for key, part in whole.groupby("id", sort=False)}


def partition_by_id_numpy(data: Input) -> Counts:
    """A stable argsort, and each column in its order: of pandas, as NumPy has no strings."""
    whole = pd.concat(data.tables, ignore_index=True)
    ids = whole["id"].to_numpy()
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    ordered = whole.take(order)
    ends = np.cumsum(np.bincount(ids, minlength=data.partitions))
    starts = ends - np.bincount(ids, minlength=data.partitions)
    parts = ((p, ordered.iloc[starts[p] : ends[p]]) for p in range(data.partitions))
    return {partition: len(part) for partition, part in parts if len(part)}


STEPS: dict[str, dict[str, Way]] = {
    "hash": {"mrflight": hash_mrflight, "polars": hash_polars, "pandas": hash_pandas},
    "place": {
        "mrflight (from the hash on)": place_mrflight,
        "numpy argsort of ids": place_numpy,
        "numpy argsort of 16-bit ids": place_numpy_narrow,
    },
    "partition": {
        "mrflight by key": partition_mrflight,
        "polars by key": partition_polars,
        "mrflight by id": partition_by_id_mrflight,
        "pyarrow take and slices by id": partition_by_id_slices,
        "polars partition_by by id": partition_by_id_polars,
        "pandas groupby by id": partition_by_id_pandas,
        "numpy argsort, pandas take by id": partition_by_id_numpy,
    },
}


def check(data: Input, way: str, counts: Counts) -> None:
    """The right rows per partition; by key of another's hash, all rows."""
    ids = np.concatenate([ids.to_numpy() for ids in data.ids])
    expected = {int(p): int(n) for p, n in zip(*np.unique(ids, return_counts=True), strict=True)}
    same = sum(counts.values()) == len(ids) if way == "polars by key" else counts == expected
    if not same:
        raise RuntimeError(f"{way} lost or misplaced rows, {data.partitions} partitions")


def measure(step: str, data: Input, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round."""
    seconds: dict[str, list[float]] = {way: [] for way in STEPS[step]}
    for _ in range(rounds):
        for way, function in STEPS[step].items():
            started = time.perf_counter()
            counts = function(data)
            seconds[way].append(time.perf_counter() - started)
            if step == "partition":
                check(data, way, counts)
    return seconds


def run(rows: int, batch_rows: int, rounds: int) -> list[dict[str, object]]:
    cells: list[dict[str, object]] = []
    for kind in keys(1, 0):
        key, batches = make_batches(kind, rows, batch_rows)
        for partitions in PARTITIONS:
            data = make_input(key, batches, partitions)
            for step in STEPS:
                if step == "hash" and partitions != PARTITIONS[0]:
                    continue
                for way, seconds in measure(step, data, rounds).items():
                    cell = {"step": step, "key": kind, "partitions": partitions, "way": way}
                    cells.append({**cell, "seconds": seconds})
                    print(f"{cell}: {rows / statistics.median(seconds) / 1e6:.1f}", flush=True)
    return cells


def table(step: str, cells: list[dict[str, object]], rows: int) -> list[str]:
    """A row per way, a column per key and number of partitions."""
    mine = [cell for cell in cells if cell["step"] == step]
    heads = list(dict.fromkeys((cell["key"], cell["partitions"]) for cell in mine))
    rates = {
        (cell["way"], cell["key"], cell["partitions"]): rows
        / statistics.median(cell["seconds"])  # type: ignore[call-overload]
        / 1e6
        for cell in mine
    }
    named = [f"{key}" if step == "hash" else f"{key}, P={p}" for key, p in heads]
    lines = [f"## {step}", "", f"| million rows/s | {' | '.join(named)} |"]
    lines.append("|---|" + "---:|" * len(heads))
    lines += [
        f"| {way} | " + " | ".join(f"{rates[way, *head]:.1f}" for head in heads) + " |"
        for way in STEPS[step]
    ]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch-rows", type=int, default=2**18)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("experiments/.work/kernel"))
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    cells = run(options.rows, options.batch_rows, options.rounds)
    settings = {name: getattr(options, name) for name in ("rows", "batch_rows", "rounds")}
    result = {
        "machine": machine.description(),
        "packages": {"pandas": pd.__version__, "numpy": np.__version__},
        "kernel": kernel.implementation,
        **settings,
        "cells": cells,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "kernel.json").write_text(json.dumps(result, indent=1) + "\n")
    said = f"{options.rows} rows, batches of {options.batch_rows}, {options.rounds} rounds, 1 core"
    lines = ["# kernel", "", said, ""]
    for step in STEPS:
        lines += table(step, cells, options.rows)
    (options.out / "kernel.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
