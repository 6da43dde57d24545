"""Which columns tell the key of a row, in a part of a query's plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from datafusion import Expr

_COARSE = ("Int", "UInt", "Boolean", "Date", "Time32", "Time64")
"""Types in which values of others become equal that were not."""

_WRAPPED = {"Alias", "Cast", "TryCast"}
"""What is around an expression that is told by it."""


@dataclass(frozen=True)
class KeyColumn:
    """What tells the value of one column of the key."""

    kind: pa.DataType
    equal: frozenset[frozenset[str]]
    """Columns that do, each or several together, as both sides' of a full join; none of them where
    it is the same in all rows."""
    or_null: frozenset[str]
    """Columns with the value or null, by which rows meet that are to meet."""

    def is_told(self, exprs: Sequence[Expr]) -> bool:
        """Whether rows with equal values of these have an equal one of it."""
        plain = {name for name in (self.column(expr) for expr in exprs) if name}
        return any(
            same <= plain or any(self.is_made(expr, same) for expr in exprs) for same in self.equal
        )

    def is_met(self, expr: Expr) -> bool:
        """Whether a row that is equal to another in this has its value, or nothing."""
        name = _column(expr)
        return name in self.or_null or any(self.is_made(expr, same) for same in self.equal)

    def column(self, expr: Expr) -> str | None:
        """The column that this is, if it is one: as it is, or in a type that keeps it."""
        name, kinds = _column(expr), list(_casts(expr))
        is_kept = pa.types.is_integer(self.kind) and not any(k.startswith("Bool") for k in kinds)
        return name if is_kept or not any(kind.startswith(_COARSE) for kind in kinds) else None

    def is_made(self, expr: Expr, same: frozenset[str]) -> bool:
        """Whether it is made of several that tell it together: as coalesce does."""
        return len(same) > 1 and _column(expr) is None and same <= set(_columns(expr))

    def named(self, outputs: Sequence[tuple[str, Expr]]) -> KeyColumn:
        """The same by the names of what is made of the columns."""
        plain = {name: self.column(expr) for name, expr in outputs}
        equal: set[frozenset[str]] = set()
        for same in self.equal:
            new = {old: name for name, old in plain.items() if old in same}
            if len(same) == 1:
                equal |= {frozenset([name]) for name, old in plain.items() if old in same}
            elif len(new) == len(same):
                equal.add(frozenset(new.values()))
            equal |= {frozenset([n]) for n, expr in outputs if self.is_made(expr, same)}
        alone = {name for same in equal if len(same) == 1 for name in same}
        or_null = {name for name, old in plain.items() if old in self.or_null}
        return KeyColumn(self.kind, frozenset(equal), frozenset(alone | or_null))

    def renamed(self, names: Mapping[str, str]) -> KeyColumn:
        """The same by other names, without what has none."""
        equal = (same for same in self.equal if same <= names.keys())
        return KeyColumn(
            self.kind,
            frozenset(frozenset(names[name] for name in same) for same in equal),
            frozenset(names[name] for name in self.or_null if name in names),
        )

    def with_equal(self, pairs: Iterable[tuple[Expr, Expr]]) -> KeyColumn:
        """With columns that are equal to one that tells it; constants need none."""
        found = self
        for one, other in pairs:
            for known, new in ((one, other), (other, one)):
                name = _column(new)
                is_told = frozenset([self.column(known) or ""]) in found.equal
                if not is_told or (name is None and any(_columns(new))):
                    continue
                names = frozenset([name] if name else [])
                found = KeyColumn(self.kind, found.equal | {names}, found.or_null | names)
        return found


def equalities(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """What is equal in each row for which this is true."""
    if expr.variant_name() == "BinaryExpr":
        node = expr.to_variant()
        if node.op() == "AND":
            yield from equalities(node.left())
            yield from equalities(node.right())
        elif node.op() == "=":
            yield node.left(), node.right()


def shown(expr: Expr) -> str:
    """An expression in a message, without a name that the query did not give to a table."""
    name = _column(expr) or str(expr.schema_name())
    return name.rpartition(".")[2] if name.startswith("__") else name


def _column(expr: Expr) -> str | None:
    """The column that an expression is, in whatever type; None for all others."""
    while expr.variant_name() in _WRAPPED:
        expr = expr.to_variant().expr()
    return str(expr.to_variant().qualified_name()) if expr.variant_name() == "Column" else None


def _casts(expr: Expr) -> Iterator[str]:
    """The types that a column is cast to."""
    while (kind := expr.variant_name()) in _WRAPPED:
        if kind != "Alias":
            yield expr.canonical_name().rpartition(" AS ")[2].rstrip(")")
        expr = expr.to_variant().expr()


def _columns(expr: Expr) -> Iterator[str]:
    """Those of an expression."""
    if name := _column(expr):
        yield name
    elif expr.variant_name() in _WRAPPED:
        yield from _columns(expr.to_variant().expr())
    elif expr.variant_name() != "Literal":
        try:
            parts = expr.rex_call_operands()
        except RuntimeError:  # it does not know the parts of all kinds
            parts = []
        for part in parts:
            yield from _columns(part)
