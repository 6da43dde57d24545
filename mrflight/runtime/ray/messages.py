"""The messages between the driver and its gateway to Ray, which are pickled over a pipe.

The driver numbers calls and servers.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mrflight.security.credentials import Credentials
from mrflight.system.log_output import LogSettings


class Connect(msgspec.Struct, frozen=True):
    """The first message to a gateway: the Ray to connect to."""

    address: str | None
    """None: the gateway starts a Ray on this machine, which ends with it."""
    cpus: int
    memory_bytes: int
    """Both are the resources of a Ray that the gateway starts."""
    job_folder: str
    scratch_roots: tuple[str, ...] = ()
    """Where the driver makes folders, which the gateway removes if the driver is killed."""
    folder: str = ""
    """The files of a Ray that the gateway starts. The path is short because of sockets."""
    excluded: tuple[str, ...] = ()
    """The files of the job's folder that are not sent to the nodes of a running Ray."""


class Node(NamedTuple):
    """A node of Ray."""

    id: str
    address: str
    cpus: int
    memory_bytes: int
    """Both are what tasks and actors may use in total."""


class Connected(NamedTuple):
    """The gateway's first answer."""

    home: str
    """The id of the node that this machine is."""
    nodes: tuple[Node, ...]


class Refused(NamedTuple):
    """The gateway's first and only answer, if there is no Ray."""

    why: str


class Variables(msgspec.Struct, frozen=True):
    """Variables of the driver's environment with secrets that the job names."""

    values: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"Variables({', '.join(name for name, _ in self.values)})"


class WorkerContext(msgspec.Struct, frozen=True):
    """What a worker must know about its job."""

    home: str
    """The driver's node, on which paths are the same as for the driver."""
    folder: str
    """The folder of the job file. Other nodes have a copy of it."""
    is_sent: bool
    """Whether other nodes have a copy of the folder."""
    modules: tuple[str, ...]
    """The modules to load before the first call."""
    credentials: Credentials | None = None
    """For the job's servers, on several nodes."""
    logs: LogSettings | None = None
    """What workers write to their stderr, which Ray keeps; None if the driver has not chosen."""
    variables: Variables = Variables(())
    """Those that Ray's processes do not have. Calls and their options only have the names."""


class StartWorkers(NamedTuple):
    """Keep so many workers running, each with a core."""

    workers: int


class Payload(NamedTuple):
    """An object that many calls share; see `mrflight.runtime.ray.shared_payloads`."""

    number: int
    encoded: bytes


class StartTask(NamedTuple):
    """Run a call of `mrflight.runtime.calls` in a worker, or apart from them on a certain node."""

    number: int
    call: bytes
    node: str | None = None
    payloads: tuple[int, ...] = ()
    """The numbers of the shared payloads of the call, which were sent before."""


class StartServer(NamedTuple):
    """Start a server of `mrflight.servers` with its command's options, on its node's address."""

    number: int
    kind: str
    options: tuple[str, ...]
    port: int
    memory_bytes: int
    credentials: Credentials | None
    """With which it listens on its node's address; None if it listens on loopback."""
    node: str | None = None


class Stop(NamedTuple):
    """Stop a call or a server now."""

    number: int


class Answered(NamedTuple):
    """A call has ended with an answer."""

    number: int
    answer: bytes
    node: str
    pid: int


class Ready(NamedTuple):
    """A server is ready."""

    number: int
    location: str
    node: str
    pid: int


class Failed(NamedTuple):
    """A server could not start because of an error of its own."""

    number: int
    why: str


class Lost(NamedTuple):
    """A call or a server has ended without an answer. Nothing of it runs any more."""

    number: int
    why: str
    """A text to follow "it"."""
