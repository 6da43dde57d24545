"""Run the clicks job on Ray and on local processes.

    python -m experiments.executors [--rows N,...] [--rounds N] [--data FOLDER] [--out FOLDER]

A Ray cluster of this machine with all its cores has been started before; a job's workers and
servers are its actors. Each run is a process of its own, measured from its start to its end. The
executors take turns, and each round begins with the other one. Every table is compared with
DuckDB's answer.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from experiments import clicks_fingerprint, datasets, machine, mrflight_job, report
from experiments.datasets import WORK

FILES = 10
STAGES = ("start", "map", "reduce", "commit")

RAY = """
import sys, ray
ray.init(
    address="local", num_cpus=int(sys.argv[2]), num_gpus=0, include_dashboard=False,
    log_to_driver=False, logging_level="ERROR", object_store_memory=80 << 20, _temp_dir=sys.argv[1],
)
print("at", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class Ray(NamedTuple):
    """A running Ray cluster. Its processes are below ``process``."""

    address: str
    process: psutil.Process


@contextmanager
def a_ray() -> Iterator[Ray]:
    """Start a Ray cluster that ends with the block."""
    folder = tempfile.mkdtemp(prefix="mrfr")  # short, for the path of a socket
    command = [sys.executable, "-c", RAY, folder, str(machine.cores())]
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",  # for the jobs as well, and against other access
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
    }
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield Ray(process.stdout.readline().split()[-1], psutil.Process(process.pid))
            process.communicate()  # which closes its stdin
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(command: list[str]) -> tuple[float, dict[str, Any]]:
    """Run a driver, and return its seconds from start to end and its report.

    `timed_process` is not used, since it ends everything that starts below this process meanwhile,
    Ray's processes too.
    """
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - started, json.loads(done.stdout.splitlines()[-1])


def page(runs: list[dict[str, Any]]) -> str:
    """Return the medians by executor, and the ratios by round."""
    lines = ["| rows | executor | s | " + " | ".join(f"{name}, s" for name in STAGES) + " |"]
    lines.append("|" + "---|" * (len(STAGES) + 3))
    for rows in dict.fromkeys(run["rows"] for run in runs):
        of = {
            name: [run for run in runs if (run["rows"], run["executor"]) == (rows, name)]
            for name in ("local", "ray")
        }
        for name, found in of.items():
            figures = [[run["wall_s"] for run in found]]
            figures += [[run["seconds"][stage] for run in found] for stage in STAGES]
            cells = " | ".join(f"{statistics.median(figure):.2f}" for figure in figures)
            lines.append(f"| {rows:,} | {name} | {cells} |")
        ratios = [b["wall_s"] / a["wall_s"] for a, b in zip(*of.values(), strict=True)]
        ratio = report.median_and_range(ratios)
        lines.append(f"| {rows:,} | ray / local | {ratio} |" + " |" * len(STAGES))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--rows", type=numbers, default=[1_000_000, 20_000_000, 100_000_000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "executors")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with a_ray() as ray, tempfile.TemporaryDirectory(prefix="executors-") as folder:
        settings = {
            "local": ["cluster.executor=local"],
            "ray": ["cluster.executor=ray", f"cluster.ray_address={ray.address}"],
        }
        for rows in options.rows:
            files = datasets.generate(datasets.DataSet("unique", rows, FILES), options.data)
            datasets.warm(files)
            right = clicks_fingerprint.of_visits(files)
            for number in range(options.rounds):
                for executor in sorted(settings, reverse=number % 2 == 1):
                    table = Path(folder, "out")
                    wall_s, result = run(mrflight_job.command(files, table, settings[executor]))
                    clicks_fingerprint.check(table, right, f"{rows:,} rows, {executor}")
                    shutil.rmtree(table)
                    figures = {"wall_s": wall_s, "seconds": result["seconds"], "round": number}
                    runs.append({"rows": rows, "executor": executor} | figures)
                    line = f"{rows:,} {executor} {wall_s:.2f} s {result['seconds']}"
                    print(line, file=sys.stderr, flush=True)
    report.write(options.out, "executors", {"runs": runs}, page(runs))


if __name__ == "__main__":
    main()
