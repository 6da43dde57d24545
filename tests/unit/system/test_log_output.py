"""Log messages go to what stderr is when they are written, with what they are about."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading

import pytest

from mrflight.system.log_label import LogLabel, label_process, labelled
from mrflight.system.log_output import LogFormat, LogLevel, log_to_stderr, message_of


def new_root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return a root logger that nobody has configured; in a fixture, pytest would do that."""
    made = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", made)
    monkeypatch.setattr("mrflight.system.log_output._chosen", None)
    return made


@pytest.mark.parametrize("level", ["info", "error"])
def test_messages_follow_stderr(level: LogLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_root(monkeypatch)
    log_to_stderr(level)
    log_to_stderr("debug")  # it is configured already
    for number in range(2):  # bars that are drawn put themselves in place of stderr
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
        root.info("part %d", number)
        root.error("bad")
        expected = [f"INFO root: part {number}", "ERROR root: bad"]
        assert shown.getvalue().splitlines() == expected[level == "error" :]


def new_stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def log_as(format: LogFormat, root: logging.Logger) -> None:
    log_to_stderr("info", format=format)
    with labelled(LogLabel("job 1", "map", "map 3 (visits)", 2)):
        root.warning("slow: %s", "\ud800<b>")
        thread = threading.Thread(target=root.info, args=["beside"])
        thread.start()
        thread.join()
    try:
        raise ValueError("wrong")
    except ValueError:
        root.exception("two\nlines")


def test_each_record_is_an_object_with_its_job_stage_and_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = new_root(monkeypatch)
    shown = new_stderr(monkeypatch)
    log_as("json", root)
    first, beside, last = map(json.loads, shown.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first.pop("pid") > 0
    assert first == {
        "level": "warning",
        "logger": "root",
        "message": "slow: \ud800<b>",
        "thread": "MainThread",
        "job": "job 1",
        "stage": "map",
        "task": "map 3 (visits)",
        "attempt": 2,
    }
    assert (beside["message"], beside.keys() & {"job", "stage", "task"}) == ("beside", set())
    assert (last["level"], last["message"]) == ("error", "two\nlines")
    assert last["exception"].endswith("ValueError: wrong")


def test_text_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_root(monkeypatch)
    shown = new_stderr(monkeypatch)
    log_to_stderr("info")
    root.warning("slow")
    assert shown.getvalue().splitlines()[-1] == "WARNING root: slow"


def test_a_process_that_runs_a_task_labels_all_of_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = new_root(monkeypatch)
    shown = new_stderr(monkeypatch)
    log_to_stderr("info", format="json")
    label_process(LogLabel("job 1", "reduce", "reduce of partition 4"))
    try:
        thread = threading.Thread(target=root.info, args=["read ahead"])
        thread.start()
        thread.join()
    finally:
        label_process(LogLabel())
    assert json.loads(shown.getvalue())["task"] == "reduce of partition 4"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"message": "it ends", "level": "error"}', "it ends"),
        ("ERROR x: it ends", "ERROR x: it ends"),
        ('{"level": 1}', '{"level": 1}'),
        ("{", "{"),
        ("", ""),
    ],
)
def test_the_message_of_a_line_of_a_log(line: str, message: str) -> None:
    assert message_of(line) == message
