"""The metadata server: ``python -m mrflight.servers.metadata --port 5005``."""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.ids import MapAttempt
from mrflight.shuffle.flight_errors import answer_errors
from mrflight.shuffle.protocol import (
    CommitMap,
    CommitMapResponse,
    Done,
    DropShuffleResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    MetadataAction,
    PartitionSize,
    PartitionTarget,
    PutShuffle,
    PutShuffleResponse,
    ReadTicket,
    ServerLocation,
    ServerStatus,
    ShuffleDescription,
    ShuffleName,
    ShuffleStatus,
    StatusResponse,
    Winners,
    WinnersResponse,
    decode_info_path,
)
from mrflight.shuffle.registry import PartitionInfo, Registry

from . import process
from .actions import Actions

SERVER_TIMEOUT_S = 10.0
"""A data server that has not been heard of for so long gets no new partitions."""


class MetadataServer(flight.FlightServerBase):
    """Answers for a `Registry`."""

    def __init__(self, location: str, registry: Registry) -> None:
        self._registry = registry
        self._actions = Actions(
            {
                MetadataAction.PUT_SHUFFLE: (PutShuffle, self._put_shuffle),
                MetadataAction.DESCRIBE_SHUFFLE: (ShuffleName, self._describe_shuffle),
                MetadataAction.DROP_SHUFFLE: (ShuffleName, self._drop_shuffle),
                MetadataAction.COMMIT_MAP: (CommitMap, self._commit_map),
                MetadataAction.WINNERS: (Winners, self._winners),
                MetadataAction.REGISTER_SERVER: (ServerLocation, self._register_server),
                MetadataAction.UNREGISTER_SERVER: (ServerLocation, self._unregister_server),
                MetadataAction.HEARTBEAT: (Heartbeat, self._heartbeat),
                MetadataAction.STATUS: (Done, self._status),
            }
        )
        super().__init__(location)

    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return self._actions.answer(action)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return self._actions.listing()

    @answer_errors
    def get_flight_info(
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        shuffle_id, only = decode_info_path(descriptor.path or [])
        schema, partitions = self._registry.partitions(shuffle_id, only)
        return flight.FlightInfo(
            schema if schema is not None else pa.schema([]),
            descriptor,
            [_endpoint(shuffle_id, info) for info in partitions],
            sum(info.rows for info in partitions),
            sum(info.size_bytes for info in partitions),
        )

    def _put_shuffle(self, request: PutShuffle) -> Message:
        state = self._registry.put_shuffle(request.id, request.reducers, request.replicas)
        return PutShuffleResponse(
            [
                PartitionTarget(locations[0], f"{request.id}/{partition}", list(locations[1:]))
                for partition, locations in enumerate(state.placement)
            ]
        )

    def _describe_shuffle(self, request: ShuffleName) -> Message:
        placement = self._registry.placement(request.id)
        locations = sorted({location for locations in placement for location in locations})
        position = {location: i for i, location in enumerate(locations)}
        return ShuffleDescription(
            request.id, locations, [[position[location] for location in at] for at in placement]
        )

    def _drop_shuffle(self, request: ShuffleName) -> Message:
        return DropShuffleResponse(self._registry.drop_shuffle(request.id))

    def _commit_map(self, request: CommitMap) -> Message:
        source = MapAttempt(request.map_id, request.attempt, request.writer)
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(request.schema))
        except (pa.ArrowException, OSError) as error:
            raise ProtocolError(f"commit_map: the schema is none: {error}") from error
        winner = self._registry.commit_map(
            request.id, source, schema, request.rows, request.size_bytes
        )
        return CommitMapResponse(winner.attempt, winner.writer)

    def _winners(self, request: Winners) -> Message:
        winners = self._registry.winners(request.id, request.since)
        return WinnersResponse([(won.map_id, won.attempt, won.writer) for won in winners])

    def _register_server(self, request: ServerLocation) -> Message:
        self._registry.register_server(request.location)
        return Done()

    def _unregister_server(self, request: ServerLocation) -> Message:
        self._registry.unregister_server(request.location)
        return Done()

    def _heartbeat(self, request: Heartbeat) -> Message:
        return HeartbeatResponse(
            *self._registry.heartbeat(request.location, request.shuffles, request.stored_bytes)
        )

    def _status(self, _: Done) -> Message:
        return StatusResponse(
            [ServerStatus(*server) for server in self._registry.servers()],
            [
                ShuffleStatus(
                    state.id,
                    len(state.placement),
                    len(state.winners),
                    int(state.rows.sum()),
                    int(state.size_bytes.sum()),
                )
                for state in self._registry.shuffles()
            ],
        )


def _endpoint(shuffle_id: str, info: PartitionInfo) -> flight.FlightEndpoint:
    ticket = ReadTicket(shuffle_id, info.partition, info.epoch).encode()
    size = msgspec.json.encode(PartitionSize(info.partition, info.rows, info.size_bytes))
    return flight.FlightEndpoint(ticket, list(info.locations), app_metadata=size)


def serve(options: argparse.Namespace) -> None:
    """Run the server until it is told to stop."""
    registry = Registry(time.monotonic, SERVER_TIMEOUT_S)
    server = MetadataServer(process.listen_location(options), registry)
    location = process.public_location(server, options)
    process.run_until_stopped("metadata", location, server.shutdown, options.drain_timeout)


def main(*arguments: str) -> None:
    """The command, with ``arguments`` or those of the command line."""
    parser = process.arguments("An mrflight metadata server.", default_port=5005)
    process.main(serve, parser, arguments or None)


if __name__ == "__main__":
    main()
