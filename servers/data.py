"""A data server: ``python -m mrflight.servers.data --metadata grpc+tcp://host:5005``."""

from __future__ import annotations

from mrflight.system.early_interrupt import leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # before the imports, which take a while

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.config.server_options import DATA
from mrflight.errors import ProtocolError
from mrflight.ids import MapAttempt, check_attempt
from mrflight.security.principal import ALL, JOBS, JOBS_AND_SERVERS, READERS
from mrflight.shuffle.store.block_memory import tune_malloc
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.store.tail_store import TailStore
from mrflight.shuffle.wire.block import WIRE_SCHEMA
from mrflight.shuffle.wire.flight_errors import answer_errors, answer_stream
from mrflight.shuffle.wire.protocol import (
    DataAction,
    DiscardAttempt,
    Done,
    Message,
    MetadataAction,
    PutReceipt,
    ShuffleName,
)
from mrflight.shuffle.wire.shared_blocks import messages
from mrflight.shuffle.wire.tail_protocol import (
    decode_tail_path,
    decode_tail_ticket,
    is_tail_path,
    is_tail_ticket,
)
from mrflight.shuffle.wire.tickets import (
    ReadTicket,
    decode_block_stream,
    decode_put_path,
    decode_ticket,
)
from mrflight.system.malloc import return_all_freed_memory

from . import process
from .actions import Actions, Handler, answer_keepalive, of_shuffle
from .block_streams import plain_rows, received_batches, received_blocks, received_messages
from .decommission import Decommission
from .guard import OF_TAIL, check_token
from .http_port import http_port
from .idle_streams import IdleStreams, StreamRules
from .listening import Listening, listening
from .membership import Membership
from .observed import ObservedData
from .rotating import RotatingServer
from .shared_memory import SharedMemory
from .spill_folder import new_spill_folder
from .tails import Tails, forgetting_abandoned

if TYPE_CHECKING:  # few servers keep event logs
    from .logs import Logs

_TAIL_SHARE = 4
"""The tails of live streams have at most one part in so many of the memory."""

_OF_METADATA = frozenset[str](MetadataAction) - frozenset[str](DataAction)


