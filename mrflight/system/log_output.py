"""Writes log messages to stderr: the one place where a command configures `logging`."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

import msgspec

from mrflight.system.log_label import current_label

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)


class LogSettings(msgspec.Struct, frozen=True):
    """What is written, and how."""

    level: LogLevel
    format: LogFormat = "text"
    with_time: bool = False
    """Whether text has the time of day; JSON always has it."""


_chosen: LogSettings | None = None


def chosen_settings() -> LogSettings | None:
    """Return the settings of this process, for others that work for it; None if it has none."""
    return _chosen


def log_to_stderr(
    level: LogLevel, *, format: LogFormat = "text", with_time: bool = False
) -> LogSettings:
    """Write messages of this level and above to stderr, each with what it is about.

    Nothing is changed where a program has configured logging already: a server of a job is forked
    from its driver, and logs as that does. Returns the settings.
    """
    global _chosen
    settings = LogSettings(level, format, with_time)
    if not logging.root.handlers:
        _chosen = settings
        handler = _StderrHandler()
        handler.addFilter(_add_label)
        handler.setFormatter(_formatter(settings))
        logging.basicConfig(level=level.upper(), handlers=[handler])
    return settings


def hide_messages_of_grpc() -> None:
    """Let gRPC write only its errors to stderr, in this process and those that it starts.

    It would write of each connection that is not secured; our own messages say the same. Whoever
    wants more sets this variable of gRPC.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def message_of(line: str) -> str:
    """Return the message of a line of a log, if it is a JSON object; or else the line."""
    try:
        return msgspec.json.decode(line, type=_Line).message
    except (msgspec.MsgspecError, UnicodeError):
        return line


def _formatter(settings: LogSettings) -> logging.Formatter:
    if settings.format == "json":
        return _JsonFormatter()
    form = "%(levelname)s %(name)s: %(message)s"
    return logging.Formatter(f"%(asctime)s {form}" if settings.with_time else form)


def _add_label(record: logging.LogRecord) -> bool:
    """Add what runs in the thread that logs: ``job``, ``stage``, ``task`` and ``attempt``."""
    label = current_label()
    record.job, record.stage = label.job, label.stage
    record.task, record.attempt = label.task, label.attempt
    return True


class _Line(msgspec.Struct):
    message: str


class _JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # it escapes whatever a message has

        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            "thread": record.threadName,
        }
        for name in ("job", "stage", "task"):
            if value := getattr(record, name, ""):
                values[name] = value
        if "task" in values:
            values["attempt"] = getattr(record, "attempt", 0)
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is now: while bars are drawn, it leaves them whole."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        pass
