"""Runs the tests that have failed without a reason, many times, on a machine that is hindered.

    python -m tests.support.suite.flakes [--rounds 20]

The tests are those of ``tests/flakes.txt``. A quarter of the rounds has a stall of 3 seconds
wherever a test waits (`tests.support.suite.stall`), a quarter runs beside ten busy processes. Each
round is told, and the first failure of a test with its output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = ROOT / "tests" / "flakes.txt"
STALL_S = 3
BUSY = 10


def main() -> int:
    """Run the rounds; the exit code is 1 if a test of one has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    failed = 0
    for number in range(options.rounds):
        kind = ("quiet", "quiet", "stalled", "busy")[number % 4]
        began_s = time.monotonic()
        with busy_processes(BUSY if kind == "busy" else 0):
            done = one_round(["--stall", str(STALL_S)] if kind == "stalled" else [])
        seconds = time.monotonic() - began_s
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
        _say(f"round {number + 1}, {kind}, {seconds:.0f} s: {last}")
        if done.returncode:
            failed += 1
            _say(done.stdout[-20_000:])
    _say(f"{options.rounds} rounds, {failed} failed")
    return min(failed, 1)


def one_round(options: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the tests of the list once."""
    names = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "3", "--dist", "loadgroup"]
    command += ["-p", "no:cacheprovider", *options, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep so many processes busy until the end of the block."""
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
