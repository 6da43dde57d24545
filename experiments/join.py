"""Measure the time and memory of a join by mrflight, DataFusion and Arrow on one core.

    python -m experiments.join [--orders 1500000] [--rounds 3] [--keys "int64 sorted"]

Orders are joined with about four times as many lines by a key of int64 or of strings, which is
sorted or not. Each case runs in a process of its own. Processor seconds are the least of the
rounds, and the growth is the peak resident memory less that before the first round. Results are
counted and dropped. The report also has what SQL costs a process once: loading DataFusion, the
first query, and one more.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from experiments import report
from experiments.datasets import REPOSITORY, WORK
from mrflight.compute.sql.map import SqlMap
from mrflight.system.lazy_pandas import lazy_pandas
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.hash_join import How, Join, join_tables

BATCH_ROWS = 2**16
LARGE = 2**40

PIECES_BYTES = 8 * 2**20
"""The size of a grace partition; 1.5 million orders are 46 MiB."""

Tables = tuple[pa.Table, pa.Table]


def tables(orders: int, kind: str, order: str) -> Tables:
    """Return orders and their lines, with 24 and 32 bytes of other columns."""
    random = np.random.default_rng(1)
    keys = np.arange(orders) * 4 + 1
    lines = np.repeat(keys, random.integers(1, 8, orders))
    if order == "shuffled":
        keys, lines = random.permutation(keys), random.permutation(lines)
    made = []
    for name, column, numbers in (("o", keys, 3), ("l", lines, 4)):
        array = pa.array(column)
        if kind == "strings":
            array = array.cast(pa.string())
        values = {f"{name}{i}": random.random(len(column)) for i in range(numbers)}
        made.append(pa.table({f"{name}key": array, **values}))
    return made[0], made[1]


def ours(how: How, rows_bytes: int) -> Callable[[Tables], int]:
    def run(both: Tables) -> int:
        orders, lines = (iter(table.to_batches(max_chunksize=BATCH_ROWS)) for table in both)
        plan = Join(how, ("lkey",), ("okey",)).plan(both[1].schema, both[0].schema)
        with (
            tempfile.TemporaryDirectory() as folder,
            ScratchFolder("join", Path(folder)) as scratch,
        ):
            return sum(map(len, join_tables(plan, lines, orders, rows_bytes, scratch)))

    return run


def by_datafusion(both: Tables) -> int:
    from datafusion import SessionConfig, SessionContext

    session = SessionContext(SessionConfig().with_target_partitions(1))
    for name, table in zip(("orders", "lines"), both, strict=True):
        session.register_record_batches(name, [table.to_batches(max_chunksize=BATCH_ROWS)])
    rows = session.sql("select * from lines join orders on lkey = okey")
    return sum(part.to_pyarrow().num_rows for part in rows.execute_stream())


def by_arrow(both: Tables) -> int:
    orders, lines = both
    return len(lines.join(orders, "lkey", "okey", join_type="inner", use_threads=False))


CASES: dict[str, Callable[[Tables], int]] = {
    "mrflight": ours("inner", LARGE),
    "mrflight full": ours("full", LARGE),
    "mrflight semi": ours("semi", LARGE),
    "mrflight in pieces": ours("inner", PIECES_BYTES),
    "datafusion": by_datafusion,
    "arrow": by_arrow,
}


def measure(case: str, orders: int, kind: str, order: str, rounds: int) -> dict[str, object]:
    """Measure a case in this process."""
    pa.set_cpu_count(1)
    both = tables(orders, kind, order)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, rows = [], 0
    for _ in range(rounds):
        start = time.process_time()
        rows = CASES[case](both)
        seconds.append(time.process_time() - start)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"rows": rows, "seconds": min(seconds), "growth_mib": growth / 1024}


def first_queries() -> dict[str, float]:
    """Return the wall seconds that SQL takes in a process that has only loaded Arrow."""
    lazy_pandas()  # as a worker has it
    rows = pa.record_batch({"k": range(1000)})
    query = SqlMap("select k + 1 as k from rows where k > 3", "rows", "inputs.rows.sql")
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        list(query.stream(iter([rows])))
        seconds.append(time.perf_counter() - start)
    return {"first_query_s": seconds[0], "second_query_s": seconds[1]}


def in_a_process(*options: object) -> dict[str, object]:
    command = [sys.executable, "-m", "experiments.join", *map(str, options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orders", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", default="int64 sorted,int64 shuffled,strings shuffled")
    parser.add_argument("--engines", default=",".join(CASES))
    parser.add_argument("--out", type=Path, default=WORK / "join")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--first-queries", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_queries:
        print(json.dumps(first_queries()))
        return
    if options.case:
        case, kind, order = options.case
        print(json.dumps(measure(case, options.orders, kind, order, options.rounds)))
        return
    lines = ["| keys | order | engine | seconds | growth, MiB |", "| --- | --- | --- | --- | --- |"]
    figures: dict[str, object] = {}
    sizes = ("--orders", options.orders, "--rounds", options.rounds)
    for kind, order in map(str.split, options.keys.split(",")):
        counts = set()
        for case in options.engines.split(","):
            found = in_a_process(*sizes, "--case", case, kind, order)
            figures[f"{kind}, {order}, {case}"] = found
            if "semi" not in case and "full" not in case:
                counts.add(found["rows"])
            lines.append(
                f"| {kind} | {order} | {case} | {found['seconds']:.2f} "
                f"| {found['growth_mib']:.0f} |"
            )
            print(lines[-1], file=sys.stderr)
        assert len(counts) == 1, counts
    figures["sql"] = in_a_process("--first-queries")
    lines += ["", f"SQL in a process: {json.dumps(figures['sql'])}"]
    report.write(options.out, "join", figures, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
