"""Makes an event log the tail of a stream's table, which needs no copy of the rows."""

from __future__ import annotations

import logging
from contextlib import suppress

from mrflight.errors import MrflightError
from mrflight.sources.recorded_names import log_of_partition
from mrflight.storage import Location
from mrflight.storage.tail_file import TailFile, remove_tail_file, write_tail_file
from mrflight.streams.committer import Committer
from mrflight.streams.live import Live
from mrflight.streams.positions import Position, Positions

log = logging.getLogger(__name__)


class LiveLog(Live):
    """Says beside the table which event log has the rows that the table lacks.

    It says so as soon as the table has recorded an offset of the log, and for ever: the log can be
    read without the stream.
    """

    def __init__(
        self, table: Location, file: TailFile, partition: str, committer: Committer
    ) -> None:
        """``partition`` is the name under which the table records the offset of the log."""
        self._table = table
        self._file = file
        self._partition = partition
        self._committer = committer
        self._is_written = False

    @classmethod
    def of(
        cls,
        table: Location,
        stream: str,
        metadata: str,
        positions: Positions,
        committer: Committer,
    ) -> LiveLog:
        """Return it for a stream; ``metadata`` is the location of the log's cluster."""
        (partition,) = map(positions.name, positions.partitions)
        log = log_of_partition(partition)
        assert log is not None, partition
        return cls(table, TailFile(stream, cluster=metadata, log=str(log)), partition, committer)

    def follow(self, position: Position) -> None:
        """Write the file, if that can be done by now."""
        self._write()

    def committed(self) -> None:
        """Learn that the table has a new version."""
        self._write()

    def close(self) -> None:
        """Leave the file, by which the rows can be read that come while the stream is away."""

    def _write(self) -> None:
        if self._is_written or self._partition not in self._committer.recorded:
            return
        try:
            write_tail_file(self._table, self._file)
            self._is_written = True
        except (OSError, MrflightError) as error:
            log.warning("stream %r cannot be read fresh yet: %s", self._file.stream, error)


def forget_live_log(table: Location, stream: str) -> None:
    """Let readers have the table alone, as the stream is not live any more."""
    with suppress(OSError, MrflightError):
        remove_tail_file(table, stream)
