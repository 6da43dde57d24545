"""Data servers of which there is nothing but what they say to the metadata server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import Heartbeat
from mrflight.system.deadlines import Timeouts
from servers.membership import HEARTBEAT_S, HEARTBEAT_TIMEOUT_S

_THREADS = 4
"""That beat for all: each server has its own connection, as a real one has."""


class PlayedServer:
    """One data server's membership: registers, and beats."""

    def __init__(self, metadata: str, location: str) -> None:
        self.location = location
        self._metadata = metadata
        self._connections = Connections(Timeouts(call_s=HEARTBEAT_TIMEOUT_S))
        self._client = MetadataClient(metadata, self._connections)
        self._incarnation = location.encode().hex()[-16:]
        self._held: dict[str, str] = {}
        self._has_left = False

    def register(self) -> None:
        self._client.register_server(self.location, self._incarnation)

    def hold(self, shuffle_id: str, token: str) -> None:
        """From now on it says that it has blocks of this shuffle."""
        self._held[shuffle_id] = token

    def beat(self) -> None:
        """What `servers.membership.Membership` sends; a server that is given up is an error."""
        tokens = dict(self._held)
        held = Heartbeat(
            self.location, list(tokens), 50 * 2**30, self._incarnation, list(tokens.values())
        )
        if not self._client.heartbeat(held).registered and not self._has_left:
            raise AssertionError(f"{self.location} was given up, though it has beaten")

    def leave(self) -> None:
        """What a server says that ends; who is killed says nothing, and is given up after 10 s."""
        self._has_left = True  # a beat may be under way
        with Connections(self._connections.timeouts) as connections:
            client = MetadataClient(self._metadata, connections)
            client.unregister_server(self.location, self._incarnation)


def play(channel: Connection, metadata: str, count: int) -> None:
    """Be so many data servers until ``channel`` says ``end``, in a process of its own.

    Told ``hold``, a shuffle and its token; or ``lose``, upon which one of them leaves. Answers when
    that is done.
    """
    servers = [PlayedServer(metadata, _location(number)) for number in range(count)]
    ending = threading.Event()
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(PlayedServer.register, servers))
        channel.send("registered")
        beating = threading.Thread(target=_beat, args=[servers, ending, threads])
        beating.start()
        while (told := channel.recv()) != "end":
            if told == "lose":
                servers.pop().leave()
            else:
                for server in servers:
                    server.hold(*told[1:])
            channel.send("done")
        ending.set()
        beating.join()


def _location(number: int) -> str:
    """Return an address for documentation (RFC 5737), where no server can be."""
    return f"grpc+tcp://192.0.2.{number % 200 + 1}:{5006 + number // 200}"


def _beat(
    servers: list[PlayedServer], ending: threading.Event, threads: ThreadPoolExecutor
) -> None:
    """All of them, every `HEARTBEAT_S`."""
    due = time.monotonic()
    while not ending.wait(max(0.0, due - time.monotonic())):
        due = time.monotonic() + HEARTBEAT_S
        list(threads.map(PlayedServer.beat, servers[:]))
