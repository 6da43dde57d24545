"""What a commit, and a reader of what was committed, may expect: checks that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from mrflight.compute.schemas import describe_difference
from mrflight.errors import (
    InconsistentMapOutputError,
    MapOutputLostError,
    PlacementChangedError,
    ProtocolError,
    SchemaMismatchError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.counts import Counts
from mrflight.shuffle.metadata.shuffle_state import ShuffleState, hash_of_sent


def check_commit(
    state: ShuffleState,
    source: MapAttempt,
    schema: pa.Schema,
    rows: Counts,
    version: int,
    routing: str = "",
) -> None:
    """Raise why an attempt that was written to ``version`` of the placement cannot be committed.

    SchemaMismatchError, InconsistentMapOutputError or PlacementChangedError.
    """
    _check_schema(state, source, schema)
    _check_repeated(state, source, rows, routing)
    if (state.moved_in[state.covered(source.map_id, version)] > version).any():
        raise PlacementChangedError(
            f"partitions of shuffle {state.id!r} were moved while attempt {source.attempt} of map "
            f"{source.map_id} was written; write it again"
        )


def checked_counts(state: ShuffleState, counts: Sequence[int]) -> Counts:
    """What a commit counts of each partition; ProtocolError where it can't be that."""
    partitions = len(state.placement)
    if len(counts) != partitions:
        raise ProtocolError(f"shuffle {state.id!r} has {partitions} partitions, not {len(counts)}")
    try:
        checked = np.array(counts, np.int64)
    except OverflowError:
        checked = np.full(partitions, -1)
    if checked.min() < 0 or checked.max() >= 2**48:
        raise ProtocolError("a commit counts rows and bytes from 0 to 2^48")
    return checked


def _check_schema(state: ShuffleState, source: MapAttempt, schema: pa.Schema) -> None:
    if len(schema) == 0 or state.schema is None:  # a map that wrote nothing, or the first
        return
    if difference := describe_difference(state.schema, schema):
        raise SchemaMismatchError(
            f"map {source.map_id} of shuffle {state.id!r} does not agree with the maps before "
            f"it: {difference}"
        )


def _check_repeated(state: ShuffleState, source: MapAttempt, rows: Counts, routing: str) -> None:
    known = state.sent_by.get(source.map_id)
    if known is not None and known != hash_of_sent(rows, routing):
        raise InconsistentMapOutputError(
            f"map {source.map_id} of shuffle {state.id!r} was run again, as servers were lost that "
            "held some of its rows, and sent other rows than before, or in another order: the two "
            "do not go together"
        )


def check_not_lost(state: ShuffleState, partitions: Iterable[int]) -> None:
    """Raise MapOutputLostError where a map that was committed is to be written again for one."""
    if not state.generation.any():
        return
    oldest = min((last.until for last in state.last_of.values()), default=state.version)
    for partition in partitions:
        if state.generation[partition] > oldest:
            lost = state.lost_of(partition)
            raise MapOutputLostError(
                f"what {len(lost)} maps ({', '.join(map(str, lost[:5]))}...) sent to partition "
                f"{partition} of shuffle {state.id!r} was lost with a data server; write those "
                "maps again"
            )
