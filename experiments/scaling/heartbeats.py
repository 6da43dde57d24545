"""Data servers that only send messages to the metadata server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from mrflight.config.identity import ClientOptions
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.cluster_status import Heartbeat
from mrflight.shuffle.wire.connections import Connections
from mrflight.system.deadlines import Timeouts
from servers.membership import HEARTBEAT_S, HEARTBEAT_TIMEOUT_S

_THREADS = 4
"""The threads that send the heartbeats of all servers. Each server has its own connection."""


class SimulatedServer:
    """The membership of one data server: it registers and sends heartbeats."""

    def __init__(self, metadata: str, location: str) -> None:
        self.location = location
        self._metadata = metadata
        self._connections = Connections(ClientOptions(Timeouts(call_s=HEARTBEAT_TIMEOUT_S)))
        self._client = MetadataClient(metadata, self._connections)
        self._incarnation = location.encode().hex()[-16:]
        self._held: dict[str, str] = {}
        self._has_left = False

    def register(self) -> None:
        self._client.register_server(self.location, self._incarnation)

    def hold(self, shuffle_id: str, token: str) -> None:
        """Report blocks of this shuffle from now on."""
        self._held[shuffle_id] = token

    def beat(self) -> None:
        """Send a heartbeat, as `servers.membership.Membership` does.

        An error is raised if the server was declared lost.
        """
        tokens = dict(self._held)
        held = Heartbeat(
            self.location, list(tokens), 50 * 2**30, self._incarnation, list(tokens.values())
        )
        if not self._client.heartbeat(held).registered and not self._has_left:
            raise AssertionError(f"{self.location} was declared lost despite its heartbeats")

    def leave(self) -> None:
        """Unregister the server, as one that ends does.

        A killed one is declared lost after 10 s.
        """
        self._has_left = True  # a heartbeat may be on its way
        with Connections(ClientOptions(self._connections.timeouts)) as connections:
            client = MetadataClient(self._metadata, connections)
            client.unregister_server(self.location, self._incarnation)


def simulate(channel: Connection, metadata: str, count: int) -> None:
    """Simulate some servers in a process of its own until ``channel`` says ``end``.

    The message ``hold`` names a shuffle and its token. After ``lose`` one of the servers leaves.
    Each message is answered when it is done.
    """
    servers = [SimulatedServer(metadata, _location(number)) for number in range(count)]
    ending = threading.Event()
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(SimulatedServer.register, servers))
        channel.send("registered")
        beating = threading.Thread(target=_beat, args=[servers, ending, threads])
        beating.start()
        while (message := channel.recv()) != "end":
            if message == "lose":
                servers.pop().leave()
            else:
                for server in servers:
                    server.hold(*message[1:])
            channel.send("done")
        ending.set()
        beating.join()


def _location(number: int) -> str:
    """Return an address for documentation (RFC 5737), where there can be no server."""
    return f"grpc+tcp://192.0.2.{number % 200 + 1}:{5006 + number // 200}"


def _beat(
    servers: list[SimulatedServer], ending: threading.Event, threads: ThreadPoolExecutor
) -> None:
    """Send the heartbeats of all servers every `HEARTBEAT_S`."""
    due = time.monotonic()
    while not ending.wait(max(0.0, due - time.monotonic())):
        due = time.monotonic() + HEARTBEAT_S
        list(threads.map(SimulatedServer.beat, servers[:]))
