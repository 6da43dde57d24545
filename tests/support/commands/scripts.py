"""Programs in a Python process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.suite.waiting import hang_s


@dataclass(frozen=True)
class Script:
    """A process, what it says and what it is told."""

    process: subprocess.Popen[str]

    def read_line(self) -> str:
        """Wait for its next line and return it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def ask(self, line: str = "") -> str:
        """Send a line and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.read_line()

    def close_input(self) -> None:
        """Close its stdin, so that it comes to the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def running_script(code: str, *words: object, folder: Path | None = None) -> Iterator[Script]:
    """It runs in ``folder``, or where the tests do, and is killed if it has not ended by itself."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Script(process)
        finally:
            process.kill()


def run_script(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, and return how it ended and what it printed."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=hang_s(),
        check=False,
    )
