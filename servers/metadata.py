"""The metadata server: ``python -m mrflight.servers.metadata --port 5005``."""

from __future__ import annotations

from mrflight.system.early_interrupt import leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # before the imports, which take a while

import argparse
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.config.locations import is_encrypted, is_location
from mrflight.config.server_options import METADATA
from mrflight.errors import (
    JobFileError,
    JournalError,
    MrflightError,
    ProtocolError,
    ServerUnavailableError,
)
from mrflight.ids import MapAttempt, ShuffleKey, new_token
from mrflight.security.principal import ALL, JOBS, JOBS_AND_SERVERS, SERVERS
from mrflight.security.quota import Holdings, Quota
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.metadata_totals import MetadataTotals
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_memory import tune_malloc
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import (
    Heartbeat,
    HeartbeatResponse,
    ServerStats,
    StatusResponse,
)
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import answer_errors
from mrflight.shuffle.wire.lease_protocol import (
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordVersion,
)
from mrflight.shuffle.wire.move_protocol import MovePartitions, PlanMove, PlanMoveResponse
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import (
    CommitMap,
    CommitMapResponse,
    DataAction,
    DescribeShuffle,
    Done,
    DropShuffleResponse,
    ListCommits,
    ListCommitsResponse,
    Message,
    MetadataAction,
    PartitionSize,
    PartitionTarget,
    PutShuffle,
    PutShuffleResponse,
    ReportLoss,
    ReportLossResponse,
    ServerLocation,
    ShuffleName,
)
from mrflight.shuffle.wire.tickets import ReadTicket, decode_info_path
from mrflight.system.deadlines import Timeouts

from . import process
from .actions import Actions, Handler, answer_keepalive, of_shuffle
from .active_clock import ActiveClock
from .cluster_log import ClusterLog
from .guard import check_token
from .http_port import http_port
from .listening import Listening, listening
from .observed import ObservedMetadata
from .rotating import RotatingServer

if TYPE_CHECKING:
    from mrflight.shuffle.wire.log_protocol import CreateLog

log = logging.getLogger(__name__)

_PROBE = Timeouts(call_s=2.0)
"""The timeouts of a call to a data server that is reported lost."""


SHUFFLES = Quota("shuffle", 4096, 2**20)
"""A job of ten stages has ten. Their partitions take about 250 bytes each."""

LOGS = Quota("event log", 1024, 2048, "replica")
"""Each replica of a log that is appended to has a thread and open files at a data server."""


class Held:
    """What each caller holds at a metadata server."""

    def __init__(self, registry: Registry, shuffles: Quota = SHUFFLES, logs: Quota = LOGS) -> None:
        self.shuffles = Holdings(shuffles, registry.partition_count)
        self.logs = Holdings(logs, lambda key: registry.logs.replica_count(key))


