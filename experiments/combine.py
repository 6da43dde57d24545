"""What combining costs and saves in a map, and what a bounded reduce takes of memory and time.

    python -m experiments.combine combiner [--rows 2000000] [--json results.json]
    python -m experiments.combine bounds [--mib 2048] [--memory-mib 128] [--json results.json]

``combiner``: nanoseconds of processor time per row, by the number of distinct
keys, for looking and converting or merging, and for what a row costs behind
it: placed, encoded, decoded and grouped. Keys are strings of 18 bytes as short
addresses are, weights are int64.

``bounds``: one process per case reduces a partition that is made batch by
batch, and drops the results. The growth is the most resident memory of the
process less what it had before the first batch.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.config.sort_key import ascending
from mrflight.shuffle.client.partitioners import HashPartitioner
from mrflight.shuffle.wire.block import decode_block, encode_block, ipc_options
from mrflight.tasks.operators.aggregates import Aggregate
from mrflight.tasks.operators.combiner import Combiner
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory

KEY_BYTES = 18
BATCH_ROWS = 40_000
"""About 1 MiB of keys and weights."""

SUM = (Aggregate("clicks", "sum", "weight"),)
DISTINCT = (Aggregate("weights", "count_distinct", "weight"),)

BOUNDS = {
    "few keys": (1000, ReduceSpec(("url",), SUM, combines=True)),
    "one key": (1, ReduceSpec(("url",), SUM, combines=True)),
    "unique keys": (None, ReduceSpec(("url",), SUM, combines=True)),
    "sorted": (None, ReduceSpec(sort_by=ascending(["url"]))),
    "sorted, one key": (1, ReduceSpec(sort_by=ascending(["url"]))),
    "distinct weights of unique keys": (None, ReduceSpec(("url",), DISTINCT)),
    "distinct weights of one key": (1, ReduceSpec(("url",), DISTINCT)),
}
"""For each case the number of distinct keys (None: one for each row) and the reduce."""


@dataclass(frozen=True)
class CombinerResult:
    """Nanoseconds per row of the map's output."""

    distinct_keys: int
    rows_sent_per_row: float
    look_ns: float
    """The nanoseconds per row of the combiner, which decides by itself."""
    merge_ns: float
    """The nanoseconds per row of grouping everything in batches of 256k rows."""
    behind_ns: float
    """The nanoseconds per row that is sent: to place, encode, decode, and group it in a reducer."""


@dataclass(frozen=True)
class BoundsResult:
    case: str
    rows: int
    growth_mib: float
    seconds: float


def batch_of(random: np.random.Generator, rows: int, distinct: int | None) -> pa.RecordBatch:
    """Rows of which ``distinct`` keys are alike, or none."""
    most = 2**62 if distinct is None else distinct
    numbers = random.integers(0, most, rows)
    digits = np.empty((rows, KEY_BYTES), np.uint8)
    for place in range(KEY_BYTES):
        digits[:, place] = ord("a") + numbers % 16
        numbers = numbers // 16
    offsets = np.arange(rows + 1, dtype=np.int32) * KEY_BYTES
    urls = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
    return pa.record_batch({"url": urls, "weight": pa.array(random.integers(0, 2**30, rows))})


def processor_ns(call: Callable[[], object], rows: int) -> float:
    """The least of three tries."""
    times = []
    for _ in range(3):
        start = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - start)
    return round(min(times) / rows, 1)


def measure_combiner(rows: int, distinct: int | None) -> CombinerResult:
    random = np.random.default_rng(1)
    batches = [batch_of(random, BATCH_ROWS, distinct) for _ in range(max(1, rows // BATCH_ROWS))]
    rows = sum(batch.num_rows for batch in batches)
    sent = 0

    def combine() -> None:
        nonlocal sent
        combiner = Combiner(("url",), SUM, 64 * 2**20)
        sent = sum(batch.num_rows for batch in combiner.combine(batches))

    def merge() -> None:
        for start in range(0, len(batches), 6):
            group(pa.Table.from_batches(batches[start : start + 6]), ("url",), SUM)

    def behind() -> None:
        partitioner, options = HashPartitioner(("url",), 20), ipc_options("none")
        received = []
        for batch in batches:
            order, _ = kernel.order_by_partition(partitioner.ids(batch), partitioner.partitions)
            ordered = batch.take(order)
            received.append(decode_block(encode_block([ordered], options)))
        for start in range(0, len(received), 20):
            group(pa.Table.from_batches(received[start : start + 20]), ("url",), SUM)

    look_ns = processor_ns(combine, rows)
    merge_ns, behind_ns = processor_ns(merge, rows), processor_ns(behind, rows)
    return CombinerResult(distinct or rows, round(sent / rows, 4), look_ns, merge_ns, behind_ns)


def measure_bounds(case: str, mib: int, memory_mib: int) -> BoundsResult:
    """In this process, which should be a fresh one."""
    distinct, reduce_spec = BOUNDS[case]
    rows = mib * 2**20 // (KEY_BYTES + 12)
    random = np.random.default_rng(1)
    schema = batch_of(random, 1, distinct).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, BATCH_ROWS):
            yield batch_of(random, min(BATCH_ROWS, rows - start), distinct)

    with tempfile.TemporaryDirectory() as folder:
        _reduce(reduce_spec, schema, iter([batch_of(random, 1000, distinct)]), folder, 2**20)
        before = _resident_bytes()
        start = time.perf_counter()
        _reduce(reduce_spec, schema, batches(), folder, memory_mib * 2**20)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return BoundsResult(case, rows, round((peak - before) / 2**20, 1), round(seconds, 1))


def _reduce(
    reduce_spec: ReduceSpec,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    folder: str,
    memory_bytes: int,
) -> None:
    space = TaskMemory(memory_bytes, Path(folder))
    for _ in reduce_spec.apply(0, schema, batches, space)[1]:
        pass


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("question", choices=["combiner", "bounds"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--memory-mib", type=int, default=128)
    parser.add_argument("--case", choices=BOUNDS, help="this one alone, in this process")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results: list[CombinerResult | BoundsResult] = []
    if given.case:
        result = measure_bounds(given.case, given.mib, given.memory_mib)
        print(json.dumps(asdict(result)))
        return
    if given.question == "combiner":
        for distinct in (10, 1000, 10_000, 30_000, 100_000, None):
            results.append(measure_combiner(given.rows, distinct))
            print(results[-1])
    else:
        for case in BOUNDS:
            results.append(_in_own_process(case, given.mib, given.memory_mib))
            print(results[-1])
    if given.json:
        given.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def _in_own_process(case: str, mib: int, memory_mib: int) -> BoundsResult:
    sizes = ["--mib", str(mib), "--memory-mib", str(memory_mib)]
    command = [sys.executable, "-m", "experiments.combine", "bounds", *sizes, "--case", case]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return BoundsResult(**json.loads(done.stdout))


if __name__ == "__main__":
    main()
