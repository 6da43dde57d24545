"""The records of a journal without which a registry would know something else, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.events import (
    Counts,
    MapsCommitted,
    decode_event,
    encode_counts,
    encode_event,
)
from mrflight.shuffle.metadata.tables_kept import TablesKept

_COMMITS = ("MapCommitted", "MapsCommitted")


class _Head(msgspec.Struct, frozen=True, gc=False):
    """What of an event decides whether it matters: its kind, and what it is of.

    Decoded from an event's record, without its rows and placements.
    """

    event: str
    id: str = ""
    location: str = ""
    table: str = ""
    version: int = 0


_heads = msgspec.msgpack.Decoder(_Head)


def compacted(records: Callable[[], Iterable[bytes]]) -> Iterator[bytes]:
    """What is left of ``records``, which are read twice: all at once may be too many for memory.

    All events of the shuffles that are there, of each server that is there how it joined last, and
    what `TablesKept` keeps. The commits of a shuffle between two changes of its placement become
    one: 10,000 of 10,000 partitions have 580 MB, and less than 1 MB as one.
    """
    kept = _kept(records())
    wanted, sums = iter(kept.positions), _Sums()
    following = next(wanted, None)
    for position, record in enumerate(records()):
        if position != following:
            continue
        following = next(wanted, None)
        run = kept.summed.get(position)
        if run is None:
            if position in kept.needed:
                sums.apply(record)
            yield record
            continue
        sums.add(run.id, record)
        if position == run.last:
            yield sums.taken(run.id)


@dataclass
class _Run:
    """Commits of a shuffle with no change of its placement between them."""

    id: str
    last: int = -1
    count: int = 0


@dataclass
class _Kept:
    """Which records are kept, by their positions in order."""

    positions: list[int]
    summed: dict[int, _Run]
    """Of them the commits that become one with others,"""
    needed: set[int]
    """and what else there is of their shuffles, which says what they count for."""


class _OfShuffles:
    """The records of each shuffle that is there, and the runs that its commits are in."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, _Run | None]] = {}
        self._open: dict[str, _Run] = {}

    def make(self, shuffle_id: str, position: int) -> None:
        self._runs[shuffle_id] = {position: None}
        self._open.pop(shuffle_id, None)

    def drop(self, shuffle_id: str) -> None:
        self._runs.pop(shuffle_id, None)

    def add(self, shuffle_id: str, position: int, *, is_commit: bool) -> None:
        run = None
        if is_commit:
            run = self._open.setdefault(shuffle_id, _Run(shuffle_id))
            run.last, run.count = position, run.count + 1
        else:
            self._open.pop(shuffle_id, None)
        self._runs[shuffle_id][position] = run

    def summed(self) -> tuple[dict[int, _Run], set[int]]:
        """See `_Kept`."""
        summed, needed = dict[int, _Run](), set[int]()
        for runs in self._runs.values():
            several = {at: run for at, run in runs.items() if run is not None and run.count > 1}
            if several:
                summed.update(several)
                needed.update(runs.keys() - several.keys())
        return summed, needed


def _kept(records: Iterable[bytes]) -> _Kept:
    kept: dict[tuple[str, str], list[int]] = {}
    shuffles, tables = _OfShuffles(), TablesKept()
    for position, head in enumerate(map(_heads.decode, records)):
        subject = (head.id, head.location)  # one of them is empty
        if head.table:
            tables.add(position, head.event, head.table, head.version)
            continue
        match head.event:
            case "ShuffleMade" | "ServerJoined":
                kept[subject] = [position]
                shuffles.make(head.id, position)
            case "ShuffleDropped" | "ServerGone":
                kept.pop(subject, None)
                shuffles.drop(head.id)
            case _:
                kept[subject].append(position)
                if head.id:
                    shuffles.add(head.id, position, is_commit=head.event in _COMMITS)
    positions = sorted([*tables.positions(), *itertools.chain.from_iterable(kept.values())])
    return _Kept(positions, *shuffles.summed())


class _Begun(NamedTuple):
    """A shuffle as it was before the first commit of a run."""

    commits: int
    rows: Counts
    size_bytes: Counts


class _Sums:
    """Follows shuffles through their events, for what runs of commits add to them."""

    def __init__(self) -> None:
        self._now = ClusterState()
        self._begun: dict[str, _Begun] = {}

    def apply(self, record: bytes) -> None:
        self._now.apply(decode_event(record), now_s=0.0)

    def add(self, shuffle_id: str, record: bytes) -> None:
        """A commit of a run."""
        log = self._now.shuffle(shuffle_id).log
        if shuffle_id not in self._begun:
            self._begun[shuffle_id] = _Begun(log.epoch, log.rows.copy(), log.size_bytes.copy())
        self.apply(record)

    def taken(self, shuffle_id: str) -> bytes:
        """The run that ends here, as one record."""
        begun, log = self._begun.pop(shuffle_id), self._now.shuffle(shuffle_id).log
        schema = log.schema if log.schema is not None else pa.schema([])
        commits = [
            (*source, since, until, log.output_hashes[source.map_id])
            for source, since, until in log.commits[begun.commits :]
        ]
        rows, size_bytes = log.rows - begun.rows, log.size_bytes - begun.size_bytes
        encoded = schema.serialize().to_pybytes()
        counts = encode_counts(rows), encode_counts(size_bytes)
        return encode_event(MapsCommitted(shuffle_id, encoded, commits, *counts))
