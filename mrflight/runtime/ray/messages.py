"""What the driver and its gateway to Ray say to each other, pickled, over a pipe.

Calls, tasks and servers have the numbers that the driver gives them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Connect(msgspec.Struct, frozen=True):
    """The first message to a gateway: the Ray to speak to."""

    address: str | None
    """Absent: one of this machine that the gateway starts, and that ends with it."""
    cpus: int
    memory_bytes: int
    folder: str
    """These three are of a Ray that it starts: what tasks and servers may ask for of it, and where
    its files are; a short path, for sockets."""
    job_folder: str
    left_out: tuple[str, ...]
    """Of the job's folder, which is sent to the nodes of a Ray that is there already."""
    scratch_roots: tuple[str, ...] = ()
    """Where the driver makes folders, which it cannot remove itself where it is killed."""


class Node(NamedTuple):
    """A node of Ray."""

    id: str
    address: str
    cpus: int
    memory_bytes: int
    """Each what tasks and actors may ask for in all."""


class Connected(NamedTuple):
    """The gateway's first answer."""

    home: str
    """The id of the node that this machine is."""
    nodes: tuple[Node, ...]


class Refused(NamedTuple):
    """Its first answer where there will be no other."""

    why: str


class JobHere(msgspec.Struct, frozen=True):
    """What a worker is told with each call of its job."""

    home: str
    """The driver's node: its paths are as the driver has them."""
    folder: str
    """The job file's; other nodes have their own copy of it."""
    is_sent: bool
    """Whether they have."""
    scratch_root: str
    modules: tuple[str, ...]
    """To load before the first call."""


class StartWorkers(NamedTuple):
    """Keep so many workers, each with a core."""

    workers: int


class Part(NamedTuple):
    """What many calls have in common; see `mrflight.runtime.ray.common_parts`."""

    number: int
    encoded: bytes


class StartTask(NamedTuple):
    """A call of `mrflight.runtime.calls`, by a worker, or else beside them on a certain node."""

    number: int
    call: bytes
    node: str | None = None
    parts: tuple[int, ...] = ()
    """The numbers of its parts, which are there by then; a worker is told each once."""


class StartServer(NamedTuple):
    """A server of `mrflight.servers`, by its command's options; listens on its node's address."""

    number: int
    kind: str
    options: tuple[str, ...]
    port: int
    memory_bytes: int
    is_local: bool
    """Whether it listens on loopback."""
    node: str | None = None


class Stop(NamedTuple):
    """End a call or a server now."""

    number: int


class Answered(NamedTuple):
    """A call's end."""

    number: int
    answer: bytes
    node: str
    pid: int


class Ready(NamedTuple):
    """A server answers."""

    number: int
    location: str
    node: str
    pid: int


class Failed(NamedTuple):
    """A server could not start, for a reason of its own."""

    number: int
    why: str


class Lost(NamedTuple):
    """A call, or a server, ended without an answer: nothing of it runs any more."""

    number: int
    why: str
    """What comes after "it"."""
