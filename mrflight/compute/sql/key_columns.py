"""Tracks the columns that determine the key of a row through a query's plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types

if TYPE_CHECKING:
    from datafusion import Expr


_WRAPPED = {"Alias", "Cast", "TryCast"}
"""Nodes around an expression that do not change which column it is."""

_COMPARISONS = {"=", "!=", "<", "<=", ">", ">="}
"""Comparisons that are never true for a null."""

CONSTANT: frozenset[str] = frozenset()
"""The columns that determine a value that is the same in all rows: the empty set."""


class KeyColumn(msgspec.Struct, frozen=True):
    """The columns that determine the value of one key column."""

    kind: pa.DataType
    equal: frozenset[frozenset[str]]
    """Sets of columns that each determine the value, such as both keys of a full join together. The
    set is empty if the value is the same in all rows."""
    or_null: frozenset[str]
    """Columns with the value or null; matching rows have equal values in them."""
    has_null: bool = True
    """False if no row has a null in it."""
    constant: Any = None
    """The value in all rows, if it is known."""

    def determined_by(self, exprs: Sequence[Expr]) -> bool:
        """Return whether rows that agree in these expressions also agree in this column."""
        plain = {name for name in (self.column(expr) for expr in exprs) if name}
        return any(
            same <= plain or any(self.is_coalesce(expr, same) for expr in exprs)
            for same in self.equal
        )

    def matched_by(self, expr: Expr, *, also_by_null: bool = False) -> bool:
        """Return whether rows that agree in this expression agree in this column, or it is null.

        With ``also_by_null``, null equals null, so a null in this column does not suffice.
        """
        name = self.column(expr)
        if name in self.or_null and (not also_by_null or frozenset([name or ""]) in self.equal):
            return True
        return any(self.is_coalesce(expr, same) for same in self.equal)

    def is_same_constant(self, other: KeyColumn) -> bool:
        """Return whether both columns have one known value in all rows."""
        is_known = self.constant is not None and other.constant is not None
        return is_known and bool(self.constant == other.constant)

    def column(self, expr: Expr) -> str | None:
        """Return the column that an expression is, unchanged or cast without loss, or None."""
        name, casts = _column(expr), list(_casts(expr))
        is_kept = not casts or (name in self.or_null and keeps_values(self.kind, casts))
        return name if is_kept and not _may_become_null(expr) else None

    def is_coalesce(self, expr: Expr, same: frozenset[str]) -> bool:
        """Return whether an expression is the first value that is not null of a set: coalesce."""
        if len(same) < 2 or not same <= self.or_null or _may_become_null(expr):
            return False
        if not keeps_values(self.kind, list(_casts(expr))):
            return False
        return {self.column(part) for part in _coalesce_args(expr)} == same

    def project(self, outputs: Sequence[tuple[str, Expr]]) -> KeyColumn:
        """Return the column by the names that a projection gives."""
        plain = {name: self.column(expr) for name, expr in outputs}
        equal: set[frozenset[str]] = set()
        coalesced: set[str] = set()
        for same in self.equal:
            new = {old: name for name, old in plain.items() if old in same}
            if len(same) == 1:
                equal |= {frozenset([name]) for name, old in plain.items() if old in same}
            elif len(new) == len(same):
                equal.add(frozenset(new.values()))
            coalesced |= {name for name, expr in outputs if self.is_coalesce(expr, same)}
        equal |= {frozenset([name]) for name in coalesced}
        or_null = {name for name, old in plain.items() if old in self.or_null}
        return replace(self, equal=frozenset(equal), or_null=frozenset(coalesced | or_null))

    def rename(self, names: Mapping[str, str]) -> KeyColumn:
        """Return the column by other names, without columns that have no new name."""
        equal = (same for same in self.equal if same <= names.keys())
        return replace(
            self,
            equal=frozenset(frozenset(names[name] for name in same) for same in equal),
            or_null=frozenset(names[name] for name in self.or_null if name in names),
        )

    def with_equal(self, pairs: Iterable[tuple[Expr, Expr]]) -> KeyColumn:
        """Return the column with the columns added that equal one of its own in these pairs."""
        found = self
        for one, other in pairs:
            for known, new in ((one, other), (other, one)):
                matched = self.column(known)
                if matched is None or frozenset([matched]) not in found.equal:
                    continue
                if (name := _column(new)) is not None:
                    casts = list(_casts(new))
                    is_value = matched in self.or_null and (
                        not casts or (len(casts) == 1 and is_whole(self.kind, casts))
                    )
                    names = frozenset([name])
                    or_null = found.or_null | (names if is_value else frozenset())
                    found = replace(found, equal=found.equal | {names}, or_null=or_null)
                elif new.variant_name() == "Literal":
                    is_value = matched in self.or_null and not any(_casts(known))
                    value = _value(new) if is_value else found.constant
                    found = replace(found, equal=found.equal | {CONSTANT}, constant=value)
        return found

    def without_null(self, exprs: Iterable[Expr]) -> KeyColumn:
        """Return the column for rows in which none of these expressions is null."""
        matched = (self.column(expr) for expr in exprs)
        if any(name in self.or_null and frozenset([name or ""]) in self.equal for name in matched):
            return replace(self, has_null=False)
        return self


def equalities(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the pairs that are equal in each row for which this expression is true."""
    if expr.variant_name() == "BinaryExpr":
        node = expr.to_variant()
        if node.op() == "AND":
            yield from equalities(node.left())
            yield from equalities(node.right())
        elif node.op() == "=":
            yield node.left(), node.right()


