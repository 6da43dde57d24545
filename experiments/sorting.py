"""What it costs to order rows and to place them in ranges: one core, beside Arrow, NumPy, Polars.

    python -m experiments.sorting [--rows N] [--batch-rows N] [--rounds N] [--out FOLDER]

- ``sort``: the order of all rows by their key.
- ``ranges``: the range of each row of a batch, of 100 ranges. Arrow's way sorts the batch with the
  boundaries; NumPy's looks each row up among them, where the key is one number.
- ``first``: the first hundred rows, batch by batch. Arrow's way is select_k_unstable, for each
  batch and then for what is left.

All ways get the same rows and take turns in every round, after a round that does not count. Every
answer is compared with Arrow's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

os.environ["POLARS_MAX_THREADS"] = "1"  # read when it is imported

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from experiments import machine
from mrflight.compute import kernel
from mrflight.compute.sorting import sort_indices
from mrflight.config.sort_key import SortKey, ascending
from mrflight.shuffle.client.range_partitioner import RangePartitioner, choose_boundaries
from mrflight.tasks.operators.top_k import TopK

RANGES = 100
LIMIT = 100
SAMPLED = 10_000

Answer = list[int]
Way = Callable[["Input"], Answer]


@dataclass(frozen=True)
class Input:
    table: pa.Table
    """The key, and the number of each row in ``row``."""
    batches: list[pa.RecordBatch]
    boundaries: pa.RecordBatch
    frame: pl.DataFrame

    @property
    def keys(self) -> tuple[SortKey, ...]:
        return ascending(self.table.column_names[:-1])

    @property
    def arrow_keys(self) -> list[tuple[str, str]]:
        return [(key.column, "ascending") for key in self.keys]


def tables(rows: int) -> dict[str, pa.Table]:
    """Lineitem's ship date and order key, and other keys; no two rows have the same."""
    random = np.random.default_rng(1)
    days = pa.array(random.integers(8036, 10562, rows).astype(np.int32)).view(pa.date32())
    order_keys = pa.array(random.permutation(6 * rows)[:rows])
    numbers = random.permutation(2**30)[:rows] if rows > 2**20 else random.permutation(2**21)[:rows]
    texts = pa.array([f"www.s{number:09}.com"[number % 11 :] + f"{number}" for number in numbers])
    keys = {
        "date, int64": {"d": days, "k": order_keys},
        "double": {"x": pa.array(random.random(rows))},
        "int64, int64": {
            "a": pa.array(random.integers(-(2**62), 2**62, rows) // 1000 * 1000),
            "b": pa.array(random.integers(-(2**62), 2**62, rows)),
        },
        "8 to 25 bytes": {"s": texts},
    }
    return {name: pa.table({**columns, "row": np.arange(rows)}) for name, columns in keys.items()}


def make_input(table: pa.Table, batch_rows: int) -> Input:
    keys = ascending(table.column_names[:-1])
    sample = table.take(np.random.default_rng(2).integers(0, len(table), SAMPLED))
    boundaries = choose_boundaries(sample, keys, RANGES)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return Input(table, table.to_batches(max_chunksize=batch_rows), boundaries, frame)


def sort_mrflight(data: Input) -> Answer:
    return sort_indices(data.table, data.keys).to_numpy()


def sort_arrow(data: Input) -> Answer:
    return pc.sort_indices(data.table, sort_keys=data.arrow_keys).to_numpy()


def sort_polars(data: Input) -> Answer:
    names = data.table.column_names[:-1]
    return data.frame.select(pl.arg_sort_by(names)).to_series().to_numpy()


def ranges_mrflight(data: Input) -> Answer:
    placing = RangePartitioner(data.keys, data.boundaries, RANGES)
    return np.concatenate([placing.ids(batch).to_numpy() for batch in data.batches])


def ranges_arrow(data: Input) -> Answer:
    ids = []
    for batch in data.batches:
        keys = batch.select(data.boundaries.schema.names)
        both = pa.Table.from_batches([data.boundaries, keys])
        order = pc.sort_indices(both, sort_keys=data.arrow_keys).to_numpy()
        is_row = order >= data.boundaries.num_rows
        placed = np.empty(batch.num_rows, np.int32)
        placed[order[is_row] - data.boundaries.num_rows] = np.cumsum(~is_row)[is_row]
        ids.append(placed)
    return np.concatenate(ids)


def ranges_numpy(data: Input) -> Answer:
    cuts = data.boundaries.column(0).to_numpy()
    found = [np.searchsorted(cuts, batch.column(0).to_numpy(), "right") for batch in data.batches]
    return np.concatenate(found)


def first_mrflight(data: Input) -> Answer:
    sent = TopK(LIMIT, data.keys).combiner(2**26).combine(data.batches)
    return pa.Table.from_batches(sent)["row"].to_numpy()


def first_arrow(data: Input) -> Answer:
    def picked(rows: pa.RecordBatch | pa.Table) -> pa.Table:
        best = pc.select_k_unstable(rows, LIMIT, sort_keys=data.arrow_keys)
        return pa.table(rows.take(best))

    return picked(pa.concat_tables(map(picked, data.batches)))["row"].to_numpy()


STEPS: dict[str, dict[str, Way]] = {
    "sort": {"arrow": sort_arrow, "mrflight": sort_mrflight, "polars": sort_polars},
    "ranges": {"arrow": ranges_arrow, "mrflight": ranges_mrflight, "numpy": ranges_numpy},
    "first": {"arrow": first_arrow, "mrflight": first_mrflight},
}


def measure(step: str, kind: str, data: Input, rounds: int) -> dict[str, float]:
    """Nanoseconds per row of each way, the median of the rounds."""
    ways = dict(STEPS[step])
    if kind != "double":
        ways.pop("numpy", None)
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        expected = ways["arrow"](data)
        for way in sorted(ways, reverse=bool(number % 2)):
            started = time.perf_counter()
            answer = ways[way](data)
            seconds = time.perf_counter() - started
            if not np.array_equal(answer, expected):
                raise RuntimeError(f"{way} does not come to Arrow's answer: {step} of {kind}")
            if number:
                took[way].append(seconds)
    rows = data.table.num_rows
    return {way: statistics.median(seconds) / rows * 1e9 for way, seconds in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-rows", type=int, default=2**17)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("experiments/.work/sorting"))
    options = parser.parse_args()
    description = machine.description()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    cells: dict[str, dict[str, dict[str, float]]] = {step: {} for step in STEPS}
    for kind, table in tables(options.rows).items():
        data = make_input(table, options.batch_rows)
        for step in STEPS:
            cells[step][kind] = measure(step, kind, data, options.rounds)
            told = ", ".join(f"{way} {ns:.1f}" for way, ns in cells[step][kind].items())
            print(f"{step} of {kind}, ns a row: {told}", flush=True)
    settings = {name: getattr(options, name) for name in ("rows", "batch_rows", "rounds")}
    result = {
        "machine": description,
        "packages": {"numpy": np.__version__, "polars": pl.__version__, "arrow": pa.__version__},
        "kernel": kernel.implementation,
        **settings,
        "ns_per_row": cells,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sorting.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
