"""Chooses how progress is shown: by the stream, or by where the program runs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

from mrflight.system.ipython import is_notebook
from mrflight.system.progress.bars import Bars
from mrflight.system.progress.lines import Lines
from mrflight.system.progress.report import ProgressReport, QuietProgress


def progress_for(
    stream: TextIO | None, clock: Callable[[], float] = time.monotonic
) -> ProgressReport:
    """Return bars if ``stream`` is a terminal, lines if it is not, and a silent one for None."""
    if stream is None:
        return QuietProgress()
    tolerant = cast(TextIO, _Tolerant(stream))
    return Bars(tolerant) if stream.isatty() else Lines(tolerant, clock)


def progress_here(*, shown: bool) -> ProgressReport:
    """Return the progress report of a job that a program runs: on stderr, or in its notebook."""
    if not shown:
        return QuietProgress()
    if is_notebook():
        from mrflight.system.progress.notebook import NotebookBars

        return NotebookBars()
    return progress_for(sys.stderr)


class _Tolerant:
    """A stream whose reader may be gone: errors of writing are ignored."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
