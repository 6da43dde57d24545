"""Sends one map attempt's rows to the data servers of their partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from mrflight.compute.layout import canonical_schema, null_masked, to_canonical
from mrflight.compute.numpy_arrays import to_arrow
from mrflight.compute.schemas import describe_difference
from mrflight.errors import (
    AttemptSupersededError,
    DeadlineExceededError,
    MrflightError,
    SchemaMismatchError,
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
from mrflight.shuffle.wire.calls import tell
from mrflight.shuffle.wire.column_encoding import Narrowing, decoded_once
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import CommitMap, DataAction, DiscardAttempt, ShuffleDescription

log = logging.getLogger(__name__)

_DECODED_ROWS = 2**18
"""Of a batch at a time, as a dictionary's values are larger than they look: with 32-bit offsets
they may have 8 KiB each."""


class _State(Enum):
    """How far a writer's attempt has come."""

    OPEN = "open"
    UNKNOWN = "the commit was asked for"
    COMMITTED = "committed"
    MADE_BEFORE = "another writer of this attempt was committed"


class ShuffleWriter:
    """Writes the rows of one map attempt; made by `Shuffle.writer`.

    Use it as a context manager: leaving the block cleanly commits the attempt,
    leaving it by an exception makes the servers forget it. Not for several
    threads. Blocks while a data server catches up. Of a map that was committed
    before, only the rows are sent that were lost since, with a data server.
    """

    def __init__(
        self,
        shuffle_id: str,
        source: MapAttempt,
        partitioner: Partitioner,
        target: ShuffleDescription,
        metadata: MetadataClient,
        connections: Connections,
        compression: str = "none",
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._shuffle_id = shuffle_id
        self._source = source
        self._partitioner = partitioner
        self._partitions = len(target.placement)
        self._version = target.version
        self._token = target.token
        self._wanted = _mask(target)
        self._routing = xxhash.xxh3_64()
        """Of the partitions of all rows, wanted or not, in their order.

        And of the rows, where their values need not say where they go: in another order they would
        not go where they went before, and as many would go everywhere.
        """
        self._rows: npt.NDArray[np.int64] = np.zeros(self._partitions, np.int64)
        self._metadata = metadata
        self._connections = connections
        placement = [[target.locations[i] for i in places] for places in target.placement]
        self._sender = BlockSender(
            shuffle_id, source, placement, connections, compression, target.token
        )
        self._schema: pa.Schema | None = None
        self._buffer_bytes = buffer_bytes
        self._buffers: PartitionBuffers | None = None
        self._narrowing: Narrowing | None = None
        self._state = _State.OPEN
        self.winner_sent_the_same = False
        """Where another attempt has won: whether it sent as many rows to each partition, in the
        same order. The rows themselves are compared where a partitioner is not one of ours that
        go by values."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Partition a batch and send what has become large enough.

        All batches have one schema; SchemaMismatchError otherwise. The batch
        may be of any layout: dictionary and view columns are sent plain.
        """
        self._agree_on_schema(batch.schema)
        for start in range(0, batch.num_rows, _DECODED_ROWS):
            self._write(batch.slice(start, _DECODED_ROWS))

    def _write(self, batch: pa.RecordBatch) -> None:
        ids = self._partitioner.ids(batch)  # a dictionary is hashed once as it is
        self._routing.update(ids.to_numpy())
        if not _goes_by_values(self._partitioner):
            self._routing.update(null_masked(to_canonical(batch, self._schema)).serialize())
        buffers, rows = self._narrow(decoded_once(batch, self._schema))
        if self._wanted is not None:
            rows, ids = self._only(self._wanted, rows, ids)
        self._send(buffers.add(rows, ids))

    def _narrow(self, batch: pa.RecordBatch) -> tuple[PartitionBuffers, pa.RecordBatch]:
        """The rows as they travel, and what they wait in; rows before them may be sent."""
        if self._narrowing is None or self._buffers is None:
            return self._begin(Narrowing.of(batch, self._schema), batch)
        if (rows := self._narrowing.narrow(batch)) is not None:
            return self._buffers, rows
        self._send(self._buffers.take_all())
        return self._begin(self._narrowing.wider(batch), batch)

    def _begin(
        self, narrowing: Narrowing, batch: pa.RecordBatch
    ) -> tuple[PartitionBuffers, pa.RecordBatch]:
        rows = narrowing.narrow(batch)
        assert rows is not None, "it was made for this batch"
        self._narrowing = narrowing
        self._buffers = partition_buffers(
            narrowing.schema, self._partitions, budget_bytes=self._buffer_bytes
        )
        return self._buffers, rows

    def _send(self, due: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        assert self._narrowing is not None
        for partition, rows in due:
            self._sender.send(partition, self._narrowing.block(rows))

    def _only(
        self, wanted: npt.NDArray[np.bool_], batch: pa.RecordBatch, ids: pa.Int32Array
    ) -> tuple[pa.RecordBatch, pa.Int32Array]:
        """The rows of wanted partitions. All are counted, to be compared with those of before."""
        numbers = ids.to_numpy()
        self._rows += np.bincount(numbers, minlength=self._partitions)
        mask = to_arrow(wanted[numbers])
        return batch.filter(mask), ids.filter(mask)

    def commit(self) -> None:
        """Send what is left and commit the attempt; nothing happens where it is committed.

        By another writer of the same attempt as well: whoever runs a task again, as Ray does by
        itself, has its rows once. AttemptSupersededError where another attempt of this map has won.
        """
        if self._state in (_State.COMMITTED, _State.MADE_BEFORE):
            return
        if self._buffers is not None:
            self._send(self._buffers.take_all())
        self._sender.finish()
        winner = self._ask_for_the_commit()
        if winner == self._source:
            self._state = _State.COMMITTED
            return
        self._state = _State.OPEN
        self.abort()
        if winner.attempt == self._source.attempt:
            self._state = _State.MADE_BEFORE
            return
        raise AttemptSupersededError(
            f"map {self._source.map_id} of shuffle {self._shuffle_id!r}: attempt {winner.attempt} "
            f"has been committed before this writer's attempt {self._source.attempt}"
        )

    def _ask_for_the_commit(self) -> MapAttempt:
        """The winner of this map.

        Without an answer the attempt may be committed, so that its blocks must stay.
        """
        commit = CommitMap(
            self._shuffle_id,
            self._source.map_id,
            self._source.attempt,
            schema=(self._schema or pa.schema([])).serialize().to_pybytes(),
            rows=(self._sender.rows if self._wanted is None else self._rows).tolist(),
            size_bytes=self._sender.bytes.tolist(),
            writer=self._source.writer,
            version=self._version,
            without=sorted(self._sender.without),
            token=self._token,
            routing=self._routing.hexdigest(),
        )
        self._state = _State.UNKNOWN
        try:
            winner, self.winner_sent_the_same = self._metadata.commit_map(commit)
        except MrflightError as error:
            if not isinstance(error, ServerUnavailableError | DeadlineExceededError):
                self._state = _State.OPEN  # refused
            raise
        return winner

    def abort(self) -> None:
        """Stop sending, and let the servers forget this attempt as far as they can be reached.

        The blocks of an attempt that is, or may be, committed stay.
        """
        locations = self._sender.stop()
        if self._state is not _State.OPEN:
            return
        request = DiscardAttempt(self._shuffle_id, *self._source)
        for location, error in tell(locations, DataAction.DISCARD_ATTEMPT, request).items():
            # An attempt that is never committed is never read, so this costs memory only.
            log.info("%s keeps blocks of a lost attempt: %s", location, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    def _agree_on_schema(self, schema: pa.Schema) -> None:
        plain = canonical_schema(schema)
        if self._schema is None:
            self._schema = plain
        elif difference := describe_difference(self._schema, plain):
            raise SchemaMismatchError(
                f"map {self._source.map_id}: a batch does not agree with those before it: "
                f"{difference}"
            )


def _mask(target: ShuffleDescription) -> npt.NDArray[np.bool_] | None:
    """By partition, whether its rows are sent; None where all are."""
    if target.wanted is None:
        return None
    mask = np.zeros(len(target.placement), np.bool_)
    mask[target.wanted] = True
    return mask


def _goes_by_values(partitioner: Partitioner) -> bool:
    """Whether a row's partition follows from its values, wherever it stands in its map."""
    return isinstance(partitioner, HashPartitioner | RangePartitioner | OnePartitioner)
