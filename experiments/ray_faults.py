"""Measure the cost of a killed worker or data server for the clicks job on Ray.

    python -m experiments.ray_faults [--rows N] [--rounds N] [--data FOLDER] [--out FOLDER]

A Ray cluster of this machine with all its cores has been started before; the job has four data
servers. The process is killed when the job reports that half of its maps are done. The kinds of
faults, and a job without one, take turns in every round. Every table is compared with DuckDB's
answer.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from experiments import clicks_fingerprint, datasets, mrflight_job, report
from experiments.datasets import WORK
from experiments.executors import FILES, Ray, a_ray

KINDS = {"nothing": "", "worker": "ray::MrflightWorker", "data server": "ray::MrflightData"}
SERVERS = 4
MAPS_DONE = re.compile(r"map: (\d+) of (\d+)")


def run(command: list[str], kind: str, ray: Ray) -> dict[str, Any]:
    """Run a job, and kill one of its processes when it reports that half of its maps are done."""
    started = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        lines_of_stderr = []
        is_hit = kind == "nothing"
        for line in job.stderr:
            lines_of_stderr.append(line)
            done = MAPS_DONE.match(line)
            if done and 2 * int(done[1]) >= int(done[2]) and not is_hit:
                everyone = ray.process.children(recursive=True)
                next(each for each in everyone if _title(each).startswith(KINDS[kind])).kill()
                is_hit = True
        stdout = job.stdout.read()
    if job.returncode or not is_hit:
        output = "".join(lines_of_stderr)
        raise RuntimeError(f"the job that lost {kind} ended with {job.returncode}:\n{output}")
    result = json.loads(stdout.splitlines()[-1])
    figures = {name: result[name] for name in ("seconds", "attempts")}
    return {"kind": kind, "wall_s": time.perf_counter() - started, **figures}


def _title(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""


def page(runs: list[dict[str, Any]]) -> str:
    """Return the medians by kind of fault."""
    lines = [
        "| killed | s | more than undisturbed | map attempts | failed |",
        "|---|---|---|---|---|",
    ]
    undisturbed = statistics.median(run["wall_s"] for run in runs if run["kind"] == "nothing")
    for kind in KINDS:
        found = [run for run in runs if run["kind"] == kind]
        wall_s = statistics.median(run["wall_s"] for run in found)
        more = f"{wall_s - undisturbed:.1f} s, {wall_s / undisturbed - 1:.0%}"
        maps, failed = (
            ", ".join(str(run["attempts"][name]) for run in found) for name in ("map", "failed")
        )
        lines.append(f"| {kind} | {wall_s:.2f} | {more} | {maps} | {failed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "ray_faults")
    options = parser.parse_args()
    files = datasets.generate(datasets.DataSet("unique", options.rows, FILES), options.data)
    datasets.warm(files)
    runs: list[dict[str, Any]] = []
    right = clicks_fingerprint.of_visits(files)
    with a_ray() as ray, tempfile.TemporaryDirectory(prefix="ray-faults-") as folder:
        settings = ["cluster.executor=ray", f"cluster.ray_address={ray.address}"]
        settings.append(f"cluster.data_servers={SERVERS}")
        for number in range(options.rounds):
            for kind in KINDS:
                table = Path(folder, f"out{len(runs)}")
                command = mrflight_job.command(files, table, settings)
                runs.append(run(command, kind, ray) | {"round": number})
                clicks_fingerprint.check(table, right, f"killed: {kind}")
                print(f"{number + 1}: {runs[-1]}", file=sys.stderr, flush=True)
    report.write(options.out, "ray_faults", {"rows": options.rows, "runs": runs}, page(runs))


if __name__ == "__main__":
    main()
