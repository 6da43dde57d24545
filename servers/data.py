"""A data server: ``python -m mrflight.servers.data --metadata grpc+tcp://host:5005``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.ids import check_attempt
from mrflight.quantities import parse_bytes
from mrflight.shuffle.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    decode_block,
    encode_block,
    from_wire,
    ipc_options,
    to_wire,
)
from mrflight.shuffle.flight_errors import answer_errors, to_flight
from mrflight.shuffle.layout import plain_batch, plain_schema
from mrflight.shuffle.protocol import (
    DataAction,
    DiscardAttempt,
    Done,
    Message,
    PutReceipt,
    ReadTicket,
    ServerStats,
    ShuffleName,
    decode_block_stream,
    decode_put_path,
    decode_ticket,
)
from mrflight.shuffle.store import BlockStore

from . import process
from .actions import Actions
from .membership import Membership


class DataServer(flight.FlightServerBase):
    """Answers for a `BlockStore`; what shuffles there are, and who won, it hears from metadata."""

    def __init__(self, location: str, store: BlockStore, membership: Membership) -> None:
        self._store = store
        self._membership = membership
        self._actions = Actions(
            {
                DataAction.DROP_SHUFFLE: (ShuffleName, self._drop_shuffle),
                DataAction.DISCARD_ATTEMPT: (DiscardAttempt, self._discard_attempt),
                DataAction.STATS: (Done, self._stats),
            }
        )
        super().__init__(location)

    @answer_errors
    def do_put(
        self,
        context: Any,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        target = (
            decode_put_path(descriptor.path)
            if descriptor.path
            else decode_block_stream(descriptor.command or b"")
        )
        self._membership.open(target.shuffle)
        blocks = _blocks(reader) if target.partition is None else _batches(reader, target.partition)
        stored = rows = 0
        for partition, block in blocks:
            self._store.put(target.shuffle, partition, target.source, block)
            stored += 1
            rows += block.rows
        writer.write(msgspec.json.encode(PutReceipt(stored, rows)))

    @answer_errors
    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        wanted = decode_ticket(ticket.ticket)
        self._membership.open(wanted.shuffle)
        attempts = self._membership.winners(wanted.shuffle, wanted.epoch)
        blocks = self._store.read(wanted.shuffle, wanted.partition, attempts)
        if wanted.blocks:
            return flight.GeneratorStream(WIRE_SCHEMA, _tagged(wanted, blocks))
        schema = self._membership.schema(wanted.shuffle)
        return flight.GeneratorStream(schema, _decoded(blocks))

    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return self._actions.answer(action)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return self._actions.listing()

    def _drop_shuffle(self, request: ShuffleName) -> Message:
        self._membership.forget(request.id)
        return Done()

    def _discard_attempt(self, request: DiscardAttempt) -> Message:
        source = check_attempt(request.map_id, request.attempt, request.writer)
        self._store.discard(request.shuffle, source)
        return Done()

    def _stats(self, _: Done) -> Message:
        stats = self._store.stats()
        return ServerStats(stats.shuffles, stats.blocks, stats.size_bytes)


def _blocks(reader: flight.MetadataRecordBatchReader) -> Iterator[tuple[int, Block]]:
    """A stream of tagged blocks, as our own writer sends it."""
    if reader.schema != WIRE_SCHEMA:
        raise ProtocolError(f"a stream of blocks has the schema {WIRE_SCHEMA}, not {reader.schema}")
    for message in reader:
        tag = BlockTag.decode(message.app_metadata)
        yield tag.partition, from_wire(message.data, tag.rows)


def _batches(
    reader: flight.MetadataRecordBatchReader, partition: int
) -> Iterator[tuple[int, Block]]:
    """A plain client's stream of record batches, all for one partition."""
    options = ipc_options("none")
    for message in reader:
        message.data.validate(full=True)
        batch = plain_batch(message.data, plain_schema(message.data.schema))
        yield partition, encode_block([batch], options)


def _tagged(wanted: ReadTicket, blocks: list[Block]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    for block in blocks:
        yield to_wire(block), BlockTag(wanted.partition, block.rows).encode()


def _decoded(blocks: list[Block]) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        try:
            yield decode_block(block)
        except ProtocolError as error:  # a generator runs outside of its handler
            raise to_flight(error) from error


def serve(options: argparse.Namespace) -> None:
    """Run the server until it is told to stop."""
    store = BlockStore()
    membership = Membership(store, options.metadata)
    server = DataServer(process.listen_location(options), store, membership)
    location = process.public_location(server, options)
    membership.join(location)

    def drain() -> None:
        membership.leave()
        server.shutdown()

    process.run_until_stopped("data", location, options, drain)


def parser() -> argparse.ArgumentParser:
    """The options of a data server."""
    options = process.arguments("An mrflight data server.", default_port=0)
    options.add_argument("--metadata", required=True, help="location of the metadata server")
    options.add_argument("--memory", type=parse_bytes, default="2 GiB", help="not enforced yet")
    options.add_argument("--spill-dir", type=Path, help="not used yet")
    return options


if __name__ == "__main__":
    process.main(serve, parser())