class DataServer(flight.FlightServerBase):
    """Serves a `BlockStore`; the metadata server says which shuffles and commits there are."""

    def __init__(
        self,
        listening: Listening,
        store: BlockStore,
        membership: Membership,
        memory: SharedMemory,
        rules: StreamRules,
        logs: Logs | None = None,
        tails: Tails | None = None,
    ) -> None:
        self._rules = rules
        self._logs = logs
        self._tails = tails or Tails(TailStore(store.budget_bytes // _TAIL_SHARE), rules)
        self._guard = listening.guard
        self._guard.tell(rules.idle.heard)
        self._store = store
        self._membership = membership
        self._memory = memory
        do = DataAction
        self._actions = Actions(
            {
                do.DROP_SHUFFLE: of_shuffle(ShuffleName, self._drop_shuffle, JOBS),
                do.DISCARD_ATTEMPT: of_shuffle(DiscardAttempt, self._discard_attempt, JOBS),
                do.STATS: Handler(Done, self._stats, ALL),
                do.SHARED_MEMORY: Handler(Done, lambda _: memory.offer, READERS),
                do.KEEPALIVE: Handler(Done, answer_keepalive, ALL),
                **({} if logs is None else logs.actions()),
                **self._tails.handlers,
            }
        )
        super().__init__(listening.location, **listening.options)

    @answer_errors
    def do_put(
        self,
        context: Any,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        if self._logs is not None and self._logs.takes(descriptor):
            self._logs.put(context, descriptor, received_messages(reader), writer)
            return
        principal = self._guard.caller(context, JOBS_AND_SERVERS)
        if is_tail_path(descriptor.path):
            with self._rules.idle.watched(context.peer()) as stream:
                put = decode_tail_path(descriptor.path)
                check_token(principal, put.token, OF_TAIL)
                writer.write(self._tails.put(put, stream.received(received_messages(reader))))
            return
        target = (
            decode_put_path(descriptor.path)
            if descriptor.path
            else decode_block_stream(descriptor.command or b"")
        )
        check_token(principal, target.token)
        stored = rows = 0
        # A writer learns of a refusal from its channel, too, which may not hold what it sends.
        with (
            self._memory.channel(target.channel) as channel,
            self._rules.idle.watched(context.peer()) as stream,
        ):
            self._membership.open(target.shuffle, target.token)
            if target.wants_answer:
                writer.write(b"")
            received = stream.received(received_messages(reader))
            for partition, block in (
                received_blocks(reader.schema, received, channel)
                if target.partition is None
                else received_batches(received, target.partition, self._rules)
            ):
                self._store.put(target.shuffle, partition, target.source, block)
                stored += 1
                rows += block.rows
        writer.write(msgspec.json.encode(PutReceipt(stored, rows)))

    @answer_errors
    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        if self._logs is not None and self._logs.gives(ticket):
            return self._logs.get(context, ticket)
        principal = self._guard.caller(context, READERS)
        idle, peer = self._rules.idle, context.peer()
        if is_tail_ticket(ticket.ticket):
            read = decode_tail_ticket(ticket.ticket)
            check_token(principal, read.token, OF_TAIL)
            columns, rows = self._tails.get(read)
            return flight.GeneratorStream(columns, answer_stream(idle.sent(peer, rows)))
        request = decode_ticket(ticket.ticket)
        shuffle, token = request.shuffle
        check_token(principal, token)
        self._membership.open(shuffle, token)
        attempts = self._membership.committed_attempts(shuffle, request.epoch, request.generation)
        if request.blocks:
            sent = idle.sent(peer, self._messages(request, attempts))
            return flight.GeneratorStream(WIRE_SCHEMA, answer_stream(sent))
        blocks = self._store.read(shuffle, request.partition, attempts)
        schema = self._membership.schema(shuffle, request.partition)
        plain = idle.sent(peer, plain_rows(blocks, self._store.decoded))
        return flight.GeneratorStream(schema, answer_stream(plain))

    def _messages(
        self, request: ReadTicket, attempts: Iterable[MapAttempt]
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Yield the messages of a stream of blocks."""
        tagged = (
            (partition, block)
            for partition in (request.partition, *request.others)
            for block in self._store.read(
                request.shuffle.id, partition, attempts, request.partition_slice
            )
        )
        with self._memory.channel(request.channel) as channel:
            yield from messages(tagged, channel)

    @answer_errors
    def get_flight_info(
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return this process's incarnation, for a server that copies its blocks here."""
        self._guard.caller(context, JOBS_AND_SERVERS)
        incarnation = self._membership.incarnation
        return flight.FlightInfo(WIRE_SCHEMA, descriptor, [], app_metadata=incarnation)

    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        if action.type in _OF_METADATA:
            self._guard.caller(context)
            own = self._membership
            raise ProtocolError(
                f"{own.location or 'this'} is a data server, and {action.type!r} is an action of "
                f"the metadata server; this data server's is at {own.metadata_location}"
            )
        return self._actions.answer(action, self._guard, context)

    @answer_errors
    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        self._guard.caller(context)
        return self._actions.listing()

    def _drop_shuffle(self, request: ShuffleName) -> Message:
        self._membership.forget(request.id, request.token)
        if not self._store.shuffles():
            return_all_freed_memory()  # 6 ms; 89 MiB came down to 24 while a merge ran beside it
        return Done()

    def _discard_attempt(self, request: DiscardAttempt) -> Message:
        source = check_attempt(request.map_id, request.attempt, request.writer)
        if self._store.has(request.shuffle, request.token):
            self._store.discard(request.shuffle, source)
        return Done()

    def _stats(self, _: Done) -> Message:
        return self._store.stats()


def serve(options: argparse.Namespace) -> None:
    """Run the server until SIGTERM or SIGINT."""
    with (
        serving(options, listening(options)) as running,
        http_port(options, running.observed),
    ):
        process.run_until_stopped("data", running, options.drain_timeout)


@contextmanager
def serving(options: argparse.Namespace, at: Listening) -> Iterator[process.Running]:
    """Run a server that listens ``at`` a location; its files are gone at the end."""
    tune_malloc()
    process.raise_open_file_limit()
    with (
        new_spill_folder(options.spill_dir or Path(tempfile.gettempdir())) as scratch,
        BlockStore(options.memory, scratch) as store,
        SharedMemory() as memory,
        IdleStreams(options.idle_timeout) as idle,
        _logs_of(options) as logs,
    ):
        client = ClientOptions(identity=at.identity.at(options.metadata))
        membership = Membership(store, options.metadata, client, logs.store if logs else "")
        rules = StreamRules(idle, options.compressed_puts)
        tail_store = TailStore(options.memory // _TAIL_SHARE, store.count_other_bytes)
        tails = Tails(tail_store, rules)
        if logs is not None:
            logs.begin(membership, at.guard, rules)
        server = RotatingServer(
            at, lambda at: DataServer(at, store, membership, memory, rules, logs, tails)
        )
        location = process.public_location(server.port, at.location, options.advertise)
        membership.join(location)

        def drain() -> None:
            membership.drain()
            Decommission(store, membership, options.metadata).run()
            if logs is not None:
                logs.stop()
            membership.leave()
            store.close()  # puts that wait for memory fail
            tail_store.close()
            server.shutdown()

        observed = ObservedData(store, membership, server, logs)
        with forgetting_abandoned(tail_store):
            yield process.Running(location, drain, server.reload, scratch.close, observed)


@contextmanager
def _logs_of(options: argparse.Namespace) -> Iterator[Logs | None]:
    """Open the folder of event logs, if the server has one."""
    if options.log_dir is None:
        yield None
        return
    from .logs import Logs

    with Logs(options.log_dir) as logs:
        yield logs


def main(*arguments: str) -> None:
    """Run the command with ``arguments``, or those of the command line."""
    process.main(serve, DATA, arguments or None)


if __name__ == "__main__":
    main()
