"""Measure what the events of a job cost: with none, in memory only, and with a history.

    python -m experiments.events [--rounds 9] [--rows 4000000] [--partitions 1000] [--out FOLDER]

The job groups rows by key in so many partitions. Each round runs it in all three ways, in changing
order, and so does it 20,000 tasks that do nothing, in real workers. Without events nothing is
recorded, and workers do not measure what they do.

Two runs of a job differ by more than events cost, on a machine that others use as well. So the
threads of a driver also measure the processor time that they spend on events themselves, and to it
is added what a worker needs to report an attempt. What a stream of 100,000 attempts costs is
measured beside it, in one process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments import report, timed_process
from experiments.datasets import WORK
from experiments.events_programs import IMPORTS, TASKS, TIMED, WAYS, WITHOUT
from mrflight.events.history import read_view
from mrflight.events.kinds import AttemptEnded, JobBegan, StageBegan, StageEnded
from mrflight.events.recorder import Recorder
from mrflight.runtime.calls import decode_answer, encode_call, run_call
from mrflight.runtime.task_call import TaskCall
from mrflight.runtime.worker import StageSwitch
from mrflight.system.log_label import LogLabel

TIMEOUT_S = 600.0
FILES = 8
_CALLS = 20_000
_BEYOND = 3
"""So many times as many attempts as are recorded one by one are added up."""

JOB = """
[job]
name = "events"
[inputs.rows]
path = "in/*.parquet"
key = ["k"]
[shuffle]
partitions = PARTITIONS
[reduce]
group_by = ["k"]
aggregate = { v = "sum(v)" }
[output]
table = "out"
format = "parquet"
mode = "overwrite"
"""


def write_job(folder: Path, rows: int, partitions: int) -> Path:
    """Write a job and its input."""
    (folder / "in").mkdir()
    random = np.random.default_rng(7)
    for number in range(FILES):
        keys = random.integers(0, rows // 4, rows // FILES)
        table = pa.table({"k": keys, "v": np.arange(len(keys))})
        pq.write_table(table, folder / "in" / f"{number}.parquet")
    job = folder / "job.toml"
    job.write_text(JOB.replace("PARTITIONS", str(partitions)))
    return job


def measure(
    rounds: int, rows: int, partitions: int, tasks: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the core-seconds of each way by round, after one round that is not counted.

    They are those of the job, and those of the tasks that do nothing.
    """
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    of_tasks: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        job = write_job(Path(name), rows, partitions)
        for number in range(rounds + 1):
            shift = number % len(WAYS)
            for way in [*WAYS][shift:] + [*WAYS][:shift]:
                program, options = WAYS[way]
                command = [sys.executable, "-c", program, str(job), "--json", *options]
                timed = timed_process.run(command, TIMEOUT_S)
                result = json.loads(timed.stdout.splitlines()[-1])
                assert result["rows_in"] == rows, result
                path = Path(name) / f"{number}.jsonl"
                words = [str(path)] if options else []
                without = WITHOUT if way == "no events" else ""
                command = [
                    sys.executable,
                    "-c",
                    f"{IMPORTS}\n{without}\n{TASKS}",
                    str(tasks),
                    *words,
                ]
                nothing = timed_process.run(command, TIMEOUT_S)
                if number:
                    seconds[way].append(timed.cpu_s)
                    of_tasks[way].append(nothing.cpu_s)
                if options:
                    assert read_view(path).stages[0].done == tasks
    return seconds, of_tasks


def measure_share(rounds: int, rows: int, partitions: int) -> list[float]:
    """Return the fraction of the core-seconds of a job that its events take, by round."""
    shares = []
    report_s = measure_report()
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        job = write_job(Path(name), rows, partitions)
        for _ in range(rounds):
            command = [sys.executable, "-c", TIMED, str(job), "--json", *WAYS["with a history"][1]]
            timed = timed_process.run(command, TIMEOUT_S)
            attempts = json.loads(timed.stdout.splitlines()[-1])["attempts"]
            spent_s = float(timed.stderr.split()[-1])
            spent_s += report_s * (attempts["map"] + attempts["reduce"])
            shares.append(spent_s / timed.cpu_s)
    return shares


def measure_report() -> float:
    """Return the core-seconds that the report of one attempt takes, in its worker and its driver.

    It is that of a call of nothing, with the report and without.
    """
    label = LogLabel("20261126T061449-7770f567ef0d", "map", "map 12345 (visits, visits/1.parquet)")
    reporting = TaskCall(math.sqrt, label)
    switch = StageSwitch(lambda: None)

    def seconds(function: Callable[[float], object]) -> float:
        began = time.thread_time()
        for _ in range(_CALLS):
            decode_answer(run_call(encode_call(function, (2.0,), {}), switch.before))
        return (time.thread_time() - began) / _CALLS

    return seconds(reporting) - seconds(math.sqrt)


