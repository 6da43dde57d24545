"""Sends the rows of one map attempt to the data servers of their partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from mrflight.compute.arrays import to_arrow
from mrflight.compute.layout import null_masked, to_canonical
from mrflight.errors import (
    AttemptSupersededError,
    DeadlineExceededError,
    MrflightError,
    ServerUnavailableError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.client.block_sender import BlockSender
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.partition_buffers import (
    BUFFER_BYTES,
    PartitionBuffers,
    partition_buffers,
)
from mrflight.shuffle.client.partitioners import HashPartitioner, OnePartitioner, Partitioner
from mrflight.shuffle.client.range_partitioner import RangePartitioner
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.encoder import WireEncoder
from mrflight.shuffle.wire.protocol import CommitMap, DataAction, DiscardAttempt, ShuffleDescription

log = logging.getLogger(__name__)

_SLICE_ROWS = 2**18
"""Rows that are encoded at a time. A dictionary's values are larger than they look: with 32-bit
offsets they may have 8 KiB each."""


class _State(Enum):
    """The state of a writer's attempt."""

    OPEN = "open"
    UNKNOWN = "the commit was requested and not answered"
    COMMITTED = "committed"
    COMMITTED_BY_ANOTHER = "another writer of this attempt was committed"


@dataclass(frozen=True)
class MapTarget:
    """One attempt of a map, and the shuffle that it writes to."""

    source: MapAttempt
    shuffle: ShuffleDescription

    def missing_partitions(self) -> npt.NDArray[np.bool_] | None:
        """Return by partition whether this map's rows are missing there; None if all are."""
        if self.shuffle.missing is None:
            return None
        mask = np.zeros(len(self.shuffle.placement), np.bool_)
        mask[self.shuffle.missing] = True
        return mask


