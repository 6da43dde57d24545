"""Helpers for the journal of a metadata server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CountsRestored,
    MapCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    encode_counts,
)
from mrflight.shuffle.metadata.journal import Journal
from tests.support.clusters.registries import SCHEMA


def encoded(counts: Sequence[int]) -> bytes:
    """Encode counts as an event has them."""
    return encode_counts(np.array(counts, np.int64))


ENCODED = SCHEMA.serialize().to_pybytes()

HISTORY: list[AnyEvent] = [
    ServerJoined("a", "1"),
    ServerJoined("b", "1"),
    ShuffleCreated("x", "", 1, None, ["a", "b"], [[0], [1]]),
    MapCommitted("x", 0, 0, "w", -1, 0, 7, ENCODED, encoded([1, 2]), encoded([10, 20])),
    PartitionsPlaced("x", [0], [["b"]], [0], avoided=["a"]),
    ServerGone("a"),
    ShuffleDropped("x"),
    ServerJoined("a", "2"),
    ShuffleCreated("y", "t", 2, 3.5, ["a", "b"], [[0, 1]], "clicks"),
    ServerDraining("b"),
    ShuffleCreated("x", "", 1, None, ["a"], [[0]]),
    PartitionsPlaced("x", [0], [["b"]], [], moved=[0]),
]


def sums(shuffle_id: str, rows: Sequence[int]) -> CountsRestored:
    """Return the sums of a shuffle whose rows have ten bytes each."""
    return CountsRestored(shuffle_id, encoded(rows), encoded([10 * count for count in rows]))


def record_all(path: Path, events: Iterable[AnyEvent]) -> None:
    with Journal(path) as journal:
        for event in events:
            journal.record(event)


def events_in(path: Path) -> list[AnyEvent]:
    with Journal(path) as journal:
        return list(journal.events())


def after_a_journal(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return what a journal gives back of these events."""
    with tempfile.TemporaryDirectory() as folder:
        record_all(Path(folder) / "journal", events)
        return events_in(Path(folder) / "journal")
