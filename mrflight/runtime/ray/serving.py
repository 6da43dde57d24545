"""Runs the servers of a shuffle in actors of the Ray that this process is connected to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mrflight.errors import JobError, JobFailedError
from mrflight.runtime.ray.credential_actor import giving
from mrflight.runtime.ray.losses import describe_loss, first_line
from mrflight.runtime.ray.server_actor import HostedServer
from mrflight.runtime.ray.server_options import ReservedPort, ServerOptions
from mrflight.runtime.supervised_cluster import ClusterOptions
from mrflight.security.credentials import Credentials
from mrflight.security.job_certificates import JobAuthority
from mrflight.security.job_tokens import make_tokens
from mrflight.shuffle.client.cluster import Cluster, connect
from mrflight.system.scratch import SocketFolder, temporary_folder
from mrflight.units import format_bytes, parse_bytes, parse_seconds

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 120.0
"""Ray starts a process for each server, and perhaps a node."""

_END_TIMEOUT_S = 5.0
"""How long a server may take to remove its files."""

_ALWAYS = -1
_CALLS = 2
"""How many calls an actor answers at the same time: its location, and its end."""


class MrflightShuffleServer(HostedServer):
    """A server that starts with its actor. Ray restarts the actor if it ends."""

    def __init__(
        self, kind: str, options: Sequence[str], port: int, credentials: Credentials | None
    ) -> None:
        super().__init__()
        self._location, _, _ = self.start(kind, options, port, credentials)

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
    """Run a cluster on the Ray that this process is connected to, until the block ends.

    The metadata server and its journal are on the node of this process. The data servers are
    spread over all nodes; by default there is one per node. Together they hold ``memory`` before
    they spill into ``spill_dir``, by default the temporary folder of each node. The memory is
    declared to Ray. Ray restarts a server that ends. The rows of a data server are then lost,
    unless the shuffle has ``replicas=2``, and `Shuffle.health` returns the maps that have to be
    written again. If Ray has one node, the servers listen on loopback; otherwise they listen on
    the addresses of their nodes with TLS, and servers and clients show each other certificates that
    are made for this block and given to tasks by Ray.

    Raises JobError if there is no Ray or an option is wrong, and JobFailedError if the servers do
    not start.
    """
    nodes = _nodes()
    count = len(nodes) if data_servers is None else data_servers
    spill = Path(spill_dir or temporary_folder()).absolute()
    options = _cluster_options(count, memory, spill, heartbeat_timeout)
    home = ray.get_runtime_context().get_node_id()
    with ExitStack() as stack:
        folder = stack.enter_context(SocketFolder()).path
        here = NodeAffinitySchedulingStrategy(home, soft=False)
        authority = None if len(nodes) == 1 else JobAuthority()
        port = ReservedPort(nodes[home] if authority else "127.0.0.1")
        stack.callback(port.close)
        location = port.location(is_encrypted=bool(authority))
        secured: tuple[str, ...] = ()
        if authority is None:
            tokens = make_tokens(folder)
            secured, identity = tokens.arguments, tokens.of_job
        else:
            identity = stack.enter_context(giving(authority.issue("task"), here))
        servers = ServerOptions(location, folder / "metadata.journal", options)
        actors = stack.enter_context(_ending_actors())
        start = _Starter(servers, secured, authority)
        actors.append(start.actor("metadata", port.number, here))
        spread = "SPREAD" if authority else here
        actors += [start.actor("data", 0, spread) for _ in range(count)]
        _wait(actors, options.server_memory_bytes)
        yield stack.enter_context(connect(location, identity=identity))


def _nodes() -> dict[str, str]:
    """Return the addresses of Ray's nodes, by their ids."""
    if not ray.is_initialized():
        raise JobError("this process is not connected to a Ray; call ray.init(), or ray start")
    if ray.util.client.ray.is_connected():
        raise JobError(
            "a ray:// client is not on a node of Ray, and cannot reach servers there; run this on "
            "a node, for example with ray job submit, or in a task"
        )
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _cluster_options(
    data_servers: int, memory: str, spill_dir: Path, heartbeat_timeout: str
) -> ClusterOptions:
    """Parse the options; raises JobError."""
    if data_servers < 1:
        raise JobError(f"data_servers must be at least 1, not {data_servers}")
    try:
        return ClusterOptions(
            data_servers, parse_bytes(memory), spill_dir, parse_seconds(heartbeat_timeout)
        )
    except ValueError as error:
        raise JobError(f"serving: {error}") from error


class _Starter(NamedTuple):
    """Starts the actors of servers."""

    servers: ServerOptions
    secured: tuple[str, ...]
    """The options of servers that want tokens."""
    authority: JobAuthority | None

    def actor(self, kind: str, port: int, strategy: Any) -> Any:
        authority = self.authority
        credentials = authority.issue(kind, is_server=True) if authority else None
        return (
            ray.remote(MrflightShuffleServer)
            .options(
                num_cpus=0,
                memory=self.servers.declared_bytes(kind),
                max_restarts=_ALWAYS,
                max_task_retries=0,
                max_concurrency=_CALLS,
                scheduling_strategy=strategy,
            )
            .remote(kind, (*self.servers.arguments(kind), *self.secured), port, credentials)
        )


def _wait(actors: Sequence[Any], server_memory_bytes: int) -> None:
    started = [actor.location.remote() for actor in actors]
    try:
        locations = ray.get(started, timeout=_START_TIMEOUT_S)
    except exceptions.GetTimeoutError:
        raise JobFailedError(
            f"the shuffle's servers were not ready after {_START_TIMEOUT_S:.0f} s; does Ray have "
            f"{format_bytes(server_memory_bytes)} of its memory resource free for each of "
            f"{len(actors) - 1} data servers (ray status)?"
        ) from None
    except exceptions.RayActorError as error:
        why = first_line(error.cause) if isinstance(error, exceptions.RayTaskError) else ""
        raise JobFailedError(
            f"a server of the shuffle could not be started: it {why or describe_loss(error)}"
        ) from error
    log.info("servers of a shuffle at %s", ", ".join(locations))


@contextmanager
def _ending_actors() -> Iterator[list[Any]]:
    """Yield a list of actors, which are ended with the block, even if they are unreachable."""
    actors: list[Any] = []
    try:
        yield actors
    finally:
        # Other processes remove the files of those that do not answer.
        with suppress(exceptions.RayError):
            ray.wait(
                [actor.close.remote() for actor in actors],
                num_returns=len(actors),
                timeout=_END_TIMEOUT_S,
            )
        for actor in actors:
            ray.kill(actor)
