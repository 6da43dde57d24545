"""Parts of a physical plan, and how rows get from one to another."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from mrflight.compute.sql.physical.ordering import OrderKey
from mrflight.compute.sql.physical.scan_bounds import ScanColumn

Way = Literal["hash", "range", "gather", "first", "any"]
"""How an exchange distributes rows: by the hash of keys; by ranges of keys; all to every task; all
to the first task; or each to any task."""


class Exchange(msgspec.Struct, frozen=True):
    """The rows of a fragment on their way to the tasks of another."""

    way: Way
    source: FragmentPlan | str
    """A fragment, or the name of a table."""
    keys: tuple[int, ...] = ()
    """The positions of the columns of a hash, from the end for those that are computed."""
    order: tuple[OrderKey, ...] = ()
    """The keys of ranges."""
    rows: int | None = None
    """How many rows are expected; None if that is not known."""


class Keyed(NamedTuple):
    """An input that is distributed by the key of a join."""

    part: bytes
    rows: int | None
    """The rows that are expected."""
    is_filter: bool
    """True if it has all keys of its side, and others may be missing."""
    scanned: tuple[ScanColumn | None, ...] = ()
    """See `Input.scanned`."""


class Input(msgspec.Struct, frozen=True):
    """Rows of another fragment that a fragment reads in place of a part of its plan."""

    part: bytes
    """What stands in the plan for a scan of these rows: of a table, a scan of another file."""
    exchange: Exchange
    is_held: bool = False
    """True if an operator above it holds all of its rows in memory."""
    is_sliceable: bool = False
    """True if tasks can read a slice of its rows each, with all rows of the other inputs."""
    matched_by: Keyed | None = None
    """Another input, without whose keys its rows make no row of the result."""
    scanned: tuple[ScanColumn | None, ...] = ()
    """The columns of scans that the keys are, for those that are one, if it is matched."""
    bounds: tuple[tuple[int, ScanColumn], ...] = ()
    """Columns of its rows that have all values which are needed of columns of scans."""


class FragmentPlan(msgspec.Struct, frozen=True):
    """A part of a plan that tasks run side by side."""

    encoded: bytes
    inputs: tuple[Input, ...]
    scans: tuple[bytes, ...]
    """Its scans of files. If there are several tasks, each reads one file group of each scan."""
    tasks: int
    """The number of partitions of its inputs, or of file groups."""
    small_scans: tuple[bytes, ...]
    """Scans of small files that every task reads whole."""
    lines: tuple[str, ...]
    """Its nodes for people: from the root on, each before those below it."""
    threads: int = 1
    """The threads of a task."""
    computed: tuple[bytes, ...] = ()
    """Expressions that are keys of a hash. Their values are sent after the columns of the plan."""
    why_whole: str = ""
    """Why one task runs the whole plan, for people; empty if it was cut."""
    task_bytes: int = 0
    """See `QueryDivision.task_bytes`."""

    @property
    def exchanges(self) -> dict[bytes, Exchange]:
        """What brings the rows of its inputs, by what stands for them in the plan."""
        return {each.part: each.exchange for each in self.inputs}

    @property
    def divided(self) -> tuple[bytes, ...]:
        """The scans of which each task reads one file group."""
        return tuple(dict.fromkeys(self.scans)) if self.tasks > 1 else ()
