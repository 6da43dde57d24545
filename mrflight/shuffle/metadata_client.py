"""The metadata server from a client's side."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.ids import MapAttempt
from mrflight.shuffle.calls import CALL_TIMEOUT_S, call
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.protocol import (
    CommitMap,
    CommitMapResponse,
    Done,
    DropShuffleResponse,
    Heartbeat,
    HeartbeatResponse,
    M,
    Message,
    MetadataAction,
    PartitionSize,
    PutShuffle,
    PutShuffleResponse,
    ReadTicket,
    ServerLocation,
    ShuffleDescription,
    ShuffleName,
    StatusResponse,
    Winners,
    WinnersResponse,
    decode,
    decode_ticket,
)
from mrflight.shuffle.registry import PartitionInfo


class MetadataClient:
    """Asks the metadata server at ``location``. Every call raises what the server answers."""

    def __init__(self, location: str, connections: Connections) -> None:
        self.location = location
        self._connections = connections

    def put_shuffle(self, shuffle_id: str, partitions: int, replicas: int) -> PutShuffleResponse:
        request = PutShuffle(shuffle_id, partitions, replicas)
        return self._ask(MetadataAction.PUT_SHUFFLE, request, PutShuffleResponse)

    def describe_shuffle(self, shuffle_id: str) -> ShuffleDescription:
        request = ShuffleName(shuffle_id)
        return self._ask(MetadataAction.DESCRIBE_SHUFFLE, request, ShuffleDescription)

    def drop_shuffle(self, shuffle_id: str) -> list[str]:
        """Forget the shuffle; returns the data servers that are to be told."""
        request = ShuffleName(shuffle_id)
        return self._ask(MetadataAction.DROP_SHUFFLE, request, DropShuffleResponse).locations

    def commit_map(self, commit: CommitMap) -> MapAttempt:
        """The attempt that won this map. Asking twice commits once."""
        answer = self._ask(MetadataAction.COMMIT_MAP, commit, CommitMapResponse)
        return MapAttempt(commit.map_id, answer.attempt, answer.writer)

    def winners(self, shuffle_id: str, since: int) -> list[MapAttempt]:
        request = Winners(shuffle_id, since)
        answer = self._ask(MetadataAction.WINNERS, request, WinnersResponse)
        return [MapAttempt(*winner) for winner in answer.winners]

    def register_server(self, location: str) -> None:
        self._ask(MetadataAction.REGISTER_SERVER, ServerLocation(location), Done)

    def unregister_server(self, location: str) -> None:
        self._ask(MetadataAction.UNREGISTER_SERVER, ServerLocation(location), Done)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        return self._ask(MetadataAction.HEARTBEAT, heartbeat, HeartbeatResponse)

    def status(self) -> StatusResponse:
        return self._ask(MetadataAction.STATUS, Done(), StatusResponse)

    def partitions(
        self, shuffle_id: str, only: int | None = None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        """The shuffle's schema and where its partitions are read, from its flight-info.

        The schema has no columns before the first map is committed.
        """
        path = [shuffle_id] if only is None else [shuffle_id, str(only)]
        with from_flight(self.location, "flight-info"):
            info = self._connections.to(self.location).get_flight_info(
                flight.FlightDescriptor.for_path(*path),
                flight.FlightCallOptions(timeout=CALL_TIMEOUT_S),
            )
            return info.schema, [_partition_info(endpoint) for endpoint in info.endpoints]

    def _ask(self, action: MetadataAction, request: Message, answer: type[M]) -> M:
        return call(self._connections, self.location, action, request, answer)


def _partition_info(endpoint: flight.FlightEndpoint) -> PartitionInfo:
    ticket: ReadTicket = decode_ticket(endpoint.ticket.ticket)
    size = decode(endpoint.app_metadata, PartitionSize)
    if size.partition != ticket.partition:
        raise ProtocolError(f"an endpoint's ticket and its sizes name different partitions: {size}")
    locations = tuple(location.uri.decode() for location in endpoint.locations)
    return PartitionInfo(ticket.partition, locations, ticket.epoch, size.rows, size.size_bytes)
