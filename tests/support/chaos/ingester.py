"""An ingester to which much is done, and which is started again as by an operator."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.suite.waiting import hang_s

_OUTAGE = 1
"""The exit code of a stream that a server has kept from going on."""


class Ingester:
    """An ingester that is started again whenever it was killed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self.log = log
        self.wrong: list[str] = []
        self.start()

    def start(self) -> None:
        """Start it, after it was killed."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        self._was_killed = False
        self._log_size = self.log.stat().st_size

    def kill(self) -> bool:
        """Kill it; return False if it has been killed already."""
        if self._was_killed:
            return False
        self._was_killed = True
        self.process.kill()
        self.process.wait()
        return True

    def start_if_ended(self, *, is_allowed: bool) -> None:
        """Start it again if it has ended by itself.

        ``is_allowed``: a server was away, which it may tell and end with code 1.
        """
        if self._was_killed or self.process.poll() is None:
            return
        if not is_allowed or self.process.returncode != _OUTAGE:
            self.wrong.append(f"an ingester ended by itself with code {self.process.returncode}")
        self.start()

    def stop(self) -> None:
        """End it as an operator does, and note what is wrong with its end."""
        if self._was_killed:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(hang_s())
        except subprocess.TimeoutExpired as expired:
            self.kill()
            self.wrong.append(f"an ingester did not stop within {expired.timeout:.0f} s")
            return
        # A process that has said nothing may not handle signals yet.
        is_new = self.log.stat().st_size == self._log_size
        if code and not (code == -signal.SIGTERM and is_new):
            self.wrong.append(f"an ingester ended with code {code}")

    def words(self, most: int) -> str:
        """Return the last characters that it has said."""
        return self.log.read_text(errors="replace")[-most:]