class ShuffleWriter:
    """Writes the rows of one map attempt; made by `Shuffle.writer`.

    Use it as a context manager. Leaving the block normally commits the attempt, and leaving it by
    an exception makes the servers discard it. A writer is not safe for several threads. It blocks
    while a data server catches up. If the map was committed before, only the rows that were lost
    since then, with a data server, are sent.
    """

    def __init__(
        self,
        target: MapTarget,
        partitioner: Partitioner,
        metadata: MetadataClient,
        connections: Connections,
        compression: str = "none",
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._target = target
        self._partitioner = partitioner
        self._partitions = len(target.shuffle.placement)
        self._missing = target.missing_partitions()
        self._routing = xxhash.xxh3_64()
        """A hash of the partitions of all rows, missing or not, in their order.

        It covers the rows as well if their values do not determine their partitions: in another
        order such rows would go to other partitions, with the same number of rows in each.
        """
        self._rows: npt.NDArray[np.int64] = np.zeros(self._partitions, np.int64)
        self._metadata = metadata
        self._connections = connections
        self._sender = BlockSender(
            target.shuffle.id,
            target.source,
            target.shuffle.places,
            connections,
            target.shuffle.token,
        )
        self._encoder = WireEncoder(target.source.map_id, compression)
        self._buffer_bytes = buffer_bytes
        self._buffers: PartitionBuffers | None = None
        self._state = _State.OPEN
        self.winner_sent_the_same = False
        """Whether another attempt that won sent the same number of rows to each partition, in the
        same order. The rows themselves are compared only if they are not placed by value."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Partition a batch and send the partitions that have become large enough.

        All batches must have the same columns, in any layout; raises SchemaMismatchError otherwise.
        """
        self._encoder.check(batch.schema)
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            self._write(batch.slice(start, _SLICE_ROWS))

    def _write(self, batch: pa.RecordBatch) -> None:
        ids = self._partitioner.ids(batch)  # each value of a dictionary is hashed once
        self._routing.update(ids.to_numpy())
        if not _places_by_value(self._partitioner):
            canonical = to_canonical(batch, self._encoder.schema)
            self._routing.update(null_masked(canonical).serialize())
        rows = self._encoder.encode(batch, before_change=self._flush)
        if self._buffers is None:
            self._buffers = partition_buffers(
                self._encoder.buffer_schema, self._partitions, budget_bytes=self._buffer_bytes
            )
        if self._missing is not None:
            rows, ids = self._only(self._missing, rows, ids)
        self._send(self._buffers.add(rows, ids))

    def _flush(self) -> None:
        """Send all rows that are buffered."""
        if self._buffers is not None:
            self._send(self._buffers.take_all())
            self._buffers = None

    def _send(self, due: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        for partition, rows in due:
            self._sender.send(partition, self._encoder.block(rows))

    def _only(
        self, missing: npt.NDArray[np.bool_], batch: pa.RecordBatch, ids: pa.Int32Array
    ) -> tuple[pa.RecordBatch, pa.Int32Array]:
        """Return the rows of missing partitions.

        All rows are counted, to be compared with those of the attempts before.
        """
        numbers = ids.to_numpy()
        self._rows += np.bincount(numbers, minlength=self._partitions)
        mask = to_arrow(missing[numbers])
        return batch.filter(mask), ids.filter(mask)

    def commit(self) -> None:
        """Send the remaining rows and commit the attempt; do nothing if it is committed.

        It may have been committed by another writer of the same attempt: an executor that runs a
        task again by itself, as Ray does, gets its rows once. Raises AttemptSupersededError if
        another attempt of this map was committed.
        """
        if self._state in (_State.COMMITTED, _State.COMMITTED_BY_ANOTHER):
            return
        self._flush()
        self._sender.finish()
        source, winner = self._target.source, self._request_commit()
        if winner == source:
            self._state = _State.COMMITTED
            return
        self._state = _State.OPEN
        self.abort()
        if winner.attempt == source.attempt:
            self._state = _State.COMMITTED_BY_ANOTHER
            return
        raise AttemptSupersededError(
            f"map {source.map_id} of shuffle {self._target.shuffle.id!r}: attempt {winner.attempt} "
            f"has been committed before this writer's attempt {source.attempt}"
        )

    def _request_commit(self) -> MapAttempt:
        """Return the attempt that won this map.

        Without an answer this attempt may be committed, and its blocks must stay.
        """
        target = self._target
        commit = CommitMap(
            target.shuffle.id,
            target.source.map_id,
            target.source.attempt,
            schema=(self._encoder.schema or pa.schema([])).serialize().to_pybytes(),
            rows=(self._sender.rows if self._missing is None else self._rows).tolist(),
            size_bytes=self._sender.bytes.tolist(),
            writer=target.source.writer,
            version=target.shuffle.version,
            without=sorted(self._sender.without),
            token=target.shuffle.token,
            routing=self._routing.hexdigest(),
        )
        self._state = _State.UNKNOWN
        try:
            winner, self.winner_sent_the_same = self._metadata.commit_map(commit)
        except MrflightError as error:
            if not isinstance(error, ServerUnavailableError | DeadlineExceededError):
                self._state = _State.OPEN  # the server refused
            raise
        return winner

    def abort(self) -> None:
        """Stop sending, and have the servers that can be reached discard this attempt.

        The blocks of an attempt that is committed, or may be, stay.
        """
        locations = self._sender.stop()
        if self._state is not _State.OPEN:
            return
        shuffle, identity = self._target.shuffle, self._connections.identity
        request = DiscardAttempt(shuffle.id, *self._target.source, shuffle.token)
        failed = notify(locations, DataAction.DISCARD_ATTEMPT, request, identity)
        for location, error in failed.items():
            # An attempt that is never committed is never read, so this costs memory only.
            log.info("%s keeps blocks of a discarded attempt: %s", location, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.commit()
        except BaseException:
            self.abort()
            raise
        else:
            if error is not None:
                self.abort()
        finally:
            if self._state is _State.COMMITTED:
                self._connections.close()
            else:
                self._connections.abandon()


def _places_by_value(partitioner: Partitioner) -> bool:
    """Return whether a row's values determine its partition, wherever it is in its map."""
    return isinstance(partitioner, HashPartitioner | RangePartitioner | OnePartitioner)
