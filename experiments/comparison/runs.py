"""Run one engine once, and find out how the run ended."""

from __future__ import annotations

import os
import re
import signal
import tempfile
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
    command = engines.command(engine, assignment, interpreters)
    os.sync()  # so that data of an earlier run is not written during this one
    started = datetime.now(UTC)
    timed = timed_process.measure(command, limit_s)
    outcome = _outcome(timed)
    run: Run = {
        "case": assignment.case.name,
        "engine": engine,
        "started": started.isoformat(timespec="seconds"),
        "outcome": outcome,
        "wall_s": timed.wall_s,
        "job_s": None,
        "cpu_s": timed.cpu_s,
        "peak_pss_bytes": timed.peak_pss_bytes,
        "peak_rss_bytes": timed.peak_rss_bytes,
        "memory_cap_bytes": assignment.memory_bytes,
    }
    if outcome != FINISHED:
        return run | {"said": timed.stderr[-_TOLD_CHARACTERS:]}
    try:
        oracle.check(assignment.result, engine)
    except WrongResultError as wrong:
        return run | {"outcome": WRONG, "said": str(wrong)}
    return run | {"job_s": engines.job_seconds(engine, timed.stdout)}


def _outcome(timed: timed_process.Timed) -> str:
    if timed.exit_code is None:
        return OUT_OF_TIME
    if timed.exit_code == 0:
        return FINISHED
    killed = timed.exit_code == -signal.SIGKILL
    return OUT_OF_MEMORY if killed or _SAYS_OUT_OF_MEMORY.search(timed.stderr) else FAILED


def empty_folder(work: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return an empty folder for one run.

    Its path is short, since unix sockets are created in it.
    """
    return tempfile.TemporaryDirectory(dir=work, prefix="peer-", ignore_cleanup_errors=True)
