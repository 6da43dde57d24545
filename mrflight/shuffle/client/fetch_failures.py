"""What an error of a reader or a writer says is lost."""

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
    """All that a location holds of a shuffle, or some partitions there."""

    location: str
    partitions: list[int] | None = None
    insists: bool = False
    """Whether it is lost although the server lives."""


def classify_failure(error: Exception) -> LostOutput | None:
    """What cannot be used any more because of ``error``; None where it is about no such thing."""
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
