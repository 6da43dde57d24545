"""The kinds of events, as frozen structs, one for each line of a history.

``docs/reference/events.md`` describes every field. Sizes are in bytes and times in seconds. A time
of day is that of the driver (or of the server that records): other processes report durations, so
the clocks of hosts need not agree. A field with its default value is left out of the JSON.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from mrflight.result import JobResult


def now() -> float:
    """Return the time of day in seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


class Event(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True, gc=False
):
    """Something that happened."""

    at: float = msgspec.field(default_factory=now)
    """When it was recorded, in seconds since 1970."""


class JobBegan(Event, frozen=True, tag="job_began"):
    """A job has begun; always the first event of its history."""

    job_id: str
    name: str
    """The name that the job file gives. It is plain text, and may look like markup."""
    version: str
    """The version of mrflight."""
    host: str
    pid: int
    """The process of the driver."""
    executor: str = "local"
    """``local`` or ``ray``."""
    workers: int = 0
    data_servers: int = 0
    """Those of the job's own; 0 on a standing cluster."""
    cluster: str = ""
    """The location of the metadata server of a standing cluster."""
    memory_bytes: int = 0
    """What all processes of the job may hold together."""
    worker_memory_bytes: int = 0
    """What the rows and groups of one reduce task may take before it spills."""
    server_memory_bytes: int = 0
    """What one data server of the job's own may hold before it spills."""


