"""The child processes with DuckDB, which the lakes of this process use one after the other.

The start of one takes 0.5 s of a processor, most of it to load the extensions, and a commit a tenth
of that. So a child that is not used is kept, one for each interpreter. Sessions that overlap, such
as a compaction beside the commits of a stream, have a child each.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mrflight.storage.ducklake.process import LakeError, LakeProcess

_ANSWER_S = 5.0
"""An idle child that does not answer so soon is replaced, which costs less than a longer wait."""
_idle: dict[str, LakeProcess] = {}
"""By the interpreter. What is done to it are single calls, so that it needs no lock: a lock could
be held by another thread in the moment of a fork."""


@contextmanager
def borrowed_process(python: str) -> Iterator[LakeProcess]:
    """Lend a child of an interpreter for the time of the block, to nobody else meanwhile.

    The borrower leaves nothing in it, or ends it. It is kept if no other one is idle.
    """
    process = _idle.pop(python, None)
    if process is None or not _answers(process):
        process = LakeProcess(python)
    try:
        yield process
    finally:
        if not process.is_alive or _idle.setdefault(python, process) is not process:
            process.close()


def end_idle_processes() -> None:
    """End the children that nobody uses; the next one that is needed is started."""
    while _idle:
        _, process = _idle.popitem()
        process.close()


def _answers(process: LakeProcess) -> bool:
    """Return whether an idle child can be used; end it if not.

    One that was killed a moment ago has not ended yet for whoever asks the system.
    """
    try:
        process.run("SELECT 1", _ANSWER_S)
    except LakeError:
        process.close()
        return False
    return True


def _disown() -> None:
    """Leave the children to the process that has started them, in a fork of it."""
    for process in _idle.values():
        process.disown()
    _idle.clear()


os.register_at_fork(after_in_child=_disown)
atexit.register(end_idle_processes)
