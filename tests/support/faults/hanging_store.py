"""A store that hangs: a call to it does not return until a test lets it.

A FIFO lies where a file is opened first: in the log of a Delta table, or as the manifest of a
folder. Reading it blocks in C++, like a network file system whose server is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.faults.faulty_run import await_that, seem_made_anew
from tests.support.tables.manifests import newest_manifest


class HangingStore:
    """The file that nobody gets beyond, once it is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate
        self._aside = gate.with_name(f"{gate.name}.aside")
        self._writer: int | None = None

    def hang(self) -> None:
        """Stop answering from now on."""
        if self.gate.exists():
            self.gate.rename(self._aside)
        os.mkfifo(self.gate)
        if self.gate.parent.name == "_delta_log":
            seem_made_anew(self.gate.parent.parent)

    def await_reader(self, pid: int) -> None:
        """Wait until a process has a thread that stands there."""
        await_that(lambda: _opens_a_fifo(pid), f"{pid} at {self.gate}")

    def resume(self) -> None:
        """The file is as it was before; who stands there goes on, and reads it."""
        with suppress(OSError):  # nobody stands there, or it is not there
            self._writer = os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK)
        if self._writer is not None and self._aside.exists():
            os.write(self._writer, self._aside.read_bytes())
        self.gate.unlink(missing_ok=True)
        if self._aside.exists():
            self._aside.rename(self.gate)
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


def _opens_a_fifo(pid: int) -> bool:
    """Return whether a thread of the process waits in the kernel for the other end of a FIFO."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # one that ended meanwhile
            if (thread / "wchan").read_text() == "wait_for_partner":
                return True
    return False


@contextmanager
def hanging_store(table: Path) -> Iterator[HangingStore]:
    """Yield the store of an existing table; once it hangs, no process can load the table."""
    log = table / "_delta_log"
    store = HangingStore(log / "_last_checkpoint" if log.exists() else newest_manifest(table))
    try:
        yield store
    finally:
        store.resume()
