"""Applies the changes in a tail to the rows of its table, as a merge of all of them would.

The tail of a stream that merges has changes, several of them for a key. The last one of a key
counts: rows of the table with its key are left out, and the row of the change is added, unless it
deletes. Which one is the last is decided by what the merge itself decides it by.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.deduplication import deduplicate
from mrflight.compute.key_index import KeyIndex
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import InputError, OutputError
from mrflight.shuffle.wire.tail_protocol import DELETED_COLUMN
from mrflight.sources.schema_check import cast_batch


@dataclass(frozen=True, eq=False)
class ReplacedKeys:
    """The keys of which a tail has changes. Picklable; copies are equal."""

    keys: pa.Table
    """Without nulls, in columns of the table's types; at least one row."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def names(self) -> list[str]:
        """The columns of the keys."""
        return list(self.keys.schema.names)

    @cached_property
    def index(self) -> KeyIndex:
        """Finds the rows that have one of the keys."""
        return KeyIndex(self.keys)

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have none of the keys. A row with a null key has none."""
        found = self.index.matches(rows.select(self.names))
        if not len(found):
            return rows
        remains = np.ones(rows.num_rows, np.bool_)
        remains[found] = False
        return rows.filter(pa.array(remains))

    def shared(self) -> ReplacedKeys:
        """Return the copy whose index a process has, so that its tasks build it once."""
        return _first_copy(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplacedKeys) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type[ReplacedKeys], tuple[object, ...]]:
        return type(self), (self.keys, self.id)


class TailLayer(NamedTuple):
    """The rows of a tail as its table has them, and the keys of older rows that they replace."""

    rows: list[pa.RecordBatch]
    replaced: ReplacedKeys | None
    """None if all older rows stay."""


def tail_layer(
    stream: str, rows: Sequence[pa.RecordBatch], merge: TailMerge | None, schema: pa.Schema
) -> TailLayer:
    """Return what the tail of a stream adds to its table, whose columns ``schema`` has.

    ``rows`` is what the tail answered; ``merge`` is None for a stream that appends. Raises
    InputError for changes that cannot be merged.
    """
    if merge is None or not rows:
        return TailLayer([as_stored(batch, schema) for batch in rows], None)
    try:
        last = deduplicate(pa.Table.from_batches(rows), merge.keys, merge.order_by)
    except OutputError as error:
        raise InputError(
            f"the changes of the stream {stream!r} cannot be merged, and it will stop when it "
            f"commits them: {error}"
        ) from error
    keys = pa.schema([schema.field(name) for name in merge.keys])
    replaced = pa.Table.from_batches([as_stored(each, keys) for each in last.to_batches()])
    live = last.filter(pc.invert(last[DELETED_COLUMN]))
    return TailLayer(
        [as_stored(batch, schema) for batch in live.to_batches() if batch.num_rows],
        ReplacedKeys(replaced),
    )


class FreshLayers(NamedTuple):
    """What the tails of a table add to it, one after the other."""

    layers: Sequence[TailLayer]

    @property
    def replaced(self) -> list[ReplacedKeys | None]:
        """The keys that each of them replaces."""
        return [layer.replaced for layer in self.layers]

    def remaining(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the table that remain. They have the columns of the layers."""
        return without_all(rows, self.replaced)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the tails, each without those that tails after it replace."""
        replaced = self.replaced
        for number, layer in enumerate(self.layers):
            for batch in layer.rows:
                yield without_all(batch, replaced[number + 1 :])


def without_all(rows: pa.RecordBatch, replaced: Iterable[ReplacedKeys | None]) -> pa.RecordBatch:
    """Return the rows that have none of the keys."""
    for each in replaced:
        if each is not None:
            rows = each.without(rows)
    return rows


def as_stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a tail with the columns of their table; those that they lack are null."""
    for column in schema:
        if column.name not in batch.schema.names:
            batch = batch.append_column(column, pa.nulls(batch.num_rows, column.type))
    return cast_batch(batch, schema)


@lru_cache(maxsize=2)
def _first_copy(keys: ReplacedKeys) -> ReplacedKeys:
    """Return the first copy that this process has of some keys."""
    return keys
