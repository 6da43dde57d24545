"""In a notebook the bars are HTML that IPython replaces, whatever the front end has installed."""

from __future__ import annotations

import re
import sys
from html import unescape
from types import ModuleType
from typing import Any

import pytest

from mrflight.system.progress import ProgressReport, progress_here


class Shell:
    """The shell of a kernel; that of a terminal has no kernel."""

    kernel = object()


class Notebook(ModuleType):
    """Stands for IPython in a kernel: it keeps what a cell shows."""

    def __init__(self) -> None:
        super().__init__("IPython")
        self.cells: list[list[str]] = []
        """What was drawn in each place."""
        self.shell: Any = Shell()

    def get_ipython(self) -> Any:
        return self.shell

    def display(self, drawn: dict[str, str], *, raw: bool, display_id: bool) -> Notebook.Place:
        assert raw
        assert display_id
        self.cells.append([drawn["text/html"]])
        return self.Place(self.cells[-1])

    class Place:
        def __init__(self, drawn: list[str]) -> None:
            self._drawn = drawn

        def update(self, drawn: dict[str, str], *, raw: bool) -> None:
            assert raw
            assert text_of(drawn["text/plain"]) == text_of(unescape(drawn["text/html"]))
            self._drawn.append(drawn["text/html"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    ipython = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    return ipython


def run_stages(report: ProgressReport) -> None:
    with report:
        report.begin("map", 2)
        report.advance()
        report.notify("map 1 is retried")
        report.show_output("seen 20 <rows>")
        report.advance()
        report.end("<80> rows read")
        report.begin("commit", 1)
        report.end("1 file")


def text_of(html: str) -> list[str]:
    """The lines without tags; in these tests ``<`` of a text is followed by a digit."""
    lines = re.sub("</?[a-z][^>]*>", "", html).splitlines()
    return [line.strip() for line in lines if line.strip()]


def test_the_bars_are_drawn_in_one_place(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    report = progress_here(shown=True)
    assert report.is_drawn
    run_stages(report)
    ((first, *_, last),) = notebook.cells
    assert [line.split()[0] for line in text_of(first)] == ["map"]
    assert "0/2" in first
    assert [
        re.sub(r" +\d:\d\d:\d\d +| +", " ", line.replace("━", "")) for line in text_of(last)
    ] == [
        "map 2/2 &lt;80&gt; rows read",
        "commit 0/1 1 file",
    ]
    assert capsys.readouterr() == ("seen 20 <rows>\n", "map 1 is retried\n")


def test_nothing_is_drawn_before_the_first_stage_or_after_the_end(notebook: Notebook) -> None:
    report = progress_here(shown=True)
    report.advance()
    report.end("nothing")
    report.close()
    report.begin("map", 1)
    report.close()
    assert notebook.cells == []


def test_nothing_is_drawn_if_that_is_asked_for(notebook: Notebook) -> None:
    run_stages(progress_here(shown=False))
    assert notebook.cells == []


@pytest.mark.parametrize("shell", [None, object()])
def test_ipython_in_a_terminal_is_no_notebook(notebook: Notebook, shell: object) -> None:
    notebook.shell = shell
    run_stages(progress_here(shown=True))
    assert notebook.cells == []
