"""Finds the map output that is lost according to an error of a reader or a writer."""

from __future__ import annotations

from typing import NamedTuple

from mrflight.errors import (
    CorruptBlockError,
    DeadlineExceededError,
    IncompletePartitionError,
    ServerUnavailableError,
    SpillError,
)


class LostOutput(NamedTuple):
    """Lost map output: all that a location holds of a shuffle, or some partitions there."""

    location: str
    partitions: list[int] | None = None
    insists: bool = False
    """Whether it is lost even if the server is alive."""


def classify_failure(error: Exception) -> LostOutput | None:
    """Return the map output that is lost according to ``error``; None if it names none."""
    match error:
        case CorruptBlockError() | IncompletePartitionError():
            if error.location is None or error.partition is None:
                return None
            return LostOutput(error.location, [error.partition])
        case ServerUnavailableError() | DeadlineExceededError() | SpillError():
            if error.location is None:
                return None
            return LostOutput(error.location, insists=isinstance(error, SpillError))
    return None