class InputFound(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An input of files, as it was found."""

    name: str
    files: int
    size_bytes: int
    version: int | None = None
    """The version of a Delta table."""


class PlannedStage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A stage of the plan: its maps read its inputs, or earlier stages."""

    name: str
    """Empty for the last stage of a job."""
    partitions: int
    tasks: int = 0
    """The maps that are known before the job runs; 0 if they depend on earlier stages."""
    adaptive: bool = False
    """True if small partitions may be coalesced and skewed ones split."""


class JobPlanned(Event, frozen=True, tag="job_planned"):
    """The inputs were looked at, and the job was planned."""

    table: str = ""
    """The path or URL of the output; empty if the caller reads the rows."""
    inputs: tuple[InputFound, ...] = ()
    stages: tuple[PlannedStage, ...] = ()


class QueryStage(msgspec.Struct, frozen=True, gc=False):
    """A stage of a query, whose part of the plan tasks run."""

    title: str
    """Its name in the plan."""
    operators: tuple[str, ...]
    """The operators of DataFusion, from the last one on, each before what it reads."""


class OperatorWork(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an operator of a query did: ``[rows, seconds]``."""

    rows: int
    """The rows that it put out."""
    seconds: float
    """How long it computed, as DataFusion measures it."""


class StageBegan(Event, frozen=True, tag="stage_began"):
    """A set of tasks has begun: the maps of an input, the reduces, a commit.

    Lost maps run again in a set of their own, within the stage that needs them.
    """

    stage: int
    """The number of the set in its job, from 0 on."""
    name: str
    """``map``, ``map orders``, ``sample``, ``aggregate``, ``reduce``, ``commit``, ``result``; see
    the reference."""
    tasks: int
    size_bytes: int = 0
    """The bytes that its tasks read together; 0 if they are not known."""
    at_once: int = 1
    """How many tasks may run at the same time."""
    within: bool = False
    """True if it runs within another stage, as a repair does."""
    runs: QueryStage | None = None
    """The stage of a query whose result its tasks make."""


class AttemptRunning(Event, frozen=True, tag="attempt_running"):
    """An attempt was first seen running; those that end within a quarter of a second rarely are."""

    stage: int
    task: int
    name: str
    worker: str = ""
    """Empty if it is not known before the attempt ends."""
    attempt: int = 0
    speculative: bool = False


Outcome = Literal["done", "failed", "stopped", "lost"]
"""How an attempt ended: it counts; it raised an error; another attempt was faster, or its input
moved; or a server or worker that it needed was lost, which does not count as a failure."""

OUTCOMES: tuple[Outcome, ...] = ("done", "failed", "stopped", "lost")


class AttemptEnded(Event, frozen=True, tag="attempt"):
    """An attempt of a task has ended. This says all about it, seen running or not."""

    stage: int
    task: int
    """The number of the task in its stage, from 0 on."""
    name: str = ""
    """The name of the task, which says what it reads."""
    attempt: int = 0
    """The number of the attempt, from 0 on."""
    outcome: Outcome = "done"
    worker: str = ""
    seconds: float = 0.0
    """The wall time, as its worker measured it; so it began at ``at - seconds``."""
    cpu_seconds: float = 0.0
    """The processor time of its worker meanwhile."""
    rows: int = 0
    """The rows that a map read, or that a reduce wrote."""
    size_bytes: int = 0
    """The bytes of the split that a map read, or of the files that a reduce wrote."""
    sent: dict[str, int] = {}
    """The bytes of blocks that it sent to each data server."""
    fetched: dict[str, int] = {}
    """The bytes of blocks that it fetched from each data server."""
    spilled_bytes: int = 0
    """What its worker wrote to disk because it did not fit into memory."""
    memory_bytes: int = 0
    """The most memory that its worker has held until then (RSS)."""
    operators: tuple[OperatorWork, ...] = ()
    """What the operators of `StageBegan.runs` did, in their order."""
    error: str = ""
    """What it raised, in one line."""
    speculative: bool = False
    """True if it was started beside another one that took long."""
    again: bool = False
    """True if its task had been done before, and its output was lost."""


class AttemptsBinned(Event, frozen=True, tag="attempts"):
    """Several attempts of one worker that ended alike, after the first 100,000 of the job.

    Each is in exactly one event: its own, or one of these.
    """

    since: float
    """When the first of them ended; the last one ended at ``at`` at the latest."""
    stage: int
    worker: str
    outcome: Outcome
    count: int
    tasks: int
    """How many of them were the first of their task to be done."""
    seconds: float
    """The sum of their wall times."""
    longest_seconds: float
    durations: list[tuple[int, int]]
    """How many took how long: ``[bucket, count]``, where the bucket ``b`` is from
    ``2 ** (b / 4)`` to ``2 ** ((b + 1) / 4)`` milliseconds."""
    cpu_seconds: float = 0.0
    rows: int = 0
    size_bytes: int = 0
    sent: dict[str, int] = {}
    fetched: dict[str, int] = {}
    spilled_bytes: int = 0
    memory_bytes: int = 0
    """The most of any of them."""
    operators: tuple[OperatorWork, ...] = ()
    """The sums of what the operators did."""
    speculative: int = 0
    """How many of them were speculative."""


class StageEnded(Event, frozen=True, tag="stage_ended"):
    """A set of tasks has ended."""

    stage: int
    note: str = ""
    """What it did, for people."""
    failed: bool = False


class PartitionsWritten(Event, frozen=True, tag="partitions"):
    """The maps of a stage are done: what is in each partition of its shuffle.

    If there are more than 10,000 partitions, each number is the sum of ``width`` neighbours.
    """

    stage: int
    shuffle: str
    rows: list[int]
    size_bytes: list[int]
    width: int = 1
    largest: tuple[int, int] = (0, 0)
    """The number of the largest partition, and its bytes."""
    median_bytes: int = 0
    """The bytes of a partition in the middle of all that have rows."""


class ProcessMemory(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The memory of one process of the job on the driver's machine."""

    name: str
    """``driver``, ``worker0``, ``data0``, ``metadata``, ``fork server``, ``gateway``, ``HOST:PID``.
    """
    pid: int
    memory_bytes: int
    """Without what it shares with others."""


class ProcessesSampled(Event, frozen=True, tag="processes"):
    """The memory of processes, once a second."""

    processes: tuple[ProcessMemory, ...]


class ServerUse(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one data server holds, as it reported to its metadata server."""

    name: str
    """``data0``, or host and port."""
    held_bytes: int = 0
    """The bytes of blocks in memory."""
    budget_bytes: int = 0
    """The most of them that it may hold before it spills; 0 if it is not known."""
    spilled_bytes: int = 0
    """The bytes of blocks on disk."""
    partitions: int = 0


class ServersSampled(Event, frozen=True, tag="servers"):
    """What data servers hold, once a second. A server that is lost is missing."""

    servers: tuple[ServerUse, ...]


IncidentKind = Literal[
    "attempt_failed",
    "straggler",
    "worker_lost",
    "server_lost",
    "output_lost",
    "moved",
    "waiting",
    "run_again",
    "bad_rows",
    "notice",
]
"""What an incident is about; see the reference."""


class Incident(Event, frozen=True, tag="incident"):
    """Something that went wrong, or may, and what was done about it."""

    kind: IncidentKind
    message: str
    """All of it in one line, as stderr shows it."""
    subject: str = ""
    """Who or what it happened to: a task, a worker, a server."""
    cause: str = ""
    action: str = ""
    """What was done about it."""


class ServerLeft(Event, frozen=True, tag="server_left"):
    """A data server is gone, or counts as lost, as its metadata server tells."""

    location: str
    cause: str


class Committed(Event, frozen=True, tag="committed"):
    """The output is committed."""

    files: int
    version: int | None = None
    """The version of a Delta table."""


class JobEnded(Event, frozen=True, tag="job_ended"):
    """A job has ended; the last event of its history, unless its driver was killed."""

    result: JobResult
    """What ``--json`` prints."""


AnyEvent = (
    JobBegan
    | JobPlanned
    | StageBegan
    | AttemptRunning
    | AttemptEnded
    | AttemptsBinned
    | StageEnded
    | PartitionsWritten
    | ProcessesSampled
    | ServersSampled
    | Incident
    | ServerLeft
    | Committed
    | JobEnded
)
