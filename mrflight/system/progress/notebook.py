"""Progress as one bar per stage, in the output of a cell of a notebook.

The bars of Rich need ipywidgets there, which not every notebook has. This draws the same bars as
HTML, which IPython itself can replace, and which stays in the saved notebook.
"""

from __future__ import annotations

import io
import sys
import threading
from importlib import import_module
from typing import Any, TextIO

from mrflight.system.progress.bars import StageBars
from mrflight.system.progress.report import NO_WORK, ProgressReport, Work

_DRAW_EVERY_S = 0.2
_WIDTH = 120

_PAGE = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;margin:0;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)


class NotebookBars(ProgressReport):
    """Draws the bars into the cell that runs, several times per second while a stage runs."""

    is_drawn = True

    def __init__(self) -> None:
        self._cell: _Cell | None = None
        self._is_over = threading.Event()
        self._drawer = threading.Thread(target=self._draw, name="progress", daemon=True)

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        if self._cell is not None:
            self._cell.bars.begin(stage, tasks, size_bytes, at_once)
        elif not self._is_over.is_set():
            self._cell = _Cell()
            self._cell.bars.begin(stage, tasks, size_bytes, at_once)
            self._cell.show()
            self._drawer.start()

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        if self._cell is not None:
            self._cell.bars.advance(work, tasks)

    def end(self, note: str) -> None:
        if self._cell is not None:
            self._cell.bars.end(note)

    def notify(self, line: str) -> None:
        _write(line, sys.stderr)

    def show_output(self, line: str) -> None:
        _write(line, sys.stdout)

    def close(self) -> None:
        is_first = not self._is_over.is_set()
        self._is_over.set()
        if self._cell is not None and is_first:
            self._drawer.join()
            self._cell.show()

    def _draw(self) -> None:
        assert self._cell is not None, "it begins with the first stage"
        while not self._is_over.wait(_DRAW_EVERY_S):
            self._cell.show()


class _Cell:
    """The bars, and the place in the output of a cell where they are drawn."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_jupyter=False)
        self.bars = StageBars(self._console)
        self._display = import_module("IPython.display")
        self._shown: Any = None

    def show(self) -> None:
        """Draw the bars, in place of those that were drawn before."""
        self._console.file = io.StringIO()  # it keeps a copy of what it records
        self._console.print(self.bars.table.get_renderable())
        drawn = {
            "text/plain": self._console.export_text(clear=False),  # for consoles of a kernel
            "text/html": self._console.export_html(inline_styles=True, code_format=_PAGE),
        }
        if self._shown is None:
            self._shown = self._display.display(drawn, raw=True, display_id=True)
        else:
            self._shown.update(drawn, raw=True)


def _write(line: str, stream: TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()
