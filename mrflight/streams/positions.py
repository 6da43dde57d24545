"""Where a stream is in what it reads: the interface of topics and of event logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import Partition

Position = dict[Partition, int]
"""The next offset of each partition, which is a topic or an event log with a number."""


class Positions(ABC):
    """The partitions of a stream, and the names under which tables record their offsets.

    A name is ``<cluster>/<topic>/<topic id>/<partition>``, and ``log/<name>/<id>/0`` for an event
    log. The methods raise InputError for what is not the same any more as when offsets were
    recorded, and retryable errors while the servers are away.
    """

    @property
    @abstractmethod
    def partitions(self) -> Sequence[Partition]:
        """The partitions as they were when they were looked at last."""

    @abstractmethod
    def name(self, partition: Partition) -> str:
        """Return the name under which tables record the offset of a partition."""

    @abstractmethod
    def refresh(self) -> None:
        """Look for new partitions."""

    @abstractmethod
    def ends(self) -> Position:
        """Return the end of what each partition has."""

    @abstractmethod
    def position(self, recorded: Mapping[str, int]) -> Position:
        """Return where to go on from what a table has recorded.

        Partitions that it does not know begin at ``start`` if it knows none, and otherwise, as
        they are new, at their first event.
        """

    @abstractmethod
    def check_kept(self, position: Position, *, takes_earliest: bool) -> Position:
        """Return the position, from which on all events must still be there.

        ``takes_earliest``: go on from the first event that is there. Otherwise LostOffsetsError is
        raised for events that were deleted before they were read. It is raised in any case if the
        end has gone back, so that other events have offsets, or will have them, that were read.
        """

    def marks(self, ranges: Sequence[OffsetRange]) -> Mapping[str, int]:
        """Return the marks of where a batch ends, which is asked before the batch is read.

        A table records them with the offsets, see `mrflight.sources.recorded_names`.
        Raises LostOffsetsError if the rows before the batch are not those that were read before it.
        """
        return {}

    def keep_start(self, position: Position) -> None:
        """Keep where the stream begins until a table records offsets: `position` returns it then.

        Does nothing where the start stays the same. Raises retryable errors.
        """
        return

    def committed(self, recorded: Mapping[str, int]) -> None:
        """Learn that a table has recorded these offsets, as was read back from it."""
        return
