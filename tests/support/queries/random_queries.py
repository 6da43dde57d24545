"""Random queries in SQL that DataFusion and DuckDB answer alike.

After SQLancer (Rigger and Su, "Finding Bugs in Database Systems via Query Partitioning", 2020): a
query may also be the union of its rows for which a predicate is true, is false, and is null.
Left out is what the two systems define differently: division, the default place of nulls in an
order, means of decimals, and the first rows of an order that is not total.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.queries.random_tables import BOOL, DATE, DECIMAL, FLOAT, INT, TEXT, TEXTS, TYPES

_JOINS = ("join", "left join", "right join", "full join")


class RandomQuery(NamedTuple):
    """A query, and whether the order of its rows is fixed."""

    text: str
    is_ordered: bool


class _Column(NamedTuple):
    text: str
    kind: str


class _Select(NamedTuple):
    """A query with columns c0, c1, ..."""

    text: str
    kinds: tuple[str, ...]


def random_query(seed: int) -> RandomQuery:
    """The query of a seed."""
    return _Generator(seed).query()


class _Generator:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._aliases = 0

    def query(self) -> RandomQuery:
        rng = self._rng
        often = self._grouped, self._set
        seldom = self._plain, self._windows, self._partitioned, self._common, self._distinct
        made = rng.choice([*often, *often, *seldom])(2)
        if rng.random() < 0.6:
            return RandomQuery(made.text, is_ordered=False)
        return RandomQuery(f"select * from ({made.text}) q {self._order(made)}", is_ordered=True)

    def _order(self, made: _Select) -> str:
        """A total order, often of the first rows only."""
        rng = self._rng
        places = list(range(len(made.kinds)))
        rng.shuffle(places)
        keys = ", ".join(
            f"c{n} {rng.choice(['asc', 'desc'])} nulls {rng.choice(['first', 'last'])}"
            for n in places
        )
        limit = ""
        if rng.random() < 0.6:
            limit += f" limit {rng.choice([0, 1, 3, 10, 100])}"
        if rng.random() < 0.3:
            limit += f" offset {rng.choice([1, 4, 50])}"
        return f"order by {keys}{limit}"

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    # Relations

    def _relation(self, depth: int) -> tuple[str, list[_Column]]:
        alias = self._alias()
        if depth > 0 and self._rng.random() < 0.35:
            inner = self._any(depth - 1)
            columns = [_Column(f"{alias}.c{n}", kind) for n, kind in enumerate(inner.kinds)]
            return f"({inner.text}) {alias}", columns
        table = self._rng.choice(["big", "big", "mid", "mid", "few", "none"])
        return f"{table} {alias}", [_Column(f"{alias}.{n}", k) for n, k in TYPES.items()]

    def _any(self, depth: int) -> _Select:
        rng = self._rng
        made = rng.choice(
            [self._plain, self._grouped, self._set, self._distinct, self._windows, self._first]
        )
        return made(depth)

    def _first(self, depth: int) -> _Select:
        """The first rows of an order."""
        made = self._plain(depth)
        keys = ", ".join(f"c{n} nulls first" for n in range(len(made.kinds)))
        limit = self._rng.choice([1, 5, 20])
        return made._replace(text=f"select * from ({made.text}) q order by {keys} limit {limit}")

    def _from(self, depth: int) -> tuple[str, list[_Column]]:
        rng = self._rng
        text, columns = self._relation(depth)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            other, others = self._relation(depth - 1)
            roll = rng.random()
            if roll < 0.1 and "big" not in other:
                text += f" cross join {other}"
                columns = columns + others
                continue
            on = self._equal(columns, others)
            kind = rng.choice(_JOINS)
            if on is None or roll < 0.2:
                on = self._comparison(columns, others)
            elif roll < 0.45:
                on += f" and {self._predicate(columns + others, 1)}"
            text += f" {kind} {other} on {on}"
            columns = columns + others
        return text, columns

    def _equal(self, left: Sequence[_Column], right: Sequence[_Column]) -> str | None:
        rng = self._rng
        pairs = [
            (a.text, b.text) for a in left for b in right if a.kind == b.kind and a.kind != FLOAT
        ]
        if not pairs:
            return None
        return " and ".join(
            f"{a} = {b}" for a, b in rng.sample(pairs, min(len(pairs), rng.choice([1, 1, 2])))
        )

    def _comparison(self, left: Sequence[_Column], right: Sequence[_Column]) -> str:
        kinds = sorted({a.kind for a in left} & {b.kind for b in right} - {BOOL})
        if not kinds:
            return "1 = 1"
        kind = self._rng.choice(kinds)
        a = self._rng.choice([c.text for c in left if c.kind == kind])
        b = self._rng.choice([c.text for c in right if c.kind == kind])
        return f"{a} {self._rng.choice(['<', '>=', '<>'])} {b}"

    def _where(self, columns: Sequence[_Column], depth: int) -> str:
        if self._rng.random() < 0.5:
            return ""
        return f" where {self._predicate(columns, depth)}"

    # Queries

    def _columns(self, columns: Sequence[_Column], depth: int, most: int = 4) -> list[_Column]:
        count = self._rng.randrange(1, most + 1)
        return [self._value(columns, depth) for _ in range(count)]

    @staticmethod
    def _select(values: Sequence[_Column], rest: str, word: str = "select") -> _Select:
        named = ", ".join(f"{value.text} as c{n}" for n, value in enumerate(values))
        return _Select(f"{word} {named} {rest}", tuple(value.kind for value in values))

    def _plain(self, depth: int) -> _Select:
        text, columns = self._from(depth)
        return self._select(
            self._columns(columns, depth), f"from {text}{self._where(columns, depth)}"
        )

    def _distinct(self, depth: int) -> _Select:
        text, columns = self._from(depth)
        rest = f"from {text}{self._where(columns, depth)}"
        return self._select(self._columns(columns, 0, 3), rest, "select distinct")

    def _grouped(self, depth: int) -> _Select:
        rng = self._rng
        text, columns = self._from(depth)
        keys = [rng.choice(columns) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        keys = list(dict.fromkeys(keys))
        values = [*keys, *(self._aggregate(columns) for _ in range(rng.randrange(1, 4)))]
        rest = f"from {text}{self._where(columns, depth)}"
        if keys:
            names = ", ".join(key.text for key in keys)
            by = rng.choice([names, names, f"rollup ({names})", f"cube ({names})"])
            rest += f" group by {by}"
        if rng.random() < 0.3:
            rest += f" having {self._aggregate(columns, counts=True).text} > {rng.randrange(3)}"
        return self._select(values, rest)

    def _aggregate(self, columns: Sequence[_Column], *, counts: bool = False) -> _Column:
        rng = self._rng
        column = rng.choice(columns)
        options = [
            _Column("count(*)", INT),
            _Column(f"count({column.text})", INT),
            _Column(f"count(distinct {column.text})", INT),
        ]
        if not counts:
            options += [_Column(f"{rng.choice(['min', 'max'])}({column.text})", column.kind)]
            if column.kind in (INT, FLOAT, DECIMAL):
                options += [_Column(f"sum({column.text})", column.kind)]
            if column.kind in (INT, FLOAT):
                options += [_Column(f"avg({column.text})", FLOAT)]
                options += [_Column(f"sum(distinct {column.text})", column.kind)]
            predicate = self._simple(columns)
            options += [_Column(f"count(*) filter (where {predicate})", INT)]
        return rng.choice(options)

    def _windows(self, depth: int) -> _Select:
        rng = self._rng
        text, columns = self._from(min(depth, 1))
        values = self._columns(columns, 0, 2)
        for _ in range(rng.choice([1, 1, 2])):
            values.append(self._window(columns))
        return self._select(values, f"from {text}{self._where(columns, 1)}")

    def _window(self, columns: Sequence[_Column]) -> _Column:
        rng = self._rng
        parts, order = self._value(columns, 0).text, rng.choice(columns)
        by = rng.choice([f"partition by {parts} ", f"partition by {parts} ", ""])
        direction, nulls = rng.choice(["", "desc "]), rng.choice(["first", "last"])
        sort = f"order by {order.text} {direction}nulls {nulls}"
        column = rng.choice([each for each in columns if each.kind in (INT, DECIMAL)] or [None])
        options = [
            _Column(f"rank() over ({by}{sort})", INT),
            _Column(f"dense_rank() over ({by}{sort})", INT),
            _Column(f"count(*) over ({by}{sort})", INT),
            _Column(f"count(*) over ({by.strip()})", INT),
        ]
        if column is not None:
            options += [
                _Column(f"sum({column.text}) over ({by}{sort})", column.kind),
                _Column(f"max({column.text}) over ({by.strip()})", column.kind),
                _Column(f"min({column.text}) over ({by}{sort})", column.kind),
            ]
        return rng.choice(options)

    def _of_kinds(self, kinds: Sequence[str], depth: int) -> _Select:
        """A query with columns of these types."""
        text, columns = self._from(depth)
        values = [self._of_kind(columns, kind, depth) for kind in kinds]
        word = self._rng.choice(["select", "select", "select distinct"])
        return self._select(values, f"from {text}{self._where(columns, depth)}", word)

    def _set(self, depth: int) -> _Select:
        rng = self._rng
        made = self._grouped(depth - 1) if rng.random() < 0.3 else self._plain(depth - 1)
        text = made.text
        words = ["union", "union all", "union all", "intersect", "except"]
        for _ in range(rng.choice([1, 1, 2])):
            other = self._of_kinds(made.kinds, depth - 1)
            text = f"({text}) {rng.choice(words)} ({other.text})"
        return made._replace(text=text)

    def _partitioned(self, depth: int) -> _Select:
        """All rows, divided by what a predicate is for them."""
        text, columns = self._from(depth)
        predicate = self._predicate(columns, depth)
        made = self._select(self._columns(columns, 0), f"from {text}")
        texts = [
            f"{made.text} where {each}"
            for each in (predicate, f"not ({predicate})", f"({predicate}) is null")
        ]
        return made._replace(text=" union all ".join(texts))

    def _common(self, depth: int) -> _Select:
        """A common table expression that is used twice."""
        rng = self._rng
        inner = self._any(1)
        a, b = self._alias(), self._alias()
        left = [_Column(f"{a}.c{n}", kind) for n, kind in enumerate(inner.kinds)]
        right = [_Column(f"{b}.c{n}", kind) for n, kind in enumerate(inner.kinds)]
        on = self._equal(left, right) or "1 = 1"
        source = f"from w {a} {rng.choice(_JOINS)} w {b} on {on}"
        if rng.random() < 0.5:
            made = self._select(self._columns(left + right, 0), source)
        else:
            made = self._select([_Column("count(*)", INT), self._aggregate(left)], source)
        return made._replace(text=f"with w as ({inner.text}) {made.text}")

    # Values

    def _value(self, columns: Sequence[_Column], depth: int) -> _Column:
        rng = self._rng
        roll = rng.random()
        if depth > 0 and roll < 0.12:
            return self._scalar(columns, depth)
        if roll < 0.18:
            return _Column(f"({self._predicate(columns, 0)})", BOOL)
        return self._of_kind(columns, rng.choice([each.kind for each in columns]), depth)

    def _scalar(self, columns: Sequence[_Column], depth: int) -> _Column:
        """A scalar subquery, which may be correlated."""
        rng = self._rng
        alias = self._alias()
        inner = [_Column(f"{alias}.{name}", kind) for name, kind in TYPES.items()]
        value = rng.choice(
            [
                _Column("count(*)", INT),
                _Column(f"max({alias}.v)", INT),
                _Column(f"min({alias}.s)", TEXT),
                _Column(f"sum({alias}.d)", DECIMAL),
            ]
        )
        table = rng.choice(["mid", "few", "none"])
        where = ""
        if rng.random() < 0.6 and (on := self._equal(inner, columns)) is not None:
            where = f" where {on}"
        elif rng.random() < 0.5:
            where = f" where {self._simple(inner)}"
        return _Column(f"(select {value.text} from {table} {alias}{where})", value.kind)

    def _of_kind(self, columns: Sequence[_Column], kind: str, depth: int) -> _Column:
        rng = self._rng
        known = [column.text for column in columns if column.kind == kind]
        x = rng.choice(known) if known else self._literal(kind)
        if rng.random() < 0.6:
            return _Column(x, kind)
        y = rng.choice(known) if known else self._literal(kind)
        options = [
            f"coalesce({x}, {self._literal(kind)})",
            f"case when {self._simple(columns)} then {x} else {y} end",
            f"nullif({x}, {self._literal(kind)})",
        ]
        options += {
            INT: [f"({x} + {y})", f"({x} * 2)", f"({x} % 3)", f"abs({x})"],
            TEXT: [f"upper({x})", f"({x} || 'z')", f"substr({x}, 1, 1)"],
            FLOAT: [f"({x} * 2)", f"({x} + {y})"],
            DECIMAL: [f"abs({x})"],
            DATE: [f"greatest({x}, {y})"],
            BOOL: [f"(not {x})", f"({x} is true)"],
        }[kind]
        return _Column(rng.choice(options), kind)

    def _literal(self, kind: str) -> str:
        rng = self._rng
        return {
            INT: str(rng.randrange(0, 6)),
            TEXT: f"'{rng.choice(TEXTS)}'",
            DECIMAL: f"cast({rng.randrange(-2, 4)} as decimal(10, 2))",
            FLOAT: f"cast({rng.randrange(-1, 3)} as double)",
            DATE: f"date '2024-01-0{rng.randrange(1, 5)}'",
            BOOL: rng.choice(["true", "false"]),
        }[kind]

    # Predicates

    def _simple(self, columns: Sequence[_Column]) -> str:
        """A predicate without subqueries."""
        rng = self._rng
        column = rng.choice(columns)
        x, kind = column.text, column.kind
        if kind == BOOL:
            return rng.choice([x, f"not {x}", f"{x} is null", f"{x} is not true"])
        a, b = self._literal(kind), self._literal(kind)
        others = [each.text for each in columns if each.kind == kind]
        options = [
            f"{x} {rng.choice(['=', '<', '>', '<=', '<>'])} {rng.choice([a, *others])}",
            f"{x} is null",
            f"{x} is not null",
            f"{x} in ({a}, {b})",
            f"{x} not in ({a}, {b})",
            f"{x} between {a} and {b}",
            f"{x} is distinct from {rng.choice([a, *others])}",
        ]
        if kind == TEXT:
            options += [f"{x} like 'a%'", f"{x} not like '%b%'"]
        return rng.choice(options)

    def _predicate(self, columns: Sequence[_Column], depth: int) -> str:
        rng = self._rng
        roll = rng.random()
        if roll < 0.2:
            word = rng.choice(["and", "or"])
            return f"({self._predicate(columns, depth)} {word} {self._simple(columns)})"
        if roll < 0.27:
            return f"not ({self._predicate(columns, depth)})"
        if depth > 0 and roll < 0.55:
            return self._subquery(columns)
        return self._simple(columns)

    def _subquery(self, columns: Sequence[_Column]) -> str:
        """A predicate with a subquery: exists, in, or a comparison with a scalar."""
        rng = self._rng
        alias = self._alias()
        table = rng.choice(["big", "mid", "few", "none"])
        inner = [_Column(f"{alias}.{name}", kind) for name, kind in TYPES.items()]
        negated = rng.choice(["", "not "])
        more = rng.choice(["", f" and {self._simple(inner)}"])
        on = self._equal(inner, columns)
        if on is not None and rng.random() < 0.4:
            return f"{negated}exists (select 1 from {table} {alias} where {on}{more})"
        column = rng.choice(columns)
        if rng.random() < 0.25:
            scalar = self._scalar(columns, 0)
            value = self._of_kind(columns, scalar.kind, 0).text
            return f"{value} {rng.choice(['<', '=', '>='])} {scalar.text}"
        same = rng.choice([each.text for each in inner if each.kind == column.kind])
        where = rng.choice(["", f" where {same} is not null", f" where {self._simple(inner)}"])
        return f"{column.text} {negated}in (select {same} from {table} {alias}{where})"
