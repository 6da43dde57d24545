"""The records of a journal without which a registry would know something else, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from mrflight.shuffle.events import MapCommitted, MapsCommitted, decode_event, encode_event
from mrflight.shuffle.shuffle_state import hash_of_sent
from mrflight.shuffle.tables_kept import TablesKept

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
    what `TablesKept` keeps. The commits of a shuffle before anything of it was lost or moved become
    one: 10,000 of 10,000 partitions have 800 MB, and 0.6 MB as one.
    """
    kept = _kept(records())
    wanted, found = iter(kept.positions), dict[str, _Sum]()
    following = next(wanted, None)
    for position, record in enumerate(records()):
        if position != following:
            continue
        following = next(wanted, None)
        shuffle_id = kept.summed.get(position)
        if shuffle_id is None:
            yield record
            continue
        found.setdefault(shuffle_id, _Sum()).add(record)
        if position == kept.last_summed[shuffle_id]:
            yield found.pop(shuffle_id).record()


@dataclass
class _Kept:
    """Which records are kept, by their positions in order."""

    positions: list[int]
    summed: dict[int, str]
    """Of them the commits that become one with others of the shuffle that is named."""
    last_summed: dict[str, int]


def _kept(records: Iterable[bytes]) -> _Kept:
    kept: dict[tuple[str, str], list[int]] = {}
    first: dict[str, list[int]] = {}
    """Of each shuffle the commits before anything was lost or moved."""
    ended: set[str] = set()
    """The shuffles of which something was."""
    tables = TablesKept()
    for position, head in enumerate(map(_heads.decode, records)):
        subject = (head.id, head.location)  # one of them is empty
        if head.table:
            tables.add(position, head.event, head.table, head.version)
            continue
        match head.event:
            case "ShuffleMade" | "ServerJoined":
                kept[subject] = [position]
                first[head.id] = []
                ended.discard(head.id)
            case "ShuffleDropped" | "ServerGone":
                kept.pop(subject, None)
                first.pop(head.id, None)
            case _:
                kept[subject].append(position)
                if head.event not in _COMMITS:
                    ended.add(head.id)
                elif head.id not in ended:
                    first[head.id].append(position)
    several = {name: positions for name, positions in first.items() if len(positions) > 1}
    return _Kept(
        sorted([*tables.positions(), *itertools.chain.from_iterable(kept.values())]),
        {position: name for name, positions in several.items() for position in positions},
        {name: positions[-1] for name, positions in several.items()},
    )


class _Sum:
    """Commits of one shuffle, one after the other."""

    def __init__(self) -> None:
        self._id = ""
        self._schema = b""
        self._commits: list[tuple[int, int, str, int]] = []
        self._rows = self._size_bytes = np.zeros(0, np.int64)

    def add(self, record: bytes) -> None:
        event = decode_event(record)
        assert isinstance(event, MapCommitted | MapsCommitted), event
        if isinstance(event, MapCommitted):
            sent = hash_of_sent(event.rows, event.routing)
            self._commits.append((event.map_id, event.attempt, event.writer, sent))
        else:
            self._commits += event.commits
        rows, size_bytes = np.array(event.rows, np.int64), np.array(event.size_bytes, np.int64)
        if not self._id:
            self._id, self._schema = event.id, event.schema
            self._rows, self._size_bytes = rows, size_bytes
            return
        if not _has_columns(self._schema):
            self._schema = event.schema
        self._rows += rows
        self._size_bytes += size_bytes

    def record(self) -> bytes:
        return encode_event(
            MapsCommitted(
                self._id,
                self._schema,
                self._commits,
                self._rows.tolist(),
                self._size_bytes.tolist(),
            )
        )


def _has_columns(schema: bytes) -> bool:
    return len(pa.ipc.read_schema(pa.py_buffer(schema))) > 0
