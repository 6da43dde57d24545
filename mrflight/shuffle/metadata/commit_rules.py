"""The checks of a commit, and of the partitions that a reader asks for. They change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from mrflight.compute.layout import canonical_schema
from mrflight.compute.schemas import describe_difference
from mrflight.errors import (
    InconsistentMapOutputError,
    MapOutputLostError,
    PlacementChangedError,
    ProtocolError,
    SchemaMismatchError,
)
from mrflight.shuffle.metadata.commit_log import hash_output
from mrflight.shuffle.metadata.events import Counts
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.shuffle.wire.protocol import CommitMap
from mrflight.units import format_count


def check_commit(state: ShuffleState, commit: CommitMap, schema: pa.Schema, rows: Counts) -> None:
    """Raise an error if an attempt cannot be committed.

    SchemaMismatchError, InconsistentMapOutputError or PlacementChangedError.
    """
    _check_schema(state, commit.map_id, schema)
    _check_repeated(state, commit, rows)
    where = state.counts_for(commit.map_id, commit.version)
    if (state.placement.moved_in[where] > commit.version).any():
        raise PlacementChangedError(
            f"partitions of shuffle {state.id!r} were moved while attempt {commit.attempt} of map "
            f"{commit.map_id} was written; write it again"
        )


def decode_schema(encoded: bytes) -> pa.Schema:
    """Return the schema in which a commit's rows are read; raise ProtocolError if it is not valid.

    A client that knows only Flight names the schema that it sent, which servers make canonical.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(encoded))
        _check_names(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ProtocolError(f"commit_map: the schema cannot be read: {error}") from error
    return canonical_schema(schema)


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeDecodeError if a field's name, at any depth, is not valid UTF-8."""
    for field in fields:
        field.name  # noqa: B018 - this decodes it
        _check_names(field.type.field(child) for child in range(field.type.num_fields))


def to_counts(state: ShuffleState, counts: Sequence[int]) -> Counts:
    """Return the counts of a commit as an array; raise ProtocolError if they are not valid."""
    partitions = len(state.placement)
    if len(counts) != partitions:
        raise ProtocolError(f"shuffle {state.id!r} has {partitions} partitions, not {len(counts)}")
    try:
        array = np.array(counts, np.int64)
    except OverflowError:
        array = np.full(partitions, -1)
    if array.min() < 0 or array.max() >= 2**48:
        raise ProtocolError("the rows and bytes of a commit must be at least 0 and below 2^48")
    return array


def _check_schema(state: ShuffleState, map_id: int, schema: pa.Schema) -> None:
    if len(schema) == 0 or state.log.schema is None:  # a map without batches, or the first map
        return
    if difference := describe_difference(state.log.schema, schema):
        raise SchemaMismatchError(
            f"map {map_id} of shuffle {state.id!r} does not agree with the maps before it: "
            f"{difference}; all maps and inputs of a shuffle must have the same columns"
        )


def _check_repeated(state: ShuffleState, commit: CommitMap, rows: Counts) -> None:
    """Raise InconsistentMapOutputError if a map that is written again has other rows."""
    known = state.log.output_hashes.get(commit.map_id)
    if known is not None and known != hash_output(rows, commit.routing):
        raise InconsistentMapOutputError(
            f"map {commit.map_id} of shuffle {state.id!r} was run again because data servers "
            "with some of its rows were lost, and it sent other rows than before, or in another "
            "order: the two outputs cannot be combined"
        )


def check_not_lost(state: ShuffleState, partitions: Iterable[int]) -> None:
    """Raise MapOutputLostError if a committed map must be written again for a partition."""
    placement, latest = state.placement, state.log.latest.values()
    if not placement.generations.any():
        return
    oldest = min((commit.until for commit in latest), default=placement.version)
    for partition in partitions:
        if placement.generations[partition] > oldest:
            lost = state.lost_maps_of(partition)
            named = ", ".join([*map(str, lost[:5]), *(["..."] if len(lost) > 5 else [])])
            raise MapOutputLostError(
                f"the rows that {format_count(len(lost), 'map')} ({named}) sent to partition "
                f"{partition} of shuffle {state.id!r} were lost with a data server; write them "
                "again"
            )
