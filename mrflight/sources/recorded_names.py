"""The names under which tables record how far a stream has come.

A partition of a topic is ``<cluster>/<topic>/<topic id>/<number>``, and an event log
``log/<name>/<id>/0``. A replay of dead letters is recorded under the id of their table, as a stream
whose name ends with `REPLAY`. A run of a job that has the name of a stream is beside those names in
a Delta table, and has no slash (see `mrflight.sinks.commit.run_name`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from mrflight.shuffle.wire.log_rights import LogId

_T = TypeVar("_T")
_PARTITION = re.compile(r"[^/]*/[^/]+/[^/]*/[0-9]+")

MARK = "mark/"
"""What the name of a partition has before it where a table records the mark of its offset: a number
that tells the events before the offset from others that have got their offsets."""

REPLAY = ".replay"
"""What the name of a stream has behind it where a table records replays of its dead letters."""

LOG_CLUSTER = "log"
"""What stands for the cluster in the name of an event log's partition."""


def partition_of_log(log: LogId) -> str:
    """Return the name under which tables record the offset of an event log."""
    return f"{LOG_CLUSTER}/{log.name}/{log.id}/0"


def log_of_partition(name: str) -> LogId | None:
    """Return the event log of the name of a partition; None for one of a topic.

    It may be a name as tables recorded it at first, with the log's secret in place of its id.
    """
    parts = name.split("/")
    is_log = len(parts) == 4 and parts[0] == LOG_CLUSTER
    return LogId.parse(f"{parts[1]}:{parts[2]}") if is_log else None


def current_name(name: str) -> str:
    """Return the name under which a partition is recorded now that was recorded as ``name``."""
    log = log_of_partition(name)
    return name if log is None else partition_of_log(log)


def with_current_names(recorded: Mapping[str, int]) -> dict[str, int]:
    """Return recorded offsets by the names that partitions have now.

    The offset under a name of before stays in a Delta table, and is of no use beside a later one.
    """
    return {current_name(name): at for name, at in recorded.items()} | {
        name: at for name, at in recorded.items() if current_name(name) == name
    }


def is_of_stream(stream: str, name: str) -> bool:
    """Return whether a name is one that a stream records, and not that of a run of a job."""
    is_partition = _PARTITION.fullmatch(name.removeprefix(MARK)) is not None
    return is_partition or (stream.endswith(REPLAY) and "/" not in name)


def of_partitions(recorded: Mapping[str, _T]) -> dict[str, _T]:
    """Return what is recorded of partitions, by their names, and neither marks nor replays."""
    return {name: each for name, each in recorded.items() if _PARTITION.fullmatch(name)}


def without_marks(recorded: Mapping[str, _T]) -> dict[str, _T]:
    """Return what is recorded of partitions, or of a replay, by their names."""
    return {name: each for name, each in recorded.items() if not name.startswith(MARK)}