class MetadataServer(flight.FlightServerBase):
    """Serves a `Registry`."""

    def __init__(self, listening: Listening, registry: Registry, held: Held | None = None) -> None:
        self._registry = registry
        self._held = held or Held(registry)
        self._guard = listening.guard
        location = listening.location
        self._probe = ClientOptions(_PROBE, "flight", listening.identity.at(location))
        self._is_local = location.startswith("grpc+unix:")
        self._is_encrypted = is_encrypted(location)
        do = MetadataAction
        self._actions = Actions(
            {
                do.PUT_SHUFFLE: Handler(PutShuffle, self._put_shuffle, JOBS, by_caller=True),
                do.DESCRIBE_SHUFFLE: of_shuffle(DescribeShuffle, self._describe_shuffle, ALL),
                do.DROP_SHUFFLE: of_shuffle(ShuffleName, self._drop_shuffle, JOBS),
                do.COMMIT_MAP: of_shuffle(CommitMap, self._commit_map, JOBS),
                do.WINNERS: of_shuffle(ListCommits, self._list_commits, ALL),
                do.REGISTER_SERVER: Handler(ServerLocation, self._register_server, SERVERS),
                do.DRAIN_SERVER: Handler(ServerLocation, self._drain_server, SERVERS),
                do.UNREGISTER_SERVER: Handler(ServerLocation, self._unregister_server, SERVERS),
                do.HEARTBEAT: Handler(Heartbeat, self._heartbeat, SERVERS),
                do.HEALTH: of_shuffle(ShuffleName, self._health, ALL),
                do.REPORT_LOSS: of_shuffle(ReportLoss, self._report_loss, JOBS_AND_SERVERS),
                do.PLAN_MOVE: Handler(PlanMove, self._plan_move, SERVERS),
                do.MOVE_PARTITIONS: Handler(MovePartitions, self._move_partitions, SERVERS),
                do.LEASE_COMMITS: Handler(LeaseCommits, registry.tables.acquire, JOBS),
                do.RELEASE_COMMITS: Handler(HeldLease, registry.tables.release, JOBS),
                do.CORRECT_VERSIONS: Handler(CorrectVersions, registry.tables.correct, JOBS),
                do.RECORD_VERSION: Handler(RecordVersion, registry.tables.record, JOBS),
                do.STATUS: Handler(Done, self._status, ALL),
                do.KEEPALIVE: Handler(Done, answer_keepalive, ALL),
            },
            self._log_actions,
        )
        super().__init__(location, **listening.options)

    def _log_actions(self) -> Mapping[str, Handler]:
        from mrflight.shuffle.wire.log_protocol import ChangeLogMembers, CreateLog, LogName

        do, logs = MetadataAction, self._registry.logs
        return {
            do.CREATE_LOG: Handler(CreateLog, self._create_log, JOBS, by_caller=True),
            do.DESCRIBE_LOG: of_shuffle(LogName, logs.describe, ALL),
            do.DROP_LOG: of_shuffle(LogName, logs.drop, JOBS),
            do.CHANGE_LOG_MEMBERS: Handler(ChangeLogMembers, logs.change_members, SERVERS),
        }

    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return self._actions.answer(action, self._guard, context)

    @answer_errors
    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        self._guard.caller(context)
        return self._actions.listing()

    @answer_errors
    def get_flight_info(
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        principal = self._guard.caller(context)
        shuffle, only = decode_info_path(descriptor.path or [])
        check_token(principal, shuffle.token)
        schema, partitions = self._registry.partitions(shuffle.id, only, shuffle.token)
        return flight.FlightInfo(
            schema if schema is not None else pa.schema([]),
            descriptor,
            [_endpoint(shuffle, info) for info in partitions],
            sum(info.rows for info in partitions),
            sum(info.size_bytes for info in partitions),
        )

    def _put_shuffle(self, request: PutShuffle, caller: str) -> Message:
        token = request.token or new_token()  # a plain client sends none
        with self._held.shuffles.adding(caller, f"{request.id}:{token}", request.reducers):
            placement = self._registry.put_shuffle(
                request.id, request.reducers, request.replicas, token, request.lease_s, request.job
            )
        name = ShuffleKey(request.id, "" if self._guard.is_open else token)
        return PutShuffleResponse(
            [
                PartitionTarget(locations[0], f"{name}/{partition}", list(locations[1:]))
                for partition, locations in enumerate(placement)
            ]
        )

    def _create_log(self, request: CreateLog, caller: str) -> Message:
        token = request.token or new_token()
        with self._held.logs.adding(caller, f"{request.name}:{token}", request.replicas):
            return self._registry.logs.create(msgspec.structs.replace(request, token=token))

    def _describe_shuffle(self, request: DescribeShuffle) -> Message:
        return self._registry.describe_shuffle(request.id, request.map_id, request.token)

    def _health(self, request: ShuffleName) -> Message:
        return self._registry.health(request.id, request.token)

    def _report_loss(self, request: ReportLoss) -> Message:
        """Accept a report of single partitions, which only readers can know; check others."""
        is_whole = request.partitions is None
        incarnation = self._registry.incarnation(request.location)
        if is_whole and not request.insists and incarnation is not None:
            try:
                with Connections(self._probe) as connections:
                    call(connections, request.location, DataAction.STATS, Done(), ServerStats)
                return ReportLossResponse(is_lost=False)
            except ServerUnavailableError as error:  # no process listens there any more
                log.info("%s is gone: %s", request.location, error)
                self._registry.unregister_server(request.location, incarnation)
            except MrflightError as error:
                log.info("%s does not answer: %s", request.location, error)
        loss = Loss(request.location, request.partitions, avoids=request.insists)
        self._registry.report_loss(request.id, loss, request.token)
        return ReportLossResponse(is_lost=True)

    def _plan_move(self, request: PlanMove) -> Message:
        return PlanMoveResponse(*self._registry.moves.plan(request.id, request.origin))

    def _move_partitions(self, request: MovePartitions) -> Message:
        if len(request.partitions) != len(request.targets):
            raise ProtocolError("move_partitions: there must be one target for each partition")
        moves = dict(zip(request.partitions, request.targets, strict=True))
        self._registry.moves.record(
            request.id, moves, request.origin, request.epoch, request.version
        )
        return Done()

    def _drop_shuffle(self, request: ShuffleName) -> Message:
        return DropShuffleResponse(self._registry.drop_shuffle(request.id, request.token))

    def _commit_map(self, request: CommitMap) -> Message:
        attempt = MapAttempt(request.map_id, request.attempt, request.writer)
        committed = self._registry.commit_map(request)
        if committed == attempt:
            return CommitMapResponse(*committed[1:])
        return CommitMapResponse(*committed[1:], self._registry.has_same_output(request))

    def _list_commits(self, request: ListCommits) -> Message:
        commits = self._registry.commits(request.id, request.since, request.token)
        return ListCommitsResponse([(*source, since, until) for source, since, until in commits])

    def _register_server(self, request: ServerLocation) -> Message:
        if not is_location(request.location):
            raise ProtocolError(f"register_server: {request.location!r} is not a location")
        self._check_encrypted(request.location)
        if request.location.startswith("grpc+unix:"):
            self._check_socket(request.location)
        self._registry.register_server(request.location, request.incarnation, request.log_store)
        return Done()

    def _check_encrypted(self, location: str) -> None:
        """Refuse a server in the clear; a journal may have one from before this server encrypted.

        Without heartbeats it is then declared lost.
        """
        if self._is_encrypted and not is_encrypted(location):
            raise ProtocolError(
                f"{location!r} does not encrypt, and this metadata server does; start that data "
                "server with --tls-certificate and --tls-key, or correct its --advertise"
            )

    def _check_socket(self, location: str) -> None:
        if not self._is_local:
            # Clients of other machines would look for the socket among files of their own.
            raise ProtocolError(
                f"register_server: {location!r} is a path, and this metadata server listens on a "
                "port; let the data server listen on a port as well"
            )
        if not Path(location.removeprefix("grpc+unix://")).is_socket():
            raise ProtocolError(f"register_server: {location!r} is not a socket of this machine")

    def _drain_server(self, request: ServerLocation) -> Message:
        self._registry.drain_server(request.location)
        return Done()

    def _unregister_server(self, request: ServerLocation) -> Message:
        self._registry.unregister_server(request.location, request.incarnation)
        return Done()

    def _heartbeat(self, request: Heartbeat) -> Message:
        self._check_encrypted(request.location)
        return HeartbeatResponse(
            *self._registry.heartbeat(
                request.location,
                request.shuffles,
                request.stored_bytes,
                request.incarnation,
                request.tokens,
                request.use,
            )
        )

    def _status(self, _: Done) -> Message:
        seen = self._registry.overview
        servers = seen.servers()  # which notices that some are lost
        return StatusResponse(servers, seen.shuffles(), time.time(), seen.lost_servers())


def _endpoint(shuffle: ShuffleKey, info: PartitionInfo) -> flight.FlightEndpoint:
    ticket = ReadTicket(shuffle, info.partition, info.epoch, generation=info.generation).encode()
    size = msgspec.json.encode(PartitionSize(info.partition, info.rows, info.size_bytes))
    return flight.FlightEndpoint(ticket, list(info.locations), app_metadata=size)


def serve(options: argparse.Namespace) -> None:
    """Run the server until SIGTERM or SIGINT."""
    with (
        serving(options, listening(options)) as running,
        http_port(options, running.observed),
    ):
        process.run_until_stopped("metadata", running, options.drain_timeout)


@contextmanager
def serving(options: argparse.Namespace, at: Listening) -> Iterator[process.Running]:
    """Run a server that listens ``at`` a location.

    Raises JobFileError if its journal is in use, damaged, or not a journal.
    """
    tune_malloc()  # or the memory of large requests and answers would be kept
    process.raise_open_file_limit()
    totals, log_of_cluster = MetadataTotals(), ClusterLog()

    def note(event: AnyEvent) -> None:
        totals.count(event)
        log_of_cluster.note(event)

    with _registry(options, note) as registry:
        held = Held(registry)
        server = RotatingServer(at, lambda at: MetadataServer(at, registry, held))
        location = process.public_location(server.port, at.location, options.advertise)
        observed = ObservedMetadata(registry.overview, totals, log_of_cluster, server)
        yield process.Running(location, server.shutdown, server.reload, observed=observed)


@contextmanager
def _registry(options: argparse.Namespace, note: Callable[[AnyEvent], None]) -> Iterator[Registry]:
    """Return an empty registry, or one with the contents of the journal.

    ``note`` is called with each event that is recorded.
    """
    if options.journal is None:
        yield Registry(ActiveClock(), options.heartbeat_timeout, note)
        return
    with Journal(options.journal) as journal:

        def record(event: AnyEvent) -> None:
            journal.record(event)
            note(event)

        registry = Registry(ActiveClock(), options.heartbeat_timeout, record)
        try:
            registry.resume(journal.events())
        except JournalError as error:
            raise JobFileError(str(error)) from error
        yield registry


def main(*arguments: str) -> None:
    """Run the command with ``arguments``, or those of the command line."""
    process.main(serve, METADATA, arguments or None)


if __name__ == "__main__":
    main()
