"""What a page is sent, as JSON. The scripts in ``assets`` read these structs and nothing else.

Times are seconds since the job began, or since a server was started; sizes are bytes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class StageRow(msgspec.Struct, frozen=True):
    """A stage, and how far it is."""

    name: str
    tasks: int
    done: int
    running: int
    failed: int
    retried: int
    rows: int
    bytes: int
    median: float
    longest: float
    spilled: int
    began: float
    ended: float | None
    left: float | None
    """How long it will still take, if that is known."""
    within: bool
    """Whether it runs within another stage, as a repair does."""


class RunningAttempt(msgspec.Struct, frozen=True):
    """An attempt that was seen running; ``worker`` and ``stage`` are positions."""

    worker: int
    stage: int
    start: float
    speculative: bool


class PageState(msgspec.Struct, frozen=True):
    """What changes all the time, and is sent each time."""

    kind: Literal["job", "cluster"]
    title: str
    subtitle: str
    state: str
    """``running``, ``committed``, ``failed`` or ``interrupted``; of a history without an end, ``cut
    off``."""
    error: str
    elapsed: float
    ended: float | None
    figures: dict[str, Any]
    stages: list[StageRow]
    workers: list[str]
    """The rows of the task stream."""
    running: list[RunningAttempt]
    attempts_ended: int
    """All attempts that have ended, each in a bar of its own or not."""
    incidents_all: int
    """All incidents: only the first 1,000 are kept."""


class ProcessRow(msgspec.Struct, frozen=True):
    """A process, and what it holds."""

    name: str
    held: int
    """The bytes of blocks in memory, of a data server."""
    budget: int
    """0 if it has none."""
    memory: int
    peak: int
    """The most of ``memory``, until now."""
    spilled: int
    gone: bool


class IncidentRow(msgspec.Struct, frozen=True):
    """Something that went wrong, and what was done about it."""

    at: float
    what: str
    done: str


class FindingRow(msgspec.Struct, frozen=True):
    """Something that stands out, and what may help."""

    message: str
    advice: str


class ShuffleSizes(msgspec.Struct, frozen=True):
    """The partitions of a shuffle; each number is the sum of ``width`` neighbours."""

    id: str
    name: str
    partitions: int
    width: int
    bytes: list[int]
    rows: list[int]
    median: float
    """The bytes of a partition in the middle of those that have rows."""
    largest: tuple[int, int]
    """The number of the largest partition, and its bytes."""


class Matrix(msgspec.Struct, frozen=True):
    """Bytes between workers, a row each, and data servers, a column each."""

    workers: list[str]
    servers: list[str]
    sent: list[list[int]]
    fetched: list[list[int]]


class PageParts(msgspec.Struct, frozen=True):
    """What is sent again only if it has changed."""

    findings: list[FindingRow]
    processes: list[ProcessRow]
    incidents: list[IncidentRow]
    shuffles: list[ShuffleSizes]
    matrix: Matrix


NO_MATRIX = Matrix([], [], [], [])


class AttemptColumns(msgspec.Struct, frozen=True):
    """Attempts that have ended, from the position ``since`` on, in columns.

    A column is the bytes of its numbers, little-endian and of the type that its comment names, as
    base64: a driver spends a tenth of the time on that which it would on lists.
    """

    since: int
    count: int
    began: float
    """When the job began, in seconds since 1970: ``start`` is of that kind, too."""
    worker: bytes  # uint16
    stage: bytes  # uint32
    task: bytes  # uint32
    number: bytes  # uint16
    outcome: bytes  # uint8: its position in `mrflight.events.kinds.OUTCOMES`
    speculative: bytes  # uint8
    start: bytes  # float64
    seconds: bytes  # float32
    attempts: bytes  # uint32: how many attempts an entry stands for
    busy: bytes  # float32: how many seconds these took; a bar of several is filled by that much


NO_ATTEMPTS = AttemptColumns(0, 0, 0.0, *[b""] * 10)
