"""Servers of a shuffle in actors of the Ray that this process is connected to."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray import exceptions as lost
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mrflight.errors import JobError, JobFailedError
from mrflight.runtime.ray.losses import first_line, how_it_was_lost
from mrflight.runtime.ray.server import HostedServer
from mrflight.runtime.ray.server_options import ReservedPort, ServerLayout
from mrflight.shuffle.client.cluster import Cluster, connect
from mrflight.system.scratch import SocketFolder
from mrflight.units import format_bytes, parse_bytes, parse_seconds

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 120.0
"""Ray starts a process for each server, and perhaps a node."""

_END_TIMEOUT_S = 5.0
"""For a server to remove what it has on disk."""

_ALWAYS = -1
_CALLS = 2
"""That an actor answers side by side: where it is, and its end."""


class MrflightShuffleServer(HostedServer):
    """A server from its actor's start on; Ray starts another one where it ends."""

    def __init__(self, kind: str, options: Sequence[str], port: int, is_local: bool) -> None:
        super().__init__()
        self._location, _, _ = self.start(kind, options, port, is_local)

    def location(self) -> str:
        return self._location


@contextmanager
def serving(
    data_servers: int | None = None,
    memory: str = "1 GiB",
    *,
    spill_dir: str | Path | None = None,
    heartbeat_timeout: str = "10 s",
) -> Iterator[Cluster]:
    """A cluster on the Ray that this process is connected to; its servers end with the block.

    The metadata server is on this process's node, with its journal. The data servers are spread
    over all nodes, one a node unless told; ``memory`` is what they hold together before they spill
    into ``spill_dir``, by default the nodes' temporary folders, and is declared to Ray. A server
    that ends is started again by Ray: what a data server held is lost with it, unless a shuffle
    has ``replicas=2``, and `Shuffle.health` tells which maps are to be written again. On a Ray of
    one node servers listen on loopback, else on their nodes' addresses, without TLS.

    Raises JobError where there is no such Ray, or for a wrong option; JobFailedError where the
    servers do not come.
    """
    nodes = _nodes()
    count = len(nodes) if data_servers is None else data_servers
    each, timeout_s = _checked(count, memory, heartbeat_timeout)
    home = ray.get_runtime_context().get_node_id()
    with ExitStack() as stack:
        folder = stack.enter_context(SocketFolder()).path
        is_local = len(nodes) == 1
        port = ReservedPort("127.0.0.1" if is_local else nodes[home])
        stack.callback(port.close)
        layout = ServerLayout(
            port.location,
            folder / "metadata.journal",
            timeout_s,
            each,
            Path(spill_dir or tempfile.gettempdir()).absolute(),
        )
        actors = stack.enter_context(_ended())
        here = NodeAffinitySchedulingStrategy(home, soft=False)
        actors.append(_actor(layout, "metadata", port.number, is_local, here))
        spread = here if is_local else "SPREAD"
        actors += [_actor(layout, "data", 0, is_local, spread) for _ in range(count)]
        _wait(actors, each)
        yield stack.enter_context(connect(port.location))


def _nodes() -> dict[str, str]:
    """The addresses of Ray's nodes, by their ids."""
    if not ray.is_initialized():
        raise JobError("this process is not connected to a Ray; call ray.init(), or ray start")
    if ray.util.client.ray.is_connected():
        raise JobError(
            "a ray:// client is on no node of Ray, and cannot reach servers there; run this on a "
            "node, for instance by ray job submit, or inside a task"
        )
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _checked(data_servers: int, memory: str, heartbeat_timeout: str) -> tuple[int, float]:
    """The bytes of each data server, and seconds."""
    if data_servers < 1:
        raise JobError(f"data_servers: {data_servers}: a shuffle needs one at least")
    try:
        return parse_bytes(memory) // data_servers, parse_seconds(heartbeat_timeout)
    except ValueError as error:
        raise JobError(f"serving: {error}") from error


def _actor(layout: ServerLayout, kind: str, port: int, is_local: bool, strategy: Any) -> Any:
    return (
        ray.remote(MrflightShuffleServer)
        .options(
            num_cpus=0,
            memory=layout.declared_bytes(kind),
            max_restarts=_ALWAYS,
            max_task_retries=0,
            max_concurrency=_CALLS,
            scheduling_strategy=strategy,
        )
        .remote(kind, layout.options(kind), port, is_local)
    )


def _wait(actors: Sequence[Any], each: int) -> None:
    started = [actor.location.remote() for actor in actors]
    try:
        locations = ray.get(started, timeout=_START_TIMEOUT_S)
    except lost.GetTimeoutError:
        raise JobFailedError(
            f"the shuffle's servers were not ready after {_START_TIMEOUT_S:.0f} s; has each of "
            f"{len(actors) - 1} data servers {format_bytes(each)} of Ray's memory resource free "
            "(ray status)?"
        ) from None
    except lost.RayActorError as error:
        why = first_line(error.cause) if isinstance(error, lost.RayTaskError) else ""
        raise JobFailedError(
            f"a server of the shuffle could not be started: it {why or how_it_was_lost(error)}"
        ) from error
    log.info("servers of a shuffle at %s", ", ".join(locations))


@contextmanager
def _ended() -> Iterator[list[Any]]:
    """Actors that are ended with the block, those that cannot be reached as well."""
    actors: list[Any] = []
    try:
        yield actors
    finally:
        with suppress(lost.RayError):  # those that do not answer have files that others remove
            ray.wait(
                [actor.close.remote() for actor in actors],
                num_returns=len(actors),
                timeout=_END_TIMEOUT_S,
            )
        for actor in actors:
            ray.kill(actor)