def not_nulls(expr: Expr) -> Iterator[Expr]:
    """Yield the expressions that are not null in each row for which this one is true."""
    if expr.variant_name() == "IsNotNull":
        yield expr.to_variant().expr()
    elif expr.variant_name() == "BinaryExpr":
        node = expr.to_variant()
        if node.op() == "AND":
            yield from not_nulls(node.left())
            yield from not_nulls(node.right())
        elif node.op() in _COMPARISONS:
            yield from (node.left(), node.right())


def expr_text(expr: Expr) -> str:
    """Return an expression for a message, without table names that the query does not use."""
    name = _column(expr) or str(expr.schema_name())
    return name.rpartition(".")[2] if name.startswith("__") else name


def _column(expr: Expr) -> str | None:
    """Return the column that an expression is, in any type; None for other expressions."""
    while expr.variant_name() in _WRAPPED:
        expr = expr.to_variant().expr()
    return str(expr.to_variant().qualified_name()) if expr.variant_name() == "Column" else None


def _casts(expr: Expr) -> Iterator[str]:
    """Yield the types that a column is cast to."""
    while (kind := expr.variant_name()) in _WRAPPED:
        if kind != "Alias":
            yield expr.canonical_name().rpartition(" AS ")[2].removesuffix(")")
        expr = expr.to_variant().expr()


def _may_become_null(expr: Expr) -> bool:
    """Return whether a value becomes null if it does not fit a type."""
    while (kind := expr.variant_name()) in _WRAPPED:
        if kind == "TryCast":
            return True
        expr = expr.to_variant().expr()
    return False


def _coalesce_args(expr: Expr) -> list[Expr]:
    """Return the arguments of a coalesce, which plans write as a case; [] if it is not one."""
    while expr.variant_name() in _WRAPPED:
        expr = expr.to_variant().expr()
    if expr.variant_name() != "Case":
        return []
    case = expr.to_variant()
    last = case.else_expr()
    if case.expr() is not None or last is None:
        return []
    parts = []
    for when, then in case.when_then_expr():
        if when.canonical_name() != f"{then.canonical_name()} IS NOT NULL":
            return []
        parts.append(then)
    return [*parts, last]


def _value(literal: Expr) -> Any:
    """Return the value of a literal; None if it has none in Python."""
    try:
        return literal.python_value().as_py()
    except Exception:  # DataFusion raises any exception for types that it does not know
        return None


_TEXT = r"(Large)?Utf8(View)?"
_BYTES = r"(Large)?Binary(View)?"
_WHOLE = r"U?Int\d+"
_NONE = r"(?!)"

_UNITS = {"s": "s", "ms": "ms", "us": "µs", "ns": "ns"}
"""The names of units in DataFusion, the coarsest first."""


def keeps_values(kind: pa.DataType, casts: Sequence[str]) -> bool:
    """Return whether these casts, one after another, keep different key values different.

    Values of two joinable types must be equal after the casts exactly if they were equal before. A
    cast that is not listed is assumed to make different values equal.
    """
    return all(re.fullmatch(_lossless_casts(kind), cast) is not None for cast in casts)


def is_whole(kind: pa.DataType, casts: Sequence[str]) -> bool:
    """Return whether a type and its casts are all integers, so that no value is changed."""
    return types.is_integer(kind) and all(re.fullmatch(_WHOLE, cast) for cast in casts)


def _lossless_casts(kind: pa.DataType) -> str:
    """Return a pattern for the types that values of this type can be cast to without loss."""
    if types.is_integer(kind) or types.is_boolean(kind):
        return f"{_WHOLE}|{_TEXT}"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return f"{_TEXT}|{_BYTES}"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return _BYTES
    if types.is_fixed_size_binary(kind):
        return _BYTES
    if types.is_floating(kind):
        return "Float64"
    if types.is_decimal(kind):
        return rf"{_TEXT}|Decimal\d+\(\d+, {kind.scale}\)"
    if types.is_timestamp(kind):
        units = "|".join(list(_UNITS.values())[list(_UNITS).index(kind.unit) :])
        return rf"{_TEXT}|Timestamp\(({units}){', .+' if kind.tz else ''}\)"
    if types.is_date(kind):
        return rf"{_TEXT}|Timestamp\(({'|'.join(_UNITS.values())})\)"
    return _TEXT if types.is_time(kind) else _NONE


OR_ONE_PARTITION = "or set shuffle.partitions = 1"
"""The advice for every query that cannot be run by partition."""


Key = tuple[KeyColumn, ...]
"""All columns of the key of a row."""


class NotCopartitionedError(Exception):
    """A node of a plan needs rows of other partitions. The message says what it does."""


class PartitionedPlan(msgspec.Struct, frozen=True):
    """The properties of the rows that a node of a plan returns."""

    tables: tuple[str, ...] = ()
    """The partitioned tables that the rows come from; none if every task has the rows."""
    key: Key = ()
    """Empty if there are no tables."""
    has_any: bool = True
    """False if the node returns no row in any partition."""
