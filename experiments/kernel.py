"""Measure how fast rows are hashed, placed and moved to their partitions on one core.

    python -m experiments.kernel [--rows N] [--batch-rows N] [--rounds N] [--out FOLDER]

There are four steps, on one core and with one thread each:

- ``hash``: the 64-bit hash of each row's key.
- ``place``: the partition of each row, and the order of the rows by partition.
- ``partition``: batches become one contiguous batch per partition with all its rows. The kernel
  gets
  new memory for them from the system.
- ``stream``: batches become blocks of 1 MiB that are released, with 64 MiB for all partitions, as a
  writer does before it sends. All batches come several times, so that memory is reused.

mrflight, Polars, pandas and NumPy get the same batches and take turns in every round, in rotating
order, after a round that does not count. It is checked that the rows per partition are the same.
Ratios are taken by round.

The other libraries hash with their own functions. So only the ways ``by id``, which get the
partition of each row, move exactly the same rows. Polars keeps strings above 12 bytes as views of
16 bytes and moves only the views: its partitions share the bytes of the strings.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from experiments import kernel_report, kernel_ways, machine
from experiments.datasets import WORK
from experiments.kernel_report import Cell
from experiments.kernel_ways import STEPS, Counts, Input, Step
from mrflight.compute import kernel

PARTITIONS = (20, 200, 2000)


def check(data: Input, step: Step, way: str, counts: Counts) -> None:
    """Check the number of rows of each partition.

    If another library hashed the rows, only the total is checked.
    """
    ids = np.concatenate([ids.to_numpy() for ids in data.ids])
    numbers, rows = np.unique(ids, return_counts=True)
    expected = dict(zip(numbers.tolist(), (rows * step.repeats).tolist(), strict=True))
    same = sum(counts.values()) == len(ids) if way == "polars by key" else counts == expected
    if not same:
        raise RuntimeError(f"{way} lost or misplaced rows, {data.partitions} partitions")


def measure(step: Step, data: Input, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by way."""
    seconds: dict[str, list[float]] = {way: [] for way in step.ways}
    ways = list(step.ways.items())
    for number in range(rounds + 1):
        first = number % len(ways)
        for way, function in ways[first:] + ways[:first]:
            started = time.perf_counter()
            counts = function(data)
            took = time.perf_counter() - started
            if number:
                seconds[way].append(took)
            if step.moves_rows:
                check(data, step, way, counts)
    return seconds


def run(rows: int, batch_rows: int, rounds: int) -> list[Cell]:
    cells: list[Cell] = []
    for kind in kernel_ways.keys(1, 0):
        key, batches = kernel_ways.make_batches(kind, rows, batch_rows)
        for partitions in PARTITIONS:
            data = kernel_ways.make_input(key, batches, partitions)
            for name, step in STEPS.items():
                if name == "hash" and partitions != PARTITIONS[0]:
                    continue
                for way, seconds in measure(step, data, rounds).items():
                    cell = Cell(name, kind, partitions, way, rows * step.repeats, seconds)
                    cells.append(cell)
                    print(f"{name}, {kind}, {partitions}, {way}: {cell.text}", flush=True)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch-rows", type=int, default=2**18)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=WORK / "kernel")
    options = parser.parse_args()
    description = machine.description()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    cells = run(options.rows, options.batch_rows, options.rounds)
    settings = {name: getattr(options, name) for name in ("rows", "batch_rows", "rounds")}
    result = {
        "machine": description,
        "packages": {"pandas": pd.__version__, "numpy": np.__version__},
        "kernel": kernel.implementation,
        **settings,
        "cells": [asdict(cell) for cell in cells],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "kernel.json").write_text(json.dumps(result, indent=1) + "\n")
    conditions = (
        f"{options.rows} rows, batches of {options.batch_rows}, {options.rounds} rounds, 1 core, "
        f"{description['processor']}"
    )
    page = kernel_report.page(cells, conditions)
    (options.out / "kernel.md").write_text(page)
    kernel_report.draw(cells, options.out / "kernel.png")
    print(page)


if __name__ == "__main__":
    main()