def measure_stream(attempts: int) -> dict[str, float]:
    """Return what so many attempts cost one process: core-seconds, and bytes of the history."""
    beyond = attempts * _BEYOND
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        path = Path(name) / "job.jsonl"
        began = time.process_time()
        with Recorder(max_attempts=attempts) as recorder:
            recorder.record(JobBegan(job_id="j", name="n", version="1", host="h", pid=1))
            recorder.record(StageBegan(stage=0, name="map", tasks=attempts + beyond))
            recorder.write_to(path)
            _record(recorder, 0, attempts)
            first_s = time.process_time() - began
            first_bytes = path.stat().st_size
            _record(recorder, attempts, beyond)
            beyond_s = time.process_time() - began - first_s
            recorder.record(StageEnded(stage=0))
            began = time.process_time()
            size = len(recorder.snapshot()[0])
            snapshot_s = time.process_time() - began
        began = time.process_time()
        view = read_view(path)
        read_s = time.process_time() - began
        assert (view.stages[0].done, view.binned) == (attempts + beyond, beyond)
        return {
            "attempts": attempts,
            "first_us": first_s / attempts * 1e6,
            "beyond_us": beyond_s / beyond * 1e6,
            "first_bytes": first_bytes / attempts,
            "beyond_bytes": (path.stat().st_size - first_bytes) / beyond,
            "read_s": read_s,
            "snapshot_s": snapshot_s,
            "snapshot_bytes": size,
        }


def _record(recorder: Recorder, first: int, count: int) -> None:
    for task in range(first, first + count):
        recorder.record(
            AttemptEnded(
                stage=0,
                task=task,
                name=f"map {task} (visits, visits/day=2026-11-26/part-{task:05d}.parquet)",
                worker=f"worker{task % 64}",
                seconds=0.25,
                cpu_seconds=0.2,
                rows=40_000,
                size_bytes=2**20,
                sent={f"data{server}": 2**16 for server in range(4)},
                memory_bytes=2**27,
            )
        )


def table(seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a table of core-seconds, each way beside that without events."""
    base = seconds["no events"]
    lines = ["| way | median core-s | range | of no events |", "|---|---|---|---|"]
    for way, each in seconds.items():
        ratios = [taken / without for taken, without in zip(each, base, strict=True)]
        lines.append(
            f"| {way} | {statistics.median(each):.2f} | {min(each):.2f} to {max(each):.2f} "
            f"| {report.median_and_range(ratios)} |"
        )
    return lines


def page(
    seconds: Mapping[str, Sequence[float]],
    of_tasks: Mapping[str, Sequence[float]],
    stream: Mapping[str, float],
    shares: Sequence[float],
    tasks: int,
) -> str:
    """Return the report in Markdown."""
    extra = statistics.median(of_tasks["with a history"]) - statistics.median(of_tasks["no events"])
    lines = ["# What the events of a job cost", ""]
    lines += [
        f"Events took {statistics.median(shares):.2%} ({min(shares):.2%} to {max(shares):.2%}) of "
        "the core-seconds of a job, by the clocks of the threads that record them.",
        "",
        *table(seconds),
        "",
        f"{tasks:,} tasks that do nothing, in two workers, where a task with all of its events "
        f"takes {extra / tasks * 1e6:.0f} us more:",
        "",
        *table(of_tasks),
        "",
        f"Of {stream['attempts']:,} attempts each took {stream['first_us']:.1f} us and "
        f"{stream['first_bytes']:.0f} bytes of the history; of {_BEYOND} times as many more, "
        f"which are added up, {stream['beyond_us']:.1f} us and {stream['beyond_bytes']:.1f} bytes. "
        f"To read the history takes {stream['read_s']:.2f} s, and a snapshot "
        f"{stream['snapshot_s']:.2f} s and {stream['snapshot_bytes'] / 2**20:.1f} MiB.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=WORK / "events")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    stream = measure_stream(options.attempts)
    seconds, of_tasks = measure(options.rounds, options.rows, options.partitions, options.tasks)
    shares = measure_share(options.rounds, options.rows, options.partitions)
    figures = {
        "shares": shares,
        "rounds": options.rounds,
        "core_seconds": seconds,
        "core_seconds_of_tasks": of_tasks,
        "stream": stream,
    }
    report.write(
        options.out, "events", figures, page(seconds, of_tasks, stream, shares, options.tasks)
    )


if __name__ == "__main__":
    main()
