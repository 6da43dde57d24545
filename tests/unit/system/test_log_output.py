"""Log messages go to what stderr is when they are written."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from mrflight.system.log_output import LogLevel, log_to_stderr


@pytest.mark.parametrize("level", ["info", "error"])
def test_messages_follow_stderr(level: LogLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    log_to_stderr(level)
    log_to_stderr("debug")  # it is configured already
    for number in range(2):  # bars that are drawn put themselves in place of stderr
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
        root.info("part %d", number)
        root.error("bad")
        expected = [f"INFO root: part {number}", "ERROR root: bad"]
        assert shown.getvalue().splitlines() == expected[level == "error" :]
