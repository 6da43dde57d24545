"""A client of the metadata server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import (
    DeadlineExceededError,
    ProtocolError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt, ShuffleKey
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import Heartbeat, HeartbeatResponse, StatusResponse
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.move_protocol import MovePartitions, PlanMove, PlanMoveResponse
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from mrflight.shuffle.wire.protocol import (
    CommitMap,
    CommitMapResponse,
    DescribeShuffle,
    Done,
    DropShuffleResponse,
    ListCommits,
    ListCommitsResponse,
    M,
    Message,
    MetadataAction,
    PartitionSize,
    PutShuffle,
    PutShuffleResponse,
    ReportLoss,
    ReportLossResponse,
    ServerLocation,
    ShuffleDescription,
    ShuffleHealth,
    ShuffleName,
    decode,
)
from mrflight.shuffle.wire.tickets import ReadTicket, decode_ticket
from mrflight.system.retry import retry_with_backoff
from mrflight.system.signals import run_interruptibly

T = TypeVar("T")

_NO_ANSWER = (ServerUnavailableError, DeadlineExceededError)


class MetadataClient:
    """Calls the metadata server at ``location``. Every call raises the server's error.

    A server that cannot be reached is retried for ``retry_for_s``, as it may be restarting. With a
    shuffle's ``token``, a call raises ShuffleNotFoundError if its name now belongs to another
    shuffle.
    """

    def __init__(
        self,
        location: str,
        connections: Connections,
        retry_for_s: float = 0.0,
        cancelled: threading.Event | None = None,
    ) -> None:
        """When ``cancelled`` is set, calls are not retried any more."""
        self.location = location
        self._cancelled = cancelled or threading.Event()
        self._connections = connections
        self._retry_for_s = retry_for_s

    def put_shuffle(
        self,
        shuffle_id: str,
        partitions: int,
        replicas: int,
        token: str = "",
        lease_s: float | None = None,
        job: str = "",
    ) -> PutShuffleResponse:
        request = PutShuffle(shuffle_id, partitions, replicas, token, lease_s, job)
        return self.ask(MetadataAction.PUT_SHUFFLE, request, PutShuffleResponse)

    def describe_shuffle(
        self, shuffle_id: str, map_id: int | None = None, token: str = ""
    ) -> ShuffleDescription:
        """Return where the partitions are, and with a map which of them lack its rows."""
        request = DescribeShuffle(shuffle_id, map_id, token)
        return self.ask(MetadataAction.DESCRIBE_SHUFFLE, request, ShuffleDescription)

    def health(self, shuffle_id: str, token: str = "") -> ShuffleHealth:
        """Return the placement's version and the lost maps; renews the shuffle's lease."""
        return self.ask(MetadataAction.HEALTH, ShuffleName(shuffle_id, token), ShuffleHealth)

    def report_loss(
        self,
        shuffle_id: str,
        location: str,
        partitions: list[int] | None = None,
        *,
        insists: bool = False,
        token: str = "",
    ) -> bool:
        """Report lost output; return whether the placement no longer has that location."""
        request = ReportLoss(shuffle_id, location, partitions, insists, token)
        return self.ask(MetadataAction.REPORT_LOSS, request, ReportLossResponse).is_lost

    def plan_move(self, shuffle_id: str, origin: str) -> PlanMoveResponse:
        """Return the partitions that only ``origin`` holds, and where they can go."""
        request = PlanMove(shuffle_id, origin)
        return self.ask(MetadataAction.PLAN_MOVE, request, PlanMoveResponse)

    def move_partitions(self, request: MovePartitions) -> None:
        """Move partitions to locations where all their blocks have been copied."""
        self.ask(MetadataAction.MOVE_PARTITIONS, request, Done)

    def drop_shuffle(self, shuffle_id: str, token: str = "") -> list[str]:
        """Drop the shuffle, and return the data servers that must drop it as well.

        There are none if a retry finds it dropped; the servers then learn it from a heartbeat.
        """
        request, attempts = ShuffleName(shuffle_id, token), itertools.count(1)

        def drop() -> list[str]:
            is_first = next(attempts) == 1
            try:
                answer = self._call(MetadataAction.DROP_SHUFFLE, request, DropShuffleResponse)
                return answer.locations
            except ShuffleNotFoundError:
                if is_first:
                    raise
                return []

        return self._retry(drop)

    def commit_map(self, commit: CommitMap) -> tuple[MapAttempt, bool]:
        """Commit a map; return the attempt that won, and whether it sent the same.

        A repeated call commits once.
        """
        answer = self.ask(MetadataAction.COMMIT_MAP, commit, CommitMapResponse)
        winner = MapAttempt(commit.map_id, answer.attempt, answer.writer)
        return winner, answer.sent_the_same

    def commits(self, shuffle_id: str, since: int, token: str = "") -> list[MapCommit]:
        """Return the committed attempts from position ``since`` on, in order of their commits."""
        request = ListCommits(shuffle_id, since, token)
        answer = self.ask(MetadataAction.WINNERS, request, ListCommitsResponse)
        return [
            MapCommit(MapAttempt(map_id, attempt, writer), since, until)
            for map_id, attempt, writer, since, until in answer.commits
        ]

    def register_server(self, location: str, incarnation: str = "", log_store: str = "") -> None:
        """Register a data server; what another process held at this location is lost."""
        request = ServerLocation(location, incarnation, log_store)
        self.ask(MetadataAction.REGISTER_SERVER, request, Done)

    def drain_server(self, location: str) -> None:
        """Place no new partitions on a data server."""
        self.ask(MetadataAction.DRAIN_SERVER, ServerLocation(location), Done)

    def unregister_server(self, location: str, incarnation: str = "") -> None:
        """Remove a data server that has stopped; what it held is lost."""
        self.ask(MetadataAction.UNREGISTER_SERVER, ServerLocation(location, incarnation), Done)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        return self.ask(MetadataAction.HEARTBEAT, heartbeat, HeartbeatResponse)

    def status(self) -> StatusResponse:
        return self.ask(MetadataAction.STATUS, Done(), StatusResponse)

    def ask(self, action: MetadataAction, request: Message, answer: type[M]) -> M:
        """Call any action, and return its answer."""
        return self._retry(lambda: self._call(action, request, answer))

    def partitions(
        self, shuffle_id: str, only: int | None = None, token: str = ""
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        """Return the shuffle's schema and where to read its partitions, from its flight-info.

        The schema has no columns before the first map is committed.
        """
        return self._retry(lambda: self._flight_info(ShuffleKey(shuffle_id, token), only))

    def _flight_info(
        self, shuffle: ShuffleKey, only: int | None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        path = [str(shuffle)] if only is None else [str(shuffle), str(only)]
        with from_flight(self.location, "flight-info"):
            client = self._connections.to(self.location)
            descriptor = flight.FlightDescriptor.for_path(*path)
            options = flight.FlightCallOptions(timeout=self._connections.timeouts.call_s)
            info = run_interruptibly(lambda: client.get_flight_info(descriptor, options))
            return info.schema, [_partition_info(endpoint) for endpoint in info.endpoints]

    def _call(self, action: MetadataAction, request: Message, answer: type[M]) -> M:
        return call(self._connections, self.location, action, request, answer)

    def _retry(self, request: Callable[[], T]) -> T:
        """Retry a request until the server answers. Every request may be repeated."""

        def over_new_connection() -> T:
            try:
                return request()
            except _NO_ANSWER:
                self._connections.forget(self.location)
                raise

        return retry_with_backoff(
            over_new_connection, self._retry_for_s, _NO_ANSWER, cancelled=self._cancelled
        )


def _partition_info(endpoint: flight.FlightEndpoint) -> PartitionInfo:
    ticket: ReadTicket = decode_ticket(endpoint.ticket.ticket)
    size = decode(endpoint.app_metadata, PartitionSize)
    if size.partition != ticket.partition:
        raise ProtocolError(f"an endpoint's ticket and its sizes name different partitions: {size}")
    locations = tuple(location.uri.decode() for location in endpoint.locations)
    return PartitionInfo(
        ticket.partition, locations, ticket.epoch, size.rows, size.size_bytes, ticket.generation
    )
