"""Servers in this process with real sockets; tests have access to their registry and stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mrflight.servers.data import DataServer
from mrflight.servers.idle_streams import IdleStreams, StreamRules
from mrflight.servers.listening import Listening
from mrflight.servers.membership import Membership
from mrflight.servers.metadata import MetadataServer
from mrflight.servers.shared_memory import SharedMemory

from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.system.scratch import ScratchFolder

HEARTBEAT_S = 0.05
"""The time between two heartbeats, as tests wait for some."""
_NEVER_IDLE_S = 3600.0
"""No stream is ended because its client has said nothing for so long."""


@dataclass(frozen=True)
class NearDataServer:
    """A data server and its parts."""

    location: str
    store: BlockStore
    membership: Membership
    server: DataServer

    def die(self) -> None:
        """Stop without unregistering, as a server that is killed."""
        self.membership._stopping.set()
        self.membership._heartbeat_thread.join()
        self.server.shutdown()


@contextmanager
def near_metadata(registry: Registry) -> Iterator[str]:
    """Run a metadata server, and yield its location."""
    server = MetadataServer(Listening("grpc+tcp://127.0.0.1:0"), registry)
    try:
        yield f"grpc+tcp://127.0.0.1:{server.port}"
    finally:
        server.shutdown()


@contextmanager
def near_data_servers(
    metadata: str, count: int, folder: Path, stores: type[BlockStore] = BlockStore
) -> Iterator[list[NearDataServer]]:
    """Run data servers that have joined; those that are alive at the end leave."""
    with ExitStack() as stack:
        servers = [
            _near_data_server(stack, metadata, f"spill{number}", folder, stores)
            for number in range(count)
        ]
        try:
            yield servers
        finally:
            for near in servers:
                near.membership.leave()
                near.server.shutdown()


@contextmanager
def another_in_place_of(gone: NearDataServer, metadata: str, folder: Path) -> Iterator[None]:
    """Run a data server that has joined at the location of one that died."""
    with ExitStack() as stack:
        near = _near_data_server(stack, metadata, "another", folder, BlockStore, gone.location)
        try:
            yield
        finally:
            near.membership.leave()
            near.server.shutdown()


def _near_data_server(
    stack: ExitStack,
    metadata: str,
    name: str,
    folder: Path,
    stores: type[BlockStore],
    at: str = "grpc+tcp://127.0.0.1:0",
) -> NearDataServer:
    scratch = stack.enter_context(ScratchFolder(name, folder))
    store = stack.enter_context(stores(2**30, scratch))
    membership = Membership(store, metadata, heartbeat_s=HEARTBEAT_S)
    memory = stack.enter_context(SharedMemory())
    rules = StreamRules(stack.enter_context(IdleStreams(_NEVER_IDLE_S)))
    server = DataServer(Listening(at), store, membership, memory, rules)
    location = f"grpc+tcp://127.0.0.1:{server.port}"
    membership.join(location)
    return NearDataServer(location, store, membership, server)
