"""How much slower the machine is at the moment than when it is quiet.

The process that controls a run of the suite measures it: every 20 seconds it times a fixed piece of
work, the start of a Python that imports a few small modules, and writes into the run's folder by
which factor that took longer than on a quiet machine. Everybody else reads it there.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

QUIET_S = 0.06
"""The seconds that the work takes on a quiet machine."""
EVERY_S = 20.0
KEPT = 3
"""The measurements whose largest counts: those of the last minute."""
MOST = 6.0
"""Beyond it the machine does not work, and a hang is to be told before pytest ends the test."""

_WORK = (sys.executable, "-I", "-c", "import json, socket, tempfile, decimal")

working: set[int] = set()
"""The process of this one that works at the moment."""

_file: Path | None = None


def read_from(folder: Path) -> None:
    """Read the measurements of the run that has this folder."""
    global _file
    _file = folder / "slack"


def slack() -> float:
    """Return the factor, from 1 to `MOST`; 1 where nobody measures."""
    try:
        return float(_file.read_text()) if _file is not None else 1.0
    except (OSError, ValueError):  # not measured yet
        return 1.0


class SlackMeter:
    """Measures from its start to its end, in a thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "slack"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="slack", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _measure(self) -> None:
        last: deque[float] = deque(maxlen=KEPT)
        while True:
            last.append(min(MOST, max(1.0, seconds_of_work() / QUIET_S)))
            new = self._file.with_suffix(".new")
            new.write_text(f"{max(last):.2f}")
            new.replace(self._file)
            if self._ended.wait(EVERY_S):
                return


def seconds_of_work() -> float:
    """Return what the fixed piece of work takes now."""
    began_s = time.monotonic()
    with subprocess.Popen(_WORK, stdin=subprocess.DEVNULL) as process:
        working.add(process.pid)
        code = process.wait()
    working.discard(process.pid)
    assert code == 0, f"the work ended with code {code}"
    return time.monotonic() - began_s
