"""Defines which rows and columns a join outputs for matched and for unmatched rows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.join_types import comparable_values, has_one_value_per_hash, unmatched_rows


class JoinSide(msgspec.Struct, frozen=True):
    """One of the two inputs of a join."""

    name: str
    schema: pa.Schema
    """A plain schema with no more columns than the join needs."""
    on: tuple[str, ...]
    partners: tuple[pa.DataType, ...]
    """The types of the other side's key columns."""
    keeps_matched: bool = False
    """True if each matched row is in the result once, without the row that it matches."""
    keeps_unmatched: bool = False
    """True if each unmatched row is in the result."""

    @property
    def keeps_rows(self) -> bool:
        """True if the join must know for each row whether it matched."""
        return self.keeps_matched or self.keeps_unmatched

    @property
    def keys_only(self) -> JoinSide:
        """The side with only its key columns."""
        keys = (self.schema.field(name) for name in dict.fromkeys(self.on))
        return replace(self, schema=pa.schema(keys))

    @property
    def has_one_key_per_hash(self) -> bool:
        """True if rows with equal hashes always have equal keys."""
        return len(self.on) == 1 and has_one_value_per_hash(self.schema.field(self.on[0]).type)

    def hashes(self, rows: pa.RecordBatch) -> pa.UInt64Array:
        """Return the hash of each row's key; null for rows that cannot match."""
        hashes = kernel.hash_rows([rows[name] for name in self.on])
        unmatched = self.unmatched(rows)
        return hashes if unmatched is None else pc.if_else(unmatched, None, hashes)

    def unmatched(self, rows: pa.RecordBatch) -> pa.BooleanArray | None:
        """Return which rows cannot match, because of a null in their key; None if all can."""
        found = None
        for name, partner in zip(self.on, self.partners, strict=True):
            of_column = unmatched_rows(rows[name], partner)
            if of_column is not None:
                found = of_column if found is None else pc.or_(found, of_column)
        return found

    def keys(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the key columns in the form in which the two sides are compared."""
        return [
            pa.chunked_array(
                [comparable_values(chunk, partner) for chunk in rows[name].chunks],
                comparable_values(pa.array([], rows[name].type), partner).type,
            )
            for name, partner in zip(self.on, self.partners, strict=True)
        ]


class JoinPlan(msgspec.Struct, frozen=True):
    """The two sides of a join, and the columns of its result."""

    left: JoinSide
    right: JoinSide
    result: pa.Schema
    from_left: int
    """The number of columns of the result that come from the left; they come first."""
    coalesced: frozenset[str]
    """The keys with the same name on both sides. Result rows take them from their left row if they
    have one."""
    keeps_pairs: bool
    """True if each pair of matching rows is a row of the result."""

    def side(self, name: str) -> JoinSide:
        """Return the side "left" or "right"."""
        return self.left if name == "left" else self.right

    def other(self, side: JoinSide) -> JoinSide:
        """Return the other side."""
        return self.right if side is self.left else self.left

    def for_slice(self, side: JoinSide) -> JoinPlan:
        """Return the plan for a slice of this side's rows and all of the other's.

        It leaves out the unmatched rows of the other side, because these may match rows of other
        slices.
        """
        return self._with(replace(self.other(side), keeps_unmatched=False))

    def outer_remainder(self, side: JoinSide) -> JoinPlan:
        """Return the plan for the other side's rows that match no row of any slice of this side."""
        narrow = replace(side.keys_only, keeps_unmatched=False)
        return replace(self._with(narrow), keeps_pairs=False)

    def _with(self, side: JoinSide) -> JoinPlan:
        return replace(self, left=side) if side.name == "left" else replace(self, right=side)

    def table(self, rows: Mapping[str, pa.Table], count: int) -> pa.Table:
        """Return ``count`` result rows from the rows of both sides, or of one side with nulls."""
        columns = []
        for number, field in enumerate(self.result):
            side = "left" if number < self.from_left else "right"
            if side == "left" and "left" not in rows and field.name in self.coalesced:
                side = "right"
            if side not in rows:
                columns.append(pa.chunked_array([pa.nulls(count, field.type)]))
                continue
            column = rows[side][field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.result)

    def alone(self, side: JoinSide, rows: pa.Table) -> pa.Table:
        """Return result rows from rows of one side that have no row of the other."""
        return self.table({side.name: rows}, rows.num_rows)
