"""Progress is lines in a pipe, bars on a terminal and in a notebook, and nothing if asked for."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count, repeat

import pytest

from mrflight.frontend.batches import ProgressBeforeRows
from mrflight.system.progress import ProgressReport, Work, progress_for, progress_here
from mrflight.system.progress.meter import StageMeter
from tests.support.commands.terminal import ENVIRONMENT, terminal
from tests.support.suite.waiting import hang_s

Report = Callable[[ProgressReport], None]


def two_stages(report: ProgressReport) -> None:
    with report:
        for stage, tasks in (("map", 8), ("reduce", 2)):
            report.begin(stage, tasks)
            for _ in range(tasks):
                report.advance()
            report.end(f"{tasks} tasks")


def lines_of(report: Report, times: Iterable[float] = repeat(0.0)) -> list[str]:
    """The lines that a pipe gets, by a clock that shows one of the times whenever it is read."""
    stream = io.StringIO()
    report(progress_for(stream, iter(times).__next__))
    return stream.getvalue().splitlines()


def shown_on_a_terminal(report: Report, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of 200 columns is sent, without the escape sequences."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with terminal() as shown, open(shown.descriptor, "w", encoding="utf-8") as stream:
        assert stream.isatty()
        report(progress_for(stream))
    return shown.shown


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
        thread.join(hang_s())  # rich tells the one that draws to end, and does not wait for it
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


@pytest.mark.parametrize("report", [progress_for(None), progress_here(shown=False)])
def test_nothing_is_shown_if_that_is_asked_for(
    report: ProgressReport, capfd: pytest.CaptureFixture[str]
) -> None:
    two_stages(report)
    assert capfd.readouterr() == ("", "")
    assert not report.is_drawn


def test_a_program_without_a_terminal_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    two_stages(progress_here(shown=True))
    assert capsys.readouterr().err.endswith("reduce: 2 tasks\n")


def reading(report: ProgressReport) -> None:
    """Four tasks of 1,000 rows and 1 MiB each."""
    with report:
        report.begin("map", 4, 4 * 2**20)
        for _ in range(4):
            report.advance(Work(1_000, 2**20))
        report.end("4,000 rows read")


def test_lines_have_rates_and_an_estimate() -> None:
    """The clock is read once as the report is made, once per stage, and once per task."""
    assert lines_of(reading, count(step=2.0)) == [
        "map: 1 of 4, 500 rows/s, 512.0 KiB/s, about 6 s left",
        "map: 2 of 4, 500 rows/s, 512.0 KiB/s, about 4 s left",
        "map: 3 of 4, 500 rows/s, 512.0 KiB/s, about 2 s left",
        "map: 4,000 rows read, 500 rows/s, 512.0 KiB/s",
    ]


def test_lines_of_a_short_stage_have_no_rates() -> None:
    assert lines_of(reading, count(step=0.2))[-1] == "map: 4,000 rows read"


def test_a_long_stage_gets_a_line_per_minute() -> None:
    def long(report: ProgressReport) -> None:
        report.begin("map", 1000)
        for _ in range(9):
            report.advance()

    lines = lines_of(long, count(step=25.0))
    assert [line.partition(", ")[0] for line in lines] == [
        "map: 3 of 1,000",
        "map: 6 of 1,000",
        "map: 9 of 1,000",
    ]
    assert lines[0].endswith(", about 6 h 55 min left")


@pytest.mark.parametrize(
    ("size_bytes", "work", "fraction"),
    [
        (0, [Work()] * 2, 0.5),
        (100, [Work(1, 10), Work(1, 15)], 0.25),
        (100, [Work(1, 70), Work(1, 70)], 1.0),  # files have grown
        (100, [Work(1, 10)] * 4, 1.0),
        (0, [], 0.0),
    ],
)
def test_the_work_that_is_done_is_a_part_of_the_bytes_or_of_the_tasks(
    size_bytes: int, work: list[Work], fraction: float
) -> None:
    meter = StageMeter("map", 4, size_bytes, now=0.0)
    for each in work:
        meter.advance(each, 1, now=1.0)
    assert meter.fraction == fraction


def test_an_estimate_counts_down_until_the_next_task_ends() -> None:
    meter = StageMeter("map", 4, now=100.0)
    assert meter.status(130.0) == ""  # nothing is known yet
    meter.advance(Work(), 1, now=130.0)
    assert meter.left(130.0) == "about 1 min 30 s left"
    assert meter.left(180.0) == "about 40 s left"
    assert meter.left(230.0) == ""  # it takes longer than estimated
    meter.advance(Work(), 3, now=240.0)
    assert meter.status(240.0) == ""


@pytest.mark.parametrize("at_once", [1, 2, 5, 32])
@pytest.mark.parametrize("tasks", [8, 40, 100])
def test_an_estimate_counts_the_tasks_that_run(at_once: int, tasks: int) -> None:
    """Each worker begins with a task of 10 s, and they end one after the other in a second."""
    meter = StageMeter("map", tasks, at_once=at_once, now=0.0)
    ends = sorted(
        10.0 * (number // at_once + 1) + number % at_once / at_once for number in range(tasks)
    )
    for end in ends[:-at_once]:
        meter.advance(Work(), 1, end)
        estimated = meter.left_s(end) or 0.0
        assert end + estimated == pytest.approx(ends[-1], abs=0.1 * ends[-1])


def test_a_terminal_shows_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrflight.system.progress.meter._MIN_ELAPSED_S", 0.0)
    shown = shown_on_a_terminal(reading, monkeypatch)
    assert re.search(r"4/4 .*4,000 rows read, .* rows/s, .*B/s", shown)


def test_a_terminal_shows_what_workers_print_above_the_bars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "x " * 150  # more than a line of the terminal

    def stage(report: ProgressReport) -> None:
        with report:
            assert report.is_drawn
            report.begin("map", 1)
            report.show_output("half [of] it")
            report.show_output(long)
            report.advance()
            report.end("done")

    shown = shown_on_a_terminal(stage, monkeypatch)
    assert shown.index("half [of] it") < shown.index(long) < shown.index("1/1")


def test_the_bars_end_before_the_caller_gets_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(report: ProgressReport) -> None:
        with ProgressBeforeRows(report) as shown:
            shown.begin("map", 1)
            shown.advance()
            shown.end("done")
            shown.begin_rows(10)
            shown.advance(Work(10), 10)
            shown.notify("read again")
            shown.end("10 rows read")

    shown = shown_on_a_terminal(rows, monkeypatch)
    assert "1/1" in shown
    assert shown.endswith("read again\r\n")
    assert lines_of(rows) == ["map: done", "read again"]
