"""Joins two inputs of any size by equal keys, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.join_types import common_type, joinable
from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import empty_table
from mrflight.errors import ColumnNotFoundError, JobFileError, KeyTypeError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.grace_hash_join import Batches, GraceHashJoin
from mrflight.tasks.operators.join_output import JoinPlan, JoinSide

How = Literal["inner", "left", "right", "full", "semi", "anti"]


def can_broadcast(how: How, *, is_left: bool) -> bool:
    """Return whether this side can be broadcast, so that every task has all of its rows.

    That is so if no row of this side is in the result without a match.
    """
    return how in (("inner", "right") if is_left else ("inner", "left", "semi", "anti"))


class Join(msgspec.Struct, frozen=True):
    """A join of two inputs by equal keys. Picklable.

    A row with a null in its key matches none. NaN equals NaN and -0.0 equals 0.0, as in DuckDB.
    ``semi`` returns each left row that matches any right row, ``anti`` each that matches none.
    """

    how: How
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    rows: tuple[str, str] = ("reduce.join: the left input", "reduce.join: the right input")
    """The names that messages use for left and right rows, with the key path in the job file."""

    def result_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """Return the left's columns, then the right's, in their plain types.

        A key with the same name on both sides is one column. It has the type of the left side, or
        of the right side in a right join, or a common type in a full join. Raises
        ColumnNotFoundError and KeyTypeError for a key, and JobFileError for a column that both
        sides have.
        """
        return self.plan(left, right).result

    def plan(self, left: pa.Schema, right: pa.Schema) -> JoinPlan:
        """Return the plan of a join of rows with these schemas. Raises as `result_schema` does."""
        left, right = canonical_schema(left), canonical_schema(right)
        self._check_keys(left, right)
        coalesced = frozenset(a for a, b in zip(self.left_on, self.right_on, strict=True) if a == b)
        pairs = self.how not in ("semi", "anti")
        from_right = tuple(name for name in right.names if name not in coalesced) if pairs else ()
        fields = [
            self._coalesced_field(left, right, n) if n in coalesced else left.field(n)
            for n in left.names
        ]
        result = pa.schema([*fields, *(right.field(name) for name in from_right)])
        self._check_names(result)
        lefts, rights = self._sides(left, right)
        return JoinPlan(
            lefts, rights if pairs else rights.keys_only, result, len(left.names), coalesced, pairs
        )

    def _sides(self, left: pa.Schema, right: pa.Schema) -> tuple[JoinSide, JoinSide]:
        kinds = [
            tuple(schema.field(name).type for name in on)
            for schema, on in ((left, self.left_on), (right, self.right_on))
        ]
        return (
            JoinSide(
                "left",
                left,
                self.left_on,
                kinds[1],
                keeps_matched=self.how == "semi",
                keeps_unmatched=self.how in ("left", "full", "anti"),
            ),
            JoinSide(
                "right",
                right,
                self.right_on,
                kinds[0],
                keeps_unmatched=self.how in ("right", "full"),
            ),
        )

    def _check_keys(self, left: pa.Schema, right: pa.Schema) -> None:
        if not self.left_on or len(self.left_on) != len(self.right_on):
            raise JobFileError(
                f"reduce.join: the left has {len(self.left_on)} key columns and the right "
                f"{len(self.right_on)}; give both the same number, at least one"
            )
        both = ((left, self.left_on), (right, self.right_on))
        for rows, (schema, on) in zip(self.rows, both, strict=True):
            for column in on:
                if column not in schema.names:
                    raise ColumnNotFoundError.among(column, schema.names, rows)
            kernel.check_key_types(schema, on)
        for a, b in zip(self.left_on, self.right_on, strict=True):
            kinds = left.field(a).type, right.field(b).type
            if not joinable(*kinds):
                raise KeyTypeError(
                    f"reduce.join: key column {a!r} of the left is {kinds[0]} and {b!r} of the "
                    f"right is {kinds[1]}, whose equal values have different hashes and would not "
                    "match; cast one to the type of the other in a map or sql"
                )

    def _coalesced_field(self, left: pa.Schema, right: pa.Schema, name: str) -> pa.Field:
        """Return the field of a key column that both sides have."""
        if self.how == "right":
            return right.field(name)
        if self.how != "full":
            return left.field(name)
        kinds = left.field(name).type, right.field(name).type
        kind = common_type(*kinds)
        if kind is None:
            raise KeyTypeError(
                f"reduce.join: key column {name!r} is {kinds[0]} in the left and {kinds[1]} in "
                "the right, and no integer type has the values of both, as a full join needs; cast "
                "one to the type of the other in a map or sql"
            )
        return pa.field(name, kind)

    def _check_names(self, result: pa.Schema) -> None:
        name, times = Counter(result.names).most_common(1)[0]
        if times > 1:
            raise JobFileError(
                f"reduce.join: the result would have {times} columns {name!r}; rename or drop "
                "one in a map or sql"
            )


def join_tables(
    plan: JoinPlan, left: Batches, right: Batches, rows_bytes: int, scratch: ScratchFolder
) -> Iterator[pa.Table]:
    """Yield the result in tables, at least one. The order of its rows is not defined.

    Batches may have other layouts of their types, and more columns. The same batches result in the
    same rows in the same order. About ``rows_bytes`` of each side are held in memory; larger sides
    are spilled to local files. Raises JobFailedError if these cannot be written.
    """
    join = GraceHashJoin(plan, rows_bytes, scratch)
    is_empty = True
    for table in join.results(_select_needed(left, plan.left), _select_needed(right, plan.right)):
        if table.num_rows:
            is_empty = False
            yield table
    if is_empty:
        yield empty_table(plan.result)


def _select_needed(batches: Batches, side: JoinSide) -> Batches:
    """Yield the columns and rows of a side that the join needs, in their canonical layout."""
    for batch in batches:
        plain = to_canonical(batch.select(side.schema.names), side.schema)
        unmatched = None if side.keeps_unmatched else side.unmatched(plain)
        yield plain if unmatched is None else plain.filter(pc.invert(unmatched))
