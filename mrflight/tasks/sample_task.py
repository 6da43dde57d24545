"""The task of a sample: draws keys of a split, for a range partitioner."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.sorting import check_sortable
from mrflight.config.sort_key import SortKey, columns_of
from mrflight.sources.base import Reader, Split
from mrflight.tasks.mapper import Mapper, RowMap


class SampleTask(msgspec.Struct, frozen=True):
    """Samples the keys of a small split, for the boundaries of a range partitioner."""

    reader: Reader
    split: Split
    row_map: RowMap | None
    sort_keys: tuple[SortKey, ...]
    rows: int

    @property
    def name(self) -> str:
        return f"sample of {self.split.place}"


def run_sample(task: SampleTask) -> pa.Table:
    """Return the keys of at most ``task.rows`` rows of one batch, as columns "0", "1", ..."""
    batches = Mapper(task.reader, task.split, task.row_map).batches()
    batch = next(batches)
    while not batch.num_rows and (other := next(batches, None)) is not None:
        batch = other
    check_sortable(batch.schema, task.sort_keys)
    keys = batch.select(columns_of(task.sort_keys))
    plain = to_canonical(keys, canonical_schema(keys.schema))
    step = max(1, -(-plain.num_rows // task.rows))
    sampled = plain.take(pa.array(range(0, plain.num_rows, step), pa.int64()))
    return pa.Table.from_batches([sampled]).rename_columns(
        [str(i) for i in range(keys.num_columns)]
    )
