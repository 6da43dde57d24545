"""What a join makes of rows that meet, and of those that meet none."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute import kernel
from mrflight.compute.join_types import comparable_values, has_one_value_per_hash, unmatched_rows


class JoinSide(msgspec.Struct, frozen=True):
    """One of the two inputs of a join."""

    name: str
    schema: pa.Schema
    """Plain; of no more columns than the join needs."""
    on: tuple[str, ...]
    partners: tuple[pa.DataType, ...]
    """The types of the key columns that these are to meet."""
    keeps_met: bool = False
    """Whether each row that meets another is in the result once, alone."""
    keeps_unmet: bool = False
    """Whether each row that meets none is in the result."""

    @property
    def keeps_rows(self) -> bool:
        """Whether it is to be known of each row if it met another."""
        return self.keeps_met or self.keeps_unmet

    @property
    def of_keys(self) -> JoinSide:
        """Of no more columns than it takes to know which rows meet which."""
        keys = (self.schema.field(name) for name in dict.fromkeys(self.on))
        return replace(self, schema=pa.schema(keys))

    @property
    def has_one_key_per_hash(self) -> bool:
        """Whether rows of equal hashes have equal keys, always."""
        return len(self.on) == 1 and has_one_value_per_hash(self.schema.field(self.on[0]).type)

    def hashes(self, rows: pa.RecordBatch) -> pa.UInt64Array:
        """Of each row's key; null for rows that can meet none."""
        import pyarrow.compute as pc

        hashes = kernel.hash_rows([rows[name] for name in self.on])
        unmet = self.unmet(rows)
        return hashes if unmet is None else pc.if_else(unmet, None, hashes)

    def unmet(self, rows: pa.RecordBatch) -> pa.BooleanArray | None:
        """The rows that can meet none, with a null in their key; None where all can."""
        import pyarrow.compute as pc

        found = None
        for name, partner in zip(self.on, self.partners, strict=True):
            of_column = unmatched_rows(rows[name], partner)
            if of_column is not None:
                found = of_column if found is None else pc.or_(found, of_column)
        return found

    def keys(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """The key columns as they are compared with those of the other side."""
        return [
            pa.chunked_array(
                [comparable_values(chunk, partner) for chunk in rows[name].chunks],
                comparable_values(pa.array([], rows[name].type), partner).type,
            )
            for name, partner in zip(self.on, self.partners, strict=True)
        ]


class JoinPlan(msgspec.Struct, frozen=True):
    """Two sides and the columns of what is made of them."""

    left: JoinSide
    right: JoinSide
    result: pa.Schema
    from_left: int
    """The result's first columns are the left's."""
    merged: frozenset[str]
    """The keys that both call the same: the left's, where there are rows of the left."""
    keeps_pairs: bool
    """Whether each two rows that meet are one of the result."""

    def side(self, name: str) -> JoinSide:
        """The side "left" or "right"."""
        return self.left if name == "left" else self.right

    def other(self, side: JoinSide) -> JoinSide:
        """The other side."""
        return self.right if side is self.left else self.left

    def for_slice(self, side: JoinSide) -> JoinPlan:
        """What is made of some of this side's rows and all of the other's.

        Not the other's rows that meet none of them: they may meet this side's other rows.
        """
        return self._with(replace(self.other(side), keeps_unmet=False))

    def outer_remainder(self, side: JoinSide) -> JoinPlan:
        """What is not made of any share of this side: the other's rows that meet none at all."""
        narrow = replace(side.of_keys, keeps_unmet=False)
        return replace(self._with(narrow), keeps_pairs=False)

    def _with(self, side: JoinSide) -> JoinPlan:
        return replace(self, left=side) if side.name == "left" else replace(self, right=side)

    def table(self, rows: Mapping[str, pa.Table], count: int) -> pa.Table:
        """So many rows of both sides, or of the one that is given; the other's are null."""
        columns = []
        for number, field in enumerate(self.result):
            side = "left" if number < self.from_left else "right"
            if side == "left" and "left" not in rows and field.name in self.merged:
                side = "right"
            if side not in rows:
                columns.append(pa.chunked_array([pa.nulls(count, field.type)]))
                continue
            column = rows[side][field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.result)

    def alone(self, side: JoinSide, rows: pa.Table) -> pa.Table:
        """Rows of one side that met none, or of which it only counts whether they did."""
        return self.table({side.name: rows}, rows.num_rows)
