"""A metadata server that counts what it is asked: ``python -m experiments.scaling.metadata``.

The options are the real one's. What it has counted so far it tells who asks for `FIGURES`.
"""

from __future__ import annotations

import argparse
import threading
from collections import Counter
from typing import Any

import msgspec
from pyarrow import flight

from mrflight.config.server_options import METADATA
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_memory import tune_malloc
from servers import process
from servers.active_clock import ActiveClock
from servers.listening import listening
from servers.metadata import MetadataServer

FIGURES = "figures"

FLIGHT_INFO = "flight_info"


class Asked(msgspec.Struct):
    """By kind of message: how many, and the bytes of their bodies."""

    messages: dict[str, int]
    received: dict[str, int]
    sent: dict[str, int]


class CountingServer(MetadataServer):
    """The real one, which counts beside it."""

    def __init__(self, location: str, registry: Registry) -> None:
        self._counting = threading.Lock()
        self._messages: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        super().__init__(location, registry)

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        if action.type == FIGURES:
            with self._counting:
                asked = Asked(dict(self._messages), dict(self._received), dict(self._sent))
            return [msgspec.json.encode(asked)]
        answers = super().do_action(context, action)
        self._count(action.type, action.body.size, sum(map(len, answers)))
        return answers

    def get_flight_info(
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        info = super().get_flight_info(context, descriptor)
        self._count(FLIGHT_INFO, len(descriptor.serialize()), len(info.serialize()))
        return info

    def _count(self, kind: str, received: int, sent: int) -> None:
        with self._counting:
            self._messages[kind] += 1
            self._received[kind] += received
            self._sent[kind] += sent


def serve(options: argparse.Namespace) -> None:
    """As the real one, which takes no other server than its own."""
    tune_malloc()
    at = listening(options)
    with Journal(options.journal) as journal:
        registry = Registry(ActiveClock(), options.heartbeat_timeout, journal.record)
        registry.resume(journal.events())
        server = CountingServer(at, registry)
        location = process.public_location(server.port, at.location, options.advertise)
        running = process.Running(location, server.shutdown)
        process.run_until_stopped("metadata", running, options.drain_timeout)


if __name__ == "__main__":
    process.main(serve, METADATA)
