"""Sends one map attempt's rows to the data servers of their partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import (
    AttemptLostError,
    DeadlineExceededError,
    MrflightError,
    ProtocolError,
    SchemaMismatchError,
    ServerUnavailableError,
)
from mrflight.ids import MapAttempt
from mrflight.schemas import describe_difference
from mrflight.shuffle.block import WIRE_SCHEMA, Block, BlockTag, encode_block, ipc_options, to_wire
from mrflight.shuffle.calls import STREAM_TIMEOUT_S, call
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.layout import plain_batch, plain_schema
from mrflight.shuffle.metadata_client import MetadataClient
from mrflight.shuffle.partitioners import Partitioner
from mrflight.shuffle.protocol import (
    BlockStream,
    CommitMap,
    DataAction,
    DiscardAttempt,
    Done,
    PutReceipt,
    decode,
)

log = logging.getLogger(__name__)

BLOCK_BYTES = 2**20
"""A partition's rows are sent when they weigh this much: see experiments/transport.py."""

BUFFER_BYTES = 64 * 2**20
"""What a writer holds of all partitions before it sends blocks that are smaller."""

_DECODED_ROWS = 2**18
"""Of a batch at a time, as a dictionary's values are larger than they look: with 32-bit offsets
they may have 8 KiB each."""


class _State(Enum):
    """How far a writer's attempt has come."""

    OPEN = "open"
    UNKNOWN = "the commit was asked for"
    COMMITTED = "committed"


class ShuffleWriter:
    """Writes the rows of one map attempt; made by `Shuffle.writer`.

    Use it as a context manager: leaving the block cleanly commits the attempt,
    leaving it by an exception makes the servers forget it. Not for several
    threads. Blocks while a data server catches up.
    """

    def __init__(
        self,
        shuffle_id: str,
        source: MapAttempt,
        partitioner: Partitioner,
        placement: Sequence[Sequence[str]],
        metadata: MetadataClient,
        connections: Connections,
        compression: str = "none",
    ) -> None:
        self._shuffle_id = shuffle_id
        self._source = source
        self._partitioner = partitioner
        self._placement = placement
        self._metadata = metadata
        self._connections = connections
        self._options = ipc_options(compression)
        self._schema: pa.Schema | None = None
        self._buffers = _PartitionBuffers(len(placement))
        self._streams: dict[str, _BlockStream] = {}
        self._rows: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        self._bytes: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        self._state = _State.OPEN

    @property
    def bytes_written(self) -> int:
        """Bytes of all blocks sent so far, replicas not counted."""
        return int(self._bytes.sum())

    def write(self, batch: pa.RecordBatch) -> None:
        """Partition a batch and send what has become large enough.

        All batches have one schema; SchemaMismatchError otherwise. The batch
        may be of any layout: dictionary and view columns are sent plain.
        """
        self._agree_on_schema(batch.schema)
        for start in range(0, batch.num_rows, _DECODED_ROWS):
            self._write(batch.slice(start, _DECODED_ROWS))

    def _write(self, batch: pa.RecordBatch) -> None:
        plain = plain_batch(batch, self._schema)
        if plain.nbytes > BUFFER_BYTES and plain.num_rows > 1:
            half = plain.num_rows // 2
            self._write(plain.slice(0, half))
            self._write(plain.slice(half))
            return
        indices, offsets = self._partitioner.place(batch)  # a dictionary is hashed once as it is
        for partition in self._buffers.add(plain.take(indices), offsets.to_numpy()):
            self._send(partition, self._buffers.take(partition))
        if self._buffers.held_bytes > BUFFER_BYTES:
            self._send_all()

    def commit(self) -> None:
        """Send what is left and commit the attempt; nothing happens where it is committed.

        AttemptLostError where another attempt of this map, or another writer
        of this one, has won.
        """
        if self._state is _State.COMMITTED:
            return
        self._send_all()
        for stream in self._streams.values():
            stream.finish()
        winner = self._ask_for_the_commit()
        if winner == self._source:
            self._state = _State.COMMITTED
            return
        self._state = _State.OPEN
        self.abort()
        raise AttemptLostError(
            f"map {self._source.map_id} of shuffle {self._shuffle_id!r}: attempt {winner.attempt} "
            f"has been committed before this writer's attempt {self._source.attempt}"
        )

    def _ask_for_the_commit(self) -> MapAttempt:
        """The winner of this map. Where no answer comes, it is asked for once more.

        Without any answer the attempt may be committed, so that its blocks must stay.
        """
        commit = CommitMap(
            self._shuffle_id,
            self._source.map_id,
            self._source.attempt,
            schema=(self._schema or pa.schema([])).serialize().to_pybytes(),
            rows=self._rows.tolist(),
            size_bytes=self._bytes.tolist(),
            writer=self._source.writer,
        )
        self._state = _State.UNKNOWN
        try:
            try:
                return self._metadata.commit_map(commit)
            except (ServerUnavailableError, DeadlineExceededError):
                return self._metadata.commit_map(commit)
        except MrflightError as error:
            if not isinstance(error, ServerUnavailableError | DeadlineExceededError):
                self._state = _State.OPEN  # refused
            raise

    def abort(self) -> None:
        """Stop sending, and let the servers forget this attempt as far as they can be reached.

        The blocks of an attempt that is, or may be, committed stay.
        """
        for location, stream in self._streams.items():
            stream.cancel()
            if self._state is not _State.OPEN:
                continue
            request = DiscardAttempt(self._shuffle_id, *self._source)
            try:
                call(self._connections, location, DataAction.DISCARD_ATTEMPT, request, Done)
            except MrflightError as error:
                # An attempt that is never committed is never read, so this costs memory only.
                log.warning("%s keeps blocks of a lost attempt: %s", location, error)
        self._streams.clear()

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
            self._connections.close()

    def _agree_on_schema(self, schema: pa.Schema) -> None:
        plain = plain_schema(schema)
        if self._schema is None:
            self._schema = plain
        elif difference := describe_difference(self._schema, plain):
            raise SchemaMismatchError(
                f"map {self._source.map_id}: a batch does not agree with those before it: "
                f"{difference}"
            )

    def _send_all(self) -> None:
        for partition, slices in self._buffers.take_all():
            self._send(partition, slices)

    def _send(self, partition: int, slices: list[pa.RecordBatch]) -> None:
        block = encode_block(slices, self._options)
        for location in self._placement[partition]:
            self._stream_to(location).send(partition, block)
        self._rows[partition] += block.rows
        self._bytes[partition] += block.body.size

    def _stream_to(self, location: str) -> _BlockStream:
        stream = self._streams.get(location)
        if stream is None:
            client = self._connections.to(location)
            stream = _BlockStream(client, location, self._shuffle_id, self._source)
            self._streams[location] = stream
        return stream


