"""Marks the changes in a tail that delete rows, for the readers of a stream that merges."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.sql.predicate import Predicate
from mrflight.config.output_section import OutputSection
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import ColumnNotFoundError
from mrflight.shuffle.wire.tail_protocol import DELETED_COLUMN


class TailChanges(msgspec.Struct, frozen=True):
    """What the feed of a tail adds to rows that are changes."""

    merge: TailMerge
    delete_when: Predicate | None
    """True for a change that deletes the row of its key; None if none does."""

    @classmethod
    def of(cls, output: OutputSection) -> TailChanges | None:
        """Return that of the output of a live stream; None if it appends."""
        if output.mode != "merge":
            return None
        assert output.order_by is not None, "checked with the settings of the stream"
        when = output.delete_when
        return cls(
            TailMerge(tuple(output.keys), output.order_by),
            None if when is None else Predicate(when, "output.delete_when"),
        )

    def mark(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with `DELETED_COLUMN` behind theirs.

        Raises ColumnNotFoundError if they lack a column of the merge, and JobFileError if the
        predicate cannot be evaluated.
        """
        if not rows.num_columns:
            return rows
        for name in (*self.merge.keys, self.merge.order_by):
            if name not in rows.schema.names:
                where = "output: the rows of the stream"
                raise ColumnNotFoundError.among(name, rows.schema.names, where)
        return rows.append_column(DELETED_COLUMN, self._deleted(rows))

    def _deleted(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        when = self.delete_when
        if when is None or not rows.num_rows:
            return pa.array([False] * rows.num_rows, pa.bool_())
        if when.text in rows.schema.names and pa.types.is_boolean(rows[when.text].type):
            return pc.fill_null(rows[when.text], False)  # that of Debezium, many times a second
        return when.holds(rows)
