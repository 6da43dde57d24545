"""Run one engine once, and find out how the run ended."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments import timed_process
from experiments.comparison import checks, engines
from experiments.oracle import WrongResultError

FINISHED = "finished"
OUT_OF_TIME = "out of time"
OUT_OF_MEMORY = "out of memory"
WRONG = "wrong result"
FAILED = "failed"

_SAYS_OUT_OF_MEMORY = re.compile(
    r"out.?of.?memory|MemoryError|Resources exhausted|KilledWorker|bad_alloc|memory limit"
    r"|not enough memory|OutOfMemory|memory allocation of \d+|System memory \d+ must be at least"
    r"|minimum allowed is \d+ bytes|is too little for \d+ workers",
    re.IGNORECASE,
)
_TOLD_CHARACTERS = 2000

Run = dict[str, Any]
"""A row of peers.json: case, engine, round, outcome, figures, and the last output of a failed run.
"""


def run(
    engine: str,
    assignment: engines.Assignment,
    interpreters: engines.Interpreters,
    limit_s: float,
    oracle: checks.Oracle,
) -> Run:
    """Run ``engine`` in the empty folder of ``assignment``, and check its result."""
    words = engines.command(engine, assignment, interpreters)
    ended, timed = measured(words, limit_s)
    case, cap = assignment.case.name, assignment.memory_bytes
    run: Run = {"case": case, "engine": engine, **ended, "job_s": None, "memory_cap_bytes": cap}
    if run["outcome"] != FINISHED:
        return run
    try:
        oracle.check(assignment.result, engine)
    except WrongResultError as wrong:
        return run | {"outcome": WRONG, "said": str(wrong)}
    return run | {"job_s": engines.job_seconds(engine, timed.stdout)}


def measured(words: Sequence[str], limit_s: float) -> tuple[Run, timed_process.Timed]:
    """Run a command line, and return how it ended, with its figures, and what it printed."""
    os.sync()  # so that data of an earlier run is not written during this one
    started = datetime.now(UTC)
    timed = timed_process.measure(words, limit_s)
    run: Run = {
        "started": started.isoformat(timespec="seconds"),
        "outcome": _outcome(timed),
        "wall_s": timed.wall_s,
        "cpu_s": timed.cpu_s,
        "peak_pss_bytes": timed.peak_pss_bytes,
        "peak_rss_bytes": timed.peak_rss_bytes,
    }
    if run["outcome"] != FINISHED:
        run["said"] = timed.stderr[-_TOLD_CHARACTERS:]
    return run, timed


def _outcome(timed: timed_process.Timed) -> str:
    if timed.exit_code is None:
        return OUT_OF_TIME
    if timed.exit_code == 0:
        return FINISHED
    killed = timed.exit_code == -signal.SIGKILL
    return OUT_OF_MEMORY if killed or _SAYS_OUT_OF_MEMORY.search(timed.stderr) else FAILED


def in_turn(engines: Sequence[str], number: int) -> list[str]:
    """Return the engines in the order of a round: another one is first in each."""
    first = number % len(engines)
    return [*engines[first:], *engines[:first]]


def empty_folder(work: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return an empty folder for one run.

    Its path is short, since unix sockets are created in it.
    """
    return tempfile.TemporaryDirectory(dir=work, prefix="peer-", ignore_cleanup_errors=True)