class _PartitionBuffers:
    """Rows by partition that are not sent yet: slices of the batches that were added.

    A slice keeps its whole batch in memory, so what is held is counted in
    batches, and is let go of when all partitions have been taken.
    """

    def __init__(self, partitions: int) -> None:
        self._slices: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        self._bytes: npt.NDArray[np.float64] = np.zeros(partitions)
        self.held_bytes = 0

    def add(self, batch: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> list[int]:
        """Add a batch whose rows are in order of partitions; the partitions that are full now."""
        row_bytes = batch.nbytes / batch.num_rows
        counts = np.diff(offsets)
        for partition in np.flatnonzero(counts).tolist():
            self._slices[partition].append(batch.slice(offsets[partition], counts[partition]))
        self._bytes += counts * row_bytes
        self.held_bytes += batch.nbytes
        full: list[int] = np.flatnonzero(self._bytes >= BLOCK_BYTES).tolist()
        return full

    def take(self, partition: int) -> list[pa.RecordBatch]:
        """The slices of a partition, which the buffers forget."""
        slices, self._slices[partition] = self._slices[partition], []
        self._bytes[partition] = 0.0
        return slices

    def take_all(self) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
        """Every partition that has rows, with its slices."""
        for partition, slices in enumerate(self._slices):
            if slices:
                yield partition, self.take(partition)
        self.held_bytes = 0


class _BlockStream:
    """One DoPut of blocks to one data server."""

    def __init__(
        self, client: flight.FlightClient, location: str, shuffle_id: str, source: MapAttempt
    ) -> None:
        self._location = location
        self._doing = f"put of map {source.map_id}, attempt {source.attempt}"
        descriptor = flight.FlightDescriptor.for_command(BlockStream(shuffle_id, *source).encode())
        self._blocks = 0
        self._rows = 0
        with from_flight(location, self._doing):
            self._writer, self._reader = client.do_put(
                descriptor, WIRE_SCHEMA, flight.FlightCallOptions(timeout=STREAM_TIMEOUT_S)
            )

    def send(self, partition: int, block: Block) -> None:
        tag = BlockTag(partition, block.rows)
        with from_flight(self._location, self._doing):
            self._writer.write_with_metadata(to_wire(block), tag.encode())
        self._blocks += 1
        self._rows += block.rows

    def finish(self) -> None:
        """Wait until the server has stored every block that was sent."""
        with from_flight(self._location, self._doing):
            self._writer.done_writing()
            body = self._reader.read()
            self._writer.close()
        receipt = decode(memoryview(body), PutReceipt) if body is not None else PutReceipt(0, 0)
        if (receipt.blocks, receipt.rows) != (self._blocks, self._rows):
            raise ProtocolError(
                f"{self._doing}: {self._location} stored {receipt.blocks} blocks and "
                f"{receipt.rows} rows of {self._blocks} and {self._rows}"
            )

    def cancel(self) -> None:
        """End the stream whatever its state; what the server says of it is of no use any more."""
        try:
            self._writer.close()
        except (flight.FlightError, pa.ArrowException) as error:
            log.debug("%s ended: %s", self._doing, error)
