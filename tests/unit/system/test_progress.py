"""Progress is lines in a pipe, bars on a terminal, and nothing inside another program."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from mrflight.system.progress import ProgressReport, progress_for

WAIT_S = 30.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Report = Callable[[ProgressReport], None]


def two_stages(report: ProgressReport) -> None:
    with report:
        for stage, tasks in (("map", 8), ("reduce", 2)):
            report.begin(stage, tasks)
            for _ in range(tasks):
                report.advance()
            report.end(f"{tasks} tasks")


def lines_of(report: Report) -> list[str]:
    stream = io.StringIO()
    report(progress_for(stream))
    return stream.getvalue().splitlines()


def shown_on_a_terminal(report: Report, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of 200 columns is sent, without the escape sequences."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                shown.extend(data)
        except OSError:  # how Linux says that the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with open(theirs, "w", encoding="utf-8") as stream:
            assert stream.isatty()
            report(progress_for(stream))
    finally:
        reader.join()
        os.close(ours)
    return ESCAPES.sub("", shown.decode())


def test_a_pipe_gets_a_line_per_quarter_and_one_at_the_end() -> None:
    assert lines_of(two_stages) == [
        "map: 2 of 8",
        "map: 4 of 8",
        "map: 6 of 8",
        "map: 8 tasks",
        "reduce: 1 of 2",
        "reduce: 2 tasks",
    ]


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 100, 1001])
def test_a_pipe_gets_few_lines_however_many_tasks_there_are(tasks: int) -> None:
    def stage(report: ProgressReport) -> None:
        with report:
            report.begin("map", tasks)
            for _ in range(tasks):
                report.advance()
            report.end("done")

    lines = lines_of(stage)
    assert len(lines) == min(tasks, 4)
    assert lines[-1] == "map: done"
    counts = [int(line.split()[1]) for line in lines[:-1]]
    assert counts == [-(-tasks * quarter // 4) for quarter in (1, 2, 3)][: len(counts)]


def test_a_stage_without_tasks_is_one_line() -> None:
    def stage(report: ProgressReport) -> None:
        with report:
            report.begin("commit", 0)
            report.end("nothing to do")

    assert lines_of(stage) == ["commit: nothing to do"]


def test_every_line_is_flushed_as_it_is_written() -> None:
    source, sink = os.pipe()
    with open(sink, "w", buffering=4096) as stream, progress_for(stream) as report:
        report.begin("map", 4)
        report.advance()
        assert os.read(source, 4096) == b"map: 1 of 4\n"
    os.close(source)


def test_a_pipe_needs_no_rich() -> None:
    lines_of(two_stages)
    code = (
        "import io, sys; from mrflight.system.progress import progress_for\n"
        "progress_for(io.StringIO()); progress_for(None); sys.exit('rich' in sys.modules)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def test_a_terminal_gets_a_bar_per_stage_with_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(two_stages, monkeypatch)
    assert re.search(r"map .* 8/8 .*8 tasks", shown)
    assert re.search(r"reduce .* 2/2 .*2 tasks", shown)
    assert "━" * 40 in shown


@pytest.mark.parametrize("note", ["[bold]x", "run '[/x]'", "a [link] b"])
def test_a_terminal_shows_a_note_as_it_is(note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(report: ProgressReport) -> None:
        with report:
            report.begin("commit", 1)
            report.end(note)

    assert note in shown_on_a_terminal(stage, monkeypatch)


def test_a_terminal_is_left_alone_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())

    def fail(report: ProgressReport) -> None:
        with suppress(KeyboardInterrupt), report:
            report.begin("map", 3)
            report.advance()
            raise KeyboardInterrupt

    assert "1/3" in shown_on_a_terminal(fail, monkeypatch)
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_S)  # rich tells the one that draws to end, and does not wait for it
        assert not thread.is_alive()


def test_a_terminal_shows_what_is_told_before_the_first_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stage(report: ProgressReport) -> None:
        with report:
            report.notify("no server yet")
            report.begin("map", 1)
            report.notify("gone [again]")

    shown = shown_on_a_terminal(stage, monkeypatch)
    assert shown.index("no server yet") < shown.index("0/1")
    assert "gone [again]" in shown


def test_a_terminal_that_hangs_up_is_not_minded() -> None:
    ours, theirs = pty.openpty()
    stream = open(theirs, "w")  # noqa: SIM115 - to close it is to write what is left
    with progress_for(stream) as report:
        os.close(ours)
        report.notify("no server yet")
        report.begin("map", 2)
        report.advance()
        report.notify("gone again")
        report.end("done")
    with suppress(OSError):
        stream.close()


def test_inside_another_program_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    two_stages(progress_for(None))
    assert capfd.readouterr() == ("", "")
