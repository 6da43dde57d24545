"""The metadata server from a client's side."""

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
from mrflight.ids import MapAttempt
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from mrflight.shuffle.wire.protocol import (
    CommitMap,
    CommitMapResponse,
    DescribeShuffle,
    Done,
    DropShuffleResponse,
    Heartbeat,
    HeartbeatResponse,
    M,
    Message,
    MetadataAction,
    MovePartitions,
    PartitionSize,
    PlanMove,
    PlanMoveResponse,
    PutShuffle,
    PutShuffleResponse,
    ReportLoss,
    ReportLossResponse,
    ServerLocation,
    ShuffleDescription,
    ShuffleHealth,
    ShuffleName,
    StatusResponse,
    Winners,
    WinnersResponse,
    decode,
)
from mrflight.shuffle.wire.tickets import ReadTicket, decode_ticket
from mrflight.system.retry import retry_with_backoff
from mrflight.system.signals import run_interruptibly

T = TypeVar("T")

_NO_ANSWER = (ServerUnavailableError, DeadlineExceededError)


class MetadataClient:
    """Asks the metadata server at ``location``. Every call raises what the server answers.

    A server that cannot be reached is asked again for ``retry_for_s``: it may be starting anew.
    With a shuffle's ``token`` a call is about no other shuffle of its name: ShuffleNotFoundError.
    """

    def __init__(
        self,
        location: str,
        connections: Connections,
        retry_for_s: float = 0.0,
        cancelled: threading.Event | None = None,
    ) -> None:
        """When ``cancelled`` is set, nobody has patience any more."""
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
    ) -> PutShuffleResponse:
        request = PutShuffle(shuffle_id, partitions, replicas, token, lease_s)
        return self.ask(MetadataAction.PUT_SHUFFLE, request, PutShuffleResponse)

    def describe_shuffle(
        self, shuffle_id: str, map_id: int | None = None, token: str = ""
    ) -> ShuffleDescription:
        """Where its partitions are; with a map, which of them it is to be written to."""
        request = DescribeShuffle(shuffle_id, map_id, token)
        return self.ask(MetadataAction.DESCRIBE_SHUFFLE, request, ShuffleDescription)

    def health(self, shuffle_id: str, token: str = "") -> ShuffleHealth:
        """How often the placement has changed, and which maps are lost; renews the lease."""
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
        """Whether the shuffle goes without a location now, or without some partitions there."""
        request = ReportLoss(shuffle_id, location, partitions, insists, token)
        return self.ask(MetadataAction.REPORT_LOSS, request, ReportLossResponse).is_lost

    def plan_move(self, shuffle_id: str, origin: str) -> PlanMoveResponse:
        """The partitions that only ``origin`` holds, and where they can go."""
        request = PlanMove(shuffle_id, origin)
        return self.ask(MetadataAction.PLAN_MOVE, request, PlanMoveResponse)

    def move_partitions(self, request: MovePartitions) -> None:
        """Partitions have other locations, with all that was in them."""
        self.ask(MetadataAction.MOVE_PARTITIONS, request, Done)

    def drop_shuffle(self, shuffle_id: str, token: str = "") -> list[str]:
        """Forget the shuffle; returns the data servers that are to be told.

        None of them where it was dropped when no answer came: their heartbeats tell them.
        """
        request, asked = ShuffleName(shuffle_id, token), itertools.count(1)

        def ask() -> list[str]:
            is_first = next(asked) == 1
            try:
                answer = self._call(MetadataAction.DROP_SHUFFLE, request, DropShuffleResponse)
                return answer.locations
            except ShuffleNotFoundError:
                if is_first:
                    raise
                return []

        return self._patiently(ask)

    def commit_map(self, commit: CommitMap) -> tuple[MapAttempt, bool]:
        """Who won this map, and whether that one sent the same. Asking twice commits once."""
        answer = self.ask(MetadataAction.COMMIT_MAP, commit, CommitMapResponse)
        winner = MapAttempt(commit.map_id, answer.attempt, answer.writer)
        return winner, answer.sent_the_same

    def commits(self, shuffle_id: str, since: int) -> list[MapCommit]:
        """The committed attempts from position ``since`` on, in order of their commits."""
        request = Winners(shuffle_id, since)
        answer = self.ask(MetadataAction.WINNERS, request, WinnersResponse)
        return [
            MapCommit(MapAttempt(map_id, attempt, writer), since, until)
            for map_id, attempt, writer, since, until in answer.winners
        ]

    def register_server(self, location: str, incarnation: str = "") -> None:
        """A data server takes partitions; what another one held there before is lost."""
        self.ask(MetadataAction.REGISTER_SERVER, ServerLocation(location, incarnation), Done)

    def drain_server(self, location: str) -> None:
        """A data server takes no new partitions."""
        self.ask(MetadataAction.DRAIN_SERVER, ServerLocation(location), Done)

    def unregister_server(self, location: str, incarnation: str = "") -> None:
        """A data server has stopped; what it held is lost."""
        self.ask(MetadataAction.UNREGISTER_SERVER, ServerLocation(location, incarnation), Done)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        return self.ask(MetadataAction.HEARTBEAT, heartbeat, HeartbeatResponse)

    def status(self) -> StatusResponse:
        return self.ask(MetadataAction.STATUS, Done(), StatusResponse)

    def ask(self, action: MetadataAction, request: Message, answer: type[M]) -> M:
        """What it answers, of whatever action."""
        return self._patiently(lambda: self._call(action, request, answer))

    def partitions(
        self, shuffle_id: str, only: int | None = None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        """The shuffle's schema and where its partitions are read, from its flight-info.

        The schema has no columns before the first map is committed.
        """
        return self._patiently(lambda: self._flight_info(shuffle_id, only))

    def _flight_info(
        self, shuffle_id: str, only: int | None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        path = [shuffle_id] if only is None else [shuffle_id, str(only)]
        with from_flight(self.location, "flight-info"):
            client = self._connections.to(self.location)
            descriptor = flight.FlightDescriptor.for_path(*path)
            options = flight.FlightCallOptions(timeout=self._connections.timeouts.call_s)
            info = run_interruptibly(lambda: client.get_flight_info(descriptor, options))
            return info.schema, [_partition_info(endpoint) for endpoint in info.endpoints]

    def _call(self, action: MetadataAction, request: Message, answer: type[M]) -> M:
        return call(self._connections, self.location, action, request, answer)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask until the server answers, within the patience. Every request may be repeated."""

        def ask_anew() -> T:
            try:
                return ask()
            except _NO_ANSWER:
                self._connections.forget(self.location)
                raise

        return retry_with_backoff(
            ask_anew, self._retry_for_s, _NO_ANSWER, cancelled=self._cancelled
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
