"""Cuts a physical plan where rows have to move between tasks: a pure function.

What is between two cuts is a `FragmentPlan`. Its tasks run side by side, each on its own partition
of the inputs. An `Exchange` brings the rows of one fragment to the tasks of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.hash_keys import column_of, hash_keys
from mrflight.compute.sql.physical.limits import Limits
from mrflight.compute.sql.physical.matched_keys import (
    KeyedExchange,
    exchanges_by,
    is_having,
    join_keys,
)
from mrflight.compute.sql.physical.mends import Mends
from mrflight.compute.sql.physical.nodes import JOINS, MERGES, UNIONS, WINDOWS, Node
from mrflight.compute.sql.physical.ordering import (
    OrderKey,
    last_merge,
    leading_columns,
    unsorted,
)
from mrflight.compute.sql.physical.protobuf import encode_field, only_field, with_children
from mrflight.compute.sql.physical.scan_bounds import (
    ScanColumn,
    bounded_columns,
    scanned_column,
)
from mrflight.compute.sql.physical.scans import reading
from mrflight.compute.sql.physical.windows import as_sorted, has_sorted_rows, sorted_for
from mrflight.errors import JobFileError

Way = Literal["hash", "range", "gather", "first", "any"]
"""How an exchange distributes rows: by the hash of keys; by ranges of keys; all to every task; all
to the first task; or each to any task."""


_PLACEHOLDER = 1000
"""The number of a field that no node has."""

_HAVING_FRACTION = 10
"""The groups that ``having`` is expected to keep are a tenth."""


class Exchange(msgspec.Struct, frozen=True):
    """The rows of a fragment on their way to the tasks of another."""

    way: Way
    source: FragmentPlan | str
    """A fragment, or the name of a table."""
    keys: tuple[int, ...] = ()
    """The positions of the columns of a hash, from the end for those that are computed."""
    order: tuple[OrderKey, ...] = ()
    """The keys of ranges."""
    rows: int | None = None
    """How many rows are expected; None if that is not known."""


class _Keyed(NamedTuple):
    """An input that is distributed by the key of a join."""

    part: bytes
    rows: int | None
    """The rows that are expected."""
    is_filter: bool
    """True if it has all keys of its side, and others may be missing."""
    scanned: tuple[ScanColumn | None, ...] = ()
    """See `Input.scanned`."""


class Input(msgspec.Struct, frozen=True):
    """Rows of another fragment that a fragment reads in place of a part of its plan."""

    part: bytes
    """What stands in the plan for a scan of these rows: of a table, a scan of another file."""
    exchange: Exchange
    is_held: bool = False
    """True if an operator above it holds all of its rows in memory."""
    matched_by: _Keyed | None = None
    """Another input, without whose keys its rows make no row of the result."""
    scanned: tuple[ScanColumn | None, ...] = ()
    """The columns of scans that the keys are, for those that are one, if it is matched."""
    bounds: tuple[tuple[int, ScanColumn], ...] = ()
    """Columns of its rows that have all values which are needed of columns of scans."""


class FragmentPlan(msgspec.Struct, frozen=True):
    """A part of a plan that tasks run side by side."""

    encoded: bytes
    inputs: tuple[Input, ...]
    scans: tuple[bytes, ...]
    """Its scans of files. If there are several tasks, each reads one file group of each scan."""
    tasks: int
    """The number of partitions of its inputs, or of file groups."""
    small_scans: tuple[bytes, ...]
    """Scans of small files that every task reads whole."""
    lines: tuple[str, ...]
    """Its nodes for people: from the root on, each before those below it."""
    threads: int = 1
    """The threads of a task."""
    computed: tuple[bytes, ...] = ()
    """Expressions that are keys of a hash. Their values are sent after the columns of the plan."""

    @property
    def exchanges(self) -> dict[bytes, Exchange]:
        """What brings the rows of its inputs, by what stands for them in the plan."""
        return {each.part: each.exchange for each in self.inputs}

    @property
    def divided(self) -> tuple[bytes, ...]:
        """The scans of which each task reads one file group."""
        return tuple(dict.fromkeys(self.scans)) if self.tasks > 1 else ()


class _Draft(msgspec.Struct, frozen=True):
    """A fragment while its nodes are looked at, from the leaves on."""

    encoded: bytes
    """The node, with other nodes in place of some below it."""
    tasks: int
    inputs: tuple[Input, ...] = ()
    scans: tuple[bytes, ...] = ()
    small_scans: tuple[bytes, ...] = ()
    lines: tuple[str, ...] = ()
    lost_order: bool = False
    """True if its rows were sorted below an exchange, and DataFusion may have relied on that."""
    is_apart: bool = False
    """True if a task has a partition for each branch of a union, and not one. DataFusion may rely
    on the order of each, or on a column that is the same in all of its rows."""

    @property
    def is_fed(self) -> bool:
        """True if its tasks read partitions of inputs, and not groups of files."""
        return any(each.exchange.way != "gather" for each in self.inputs)

    @staticmethod
    def over(node: Node, *below: _Draft) -> _Draft:
        """Return a node with these in place of its children, in one fragment."""
        old = [child.encoded for child in node.children]
        return _Draft(
            with_children(node.encoded, old, [draft.encoded for draft in below]),
            max(draft.tasks for draft in below),
            tuple(each for draft in below for each in draft.inputs),
            tuple(scan for draft in below for scan in draft.scans),
            tuple(scan for draft in below for scan in draft.small_scans),
            (node.text, *(line for draft in below for line in draft.lines)),
            any(draft.lost_order for draft in below) and node.kind != "SortExec",
            any(draft.is_apart for draft in below) and node.kind not in MERGES,
        )

    def matched(self, by: Sequence[_Keyed], given: Sequence[_Keyed]) -> _Draft:
        """Return the same, with rows of the given inputs only if another input has their keys."""
        filters = [each for each in by if each.is_filter and each.rows is not None]
        if not filters:
            return self
        best = min(filters, key=lambda each: each.rows or 0)
        known = {each.part: each for each in given}

        def matched(each: Input) -> Input:
            if each.part not in known or each.part == best.part:
                return each
            given = known[each.part]
            now = each.matched_by.rows if each.matched_by is not None else given.rows
            is_better = now is None or (best.rows or 0) < now
            return replace(each, matched_by=best, scanned=given.scanned) if is_better else each

        return replace(self, inputs=tuple(map(matched, self.inputs)))

    @property
    def held(self) -> _Draft:
        """The same, below an operator that holds all of its rows in memory."""
        return replace(self, inputs=tuple(replace(each, is_held=True) for each in self.inputs))

    @property
    def together(self) -> _Draft:
        """The same rows as one partition in each task."""
        if not self.is_apart:
            return self
        one = encode_field(of.COALESCE_NODE, encode_field(1, self.encoded))
        lines = ("CoalescePartitionsExec", *self.lines)
        return replace(self, encoded=one, lines=lines, lost_order=True, is_apart=False)


def cut(root: Node, limits: Limits, tables: Mapping[str, str]) -> FragmentPlan:
    """Return the fragment at the root of a plan, which all others lead to.

    ``tables`` are those whose rows a task gets from elsewhere, by the files that stand for them.

    Raises JobFileError for a plan that cannot run in parts.
    """
    if any(node.kind == "RecursiveQueryExec" for node in root.walk()):
        raise JobFileError(
            "sql: a recursive query reads its own result again, which no task has as a whole; "
            "write its steps as queries of their own"
        )
    return _Cutter(limits, tables, root).fragment(root)


def whole(root: Node, tables: Mapping[str, str], threads: int) -> FragmentPlan:
    """Return a plan as one fragment, which one task with ``threads`` runs as a whole; see `cut`."""
    nodes = list(root.walk())
    scans = [node for node in nodes if node.is_scan]
    fed = [node for node in scans if node.scanned_file in tables]
    inputs = (Input(each.encoded, Exchange("gather", tables[each.scanned_file])) for each in fed)
    read = tuple(node.encoded for node in scans if node not in fed)
    encoded, lines = Mends(root).whole(), tuple(node.text for node in nodes)
    if root.partitions > 1:  # which feed one another, so that all have to be asked at once
        encoded = encode_field(of.COALESCE_NODE, encode_field(1, encoded))
        lines = ("CoalescePartitionsExec", *lines)
    return FragmentPlan(encoded, tuple(inputs), read, 1, (), lines, threads)


class _Cutter:
    """Cuts one plan, and looks at each of its nodes once."""

    def __init__(self, limits: Limits, tables: Mapping[str, str], root: Node) -> None:
        self._limits = limits
        self._tables = tables
        self._most = max(node.partitions for node in root.walk())
        self._last_merge = last_merge(root)
        self._mends = Mends(root)
        self._drafts: dict[tuple[int, bool], _Draft] = {}
        self._fragments: dict[tuple[bytes, tuple[bytes, ...]], FragmentPlan] = {}
        self._exchanges: dict[tuple[int, Way, tuple[int, ...]], int] = {}

    def fragment(self, node: Node, computed: tuple[bytes, ...] = ()) -> FragmentPlan:
        """Return the fragment that has a node as its root; the same one for equal subtrees."""
        at = node.encoded, computed
        if (known := self._fragments.get(at)) is not None:
            return known
        draft = self._draft(node)
        made = FragmentPlan(
            draft.encoded,
            draft.inputs,
            draft.scans,
            draft.tasks,
            draft.small_scans,
            draft.lines,
            computed=computed,
        )
        self._fragments[at] = made
        return made

    def _draft(self, node: Node, *, by_keys: bool = False) -> _Draft:
        """Return the part of a fragment at and below a node.

        ``by_keys``: something above it needs all rows of a key in one task.
        """
        at = id(node), by_keys
        if at not in self._drafts:
            self._drafts[at] = self._looked_at(node, by_keys)
        return self._drafts[at]

    def _looked_at(self, node: Node, by_keys: bool) -> _Draft:
        if not node.children:
            return self._leaf(node)
        if node.kind == "RepartitionExec":
            return self._repartition(node, by_keys)
        if node.kind in MERGES:
            return self._merge(node)
        if node.kind in JOINS:
            left, right = self._join(node, by_keys)
            left = self._bounding(node, left, right)
            return _Draft.over(node, left.held if node.holds_left else left, right)
        if node.kind in UNIONS:
            return self._union(node, by_keys)
        (child,) = node.children
        draft = self._draft(child, by_keys=by_keys or node.needs_keys_together)
        draft = draft.held if node.kind == "WindowAggExec" else draft
        if draft.inputs and node.kind in WINDOWS and not has_sorted_rows(node):
            encoded = sorted_for(node.encoded, draft.encoded)
            draft = replace(draft, encoded=encoded, lines=("SortExec: for windows", *draft.lines))
            made = _Draft.over(node, draft)
            encoded = self._mends.node(node, as_sorted(made.encoded))
            return replace(made, encoded=encoded, lost_order=True)
        if draft.lost_order and node.kind == "LocalLimitExec":
            return draft  # which rows are the first ones is decided where all are merged
        made = _Draft.over(node, draft)
        return replace(made, encoded=self._mends.node(node, made.encoded))

    def _leaf(self, node: Node) -> _Draft:
        if not node.is_scan:
            return _Draft(node.encoded, node.partitions, lines=(node.text,))
        if node.scanned_file in self._tables:
            return self._table(node, "any", self._most)
        return _Draft(node.encoded, node.partitions, scans=(node.encoded,), lines=(node.text,))

    def _table(self, node: Node, way: Way, tasks: int) -> _Draft:
        """Return a scan of rows that tasks are given."""
        table = self._tables[node.scanned_file]
        part = reading(node.encoded, f"/{way}/{table}", 0)
        given = Input(part, Exchange(way, table, rows=node.rows))
        return _Draft(part, tasks, (given,), lines=(f"Table: {table}",))

    def _exchange(self, way: Way, child: Node, tasks: int) -> _Draft:
        return self._sent(Exchange(way, self.fragment(child), rows=_expected(child)), tasks)

    def _sent(self, exchange: Exchange, tasks: int) -> _Draft:
        # Equal parts of a plan may be distributed in several ways within one fragment.
        key = id(exchange.source), exchange.way, exchange.keys
        number = self._exchanges.setdefault(key, len(self._exchanges))
        part = encode_field(of.MERGE_NODE, encode_field(_PLACEHOLDER, number))
        return _Draft(part, tasks, (Input(part, exchange),), lines=(f"Exchange: {exchange.way}",))

    def _repartition(self, node: Node, by_keys: bool) -> _Draft:
        (child,) = node.children
        if not node.is_hashed:
            # It only lets more threads work on the same rows. Here tasks are what works.
            return self._draft(child, by_keys=by_keys)
        keys = hash_keys(node.encoded)
        columns = [column_of(key) for key in keys]
        computed = [key for key, column in zip(keys, columns, strict=True) if column is None]
        ends = count(-len(computed))
        places = tuple(next(ends) if column is None else column for column in columns)
        source = self.fragment(child, tuple(computed))
        exchange = Exchange("hash", source, places, rows=_expected(child))
        return replace(self._sent(exchange, node.partitions), lost_order=node.keeps_order)

    def _merge(self, node: Node) -> _Draft:
        """Cut below a node that brings all rows together, unless one task has them all anyway."""
        (child,) = node.children
        below = self._draft(child)
        is_sorted = below.tasks == 1 and not below.lost_order
        if below.tasks > 1:
            below = self._ranges(node) or self._exchange("gather", child, 1)
        draft = _Draft.over(node, below)
        if is_sorted or node.kind == "CoalescePartitionsExec":
            return draft
        # It is one partition, and not in order as a whole.
        _, merge = only_field(draft.encoded)
        return replace(draft, encoded=encode_field(of.SORT_NODE, merge), lost_order=False)

    def _ranges(self, merge: Node) -> _Draft | None:
        """Give each task a range of the rows below a merge; None if one task sorts them all."""
        order = leading_columns(merge.encoded) if merge is self._last_merge else ()
        if not order or not self._limits.divide(merge):
            return None
        below = unsorted(merge)
        exchange = Exchange("range", self.fragment(below), order=order, rows=below.rows)
        return self._sent(exchange, self._most)

    def _join(self, node: Node, by_keys: bool) -> tuple[_Draft, _Draft]:
        """Return both sides of a join."""
        left, right = node.children
        if node.is_partitioned_join:
            if not by_keys and self._limits.allow(node):
                # Above a repartition nobody needs the rows of a key together: the join itself has
                # all rows of the left side that could match.
                (built,), (streamed,) = left.children, right.children
                return self._broadcast(built), self._draft(streamed).together
            return self._keyed_sides(node)
        built_draft, streamed_draft = self._draft(left), self._draft(right, by_keys=by_keys)
        if node.keeps_left and streamed_draft.tasks > 1:
            # Every task would emit the left rows, which all have. So one task has all rows.
            streamed_draft = self._exchange("gather", right, 1)
        if built_draft.tasks == streamed_draft.tasks == 1:
            return built_draft, streamed_draft
        # A merge that ends after some rows chooses them once, for all tasks.
        is_all = left.kind == "CoalescePartitionsExec" and "fetch=" not in left.text
        child = left.children[0] if is_all else left
        return self._broadcast(child), streamed_draft

    def _keyed_sides(self, join: Node) -> tuple[_Draft, _Draft]:
        """Return both sides of a join by keys, with the filters by which few rows are sent."""
        keys = join_keys(join)
        if keys is None:
            left, right = (self._draft(child, by_keys=True) for child in join.children)
            return left, right
        drafts, found = [], []
        for child, columns in zip(join.children, keys, strict=True):
            if is_having(child):
                # Few groups are left, and known before the rows of the other side are sent.
                exchange = Exchange("hash", self.fragment(child), columns, rows=_expected(child))
                draft = self._sent(exchange, child.partitions)
                drafts.append(draft)
                found.append([_Keyed(draft.encoded, draft.inputs[0].exchange.rows, is_filter=True)])
            else:
                drafts.append(self._draft(child, by_keys=True))
                given = [self._keyed(each) for each in exchanges_by(child, columns)]
                # Bounds leave out null, which some joins match.
                found.append(
                    [each._replace(scanned=()) for each in given] if join.matches_nulls else given
                )
        left, right = drafts
        if join.drops_unmatched_right:
            right = right.matched(*found)
        if join.drops_unmatched_left:
            left = left.matched(*reversed(found))
        return left, right

    def _keyed(self, exchange: KeyedExchange) -> _Keyed:
        node, has_all_keys = exchange
        part = self._draft(node, by_keys=True).encoded
        (child,) = node.children
        columns = node.hash_columns or ()
        scanned = tuple(scanned_column(child, column, self._is_cut) for column in columns)
        return _Keyed(part, node.rows, has_all_keys and node.drops_rows, scanned)

    def _is_cut(self, node: Node) -> bool:
        """Return whether rows are sent to other tasks at a repartition that was looked at."""
        return node.is_hashed and not self._drafts.keys().isdisjoint(
            {(id(node), True), (id(node), False)}
        )

    def _bounding(self, join: Node, built: _Draft, probed: _Draft) -> _Draft:
        """Return the broadcast side of a join, by whose values scans of the other are bounded."""
        if probed.tasks == 1 or len(built.inputs) != 1 or built.encoded != built.inputs[0].part:
            return built
        bounds = bounded_columns(join, self._is_cut)
        found = tuple(each for each in bounds if each[1].scan in probed.scans)
        return replace(built, inputs=(replace(built.inputs[0], bounds=found),))

    def _broadcast(self, node: Node) -> _Draft:
        """Give every task all rows of a node."""
        if node.is_scan and node.scanned_file in self._tables:
            return self._table(node, "gather", 1)
        draft = self._draft(node)
        if draft.tasks == 1 and not draft.inputs and self._limits.are_few(node):
            # To read a small file costs less than to send its rows to everyone.
            few = replace(draft, scans=(), small_scans=draft.scans + draft.small_scans)
            return few.together
        return self._exchange("gather", node, 1)

    def _union(self, node: Node, by_keys: bool) -> _Draft:
        """Let each task run its part of every branch.

        If some branches read partitions, the others have to. The rows of a branch that one task
        makes go to the first task. Branches stay apart, as each may be sorted, unless they have the
        rows of the same keys.
        """
        drafts = [self._draft(child, by_keys=by_keys) for child in node.children]
        tasks = max(draft.tasks for draft in drafts)
        if tasks > 1 and any(draft.tasks == 1 or draft.is_fed for draft in drafts):
            ways: list[Way] = ["first" if draft.tasks == 1 else "any" for draft in drafts]
            drafts = [
                draft
                if draft.is_fed and draft.tasks > 1
                else replace(self._exchange(way, child, tasks), lost_order=True)
                for child, draft, way in zip(node.children, drafts, ways, strict=True)
            ]
        draft = _Draft.over(node, *drafts)
        if node.kind == "UnionExec":
            return replace(draft, is_apart=True)
        _, union = only_field(draft.encoded)
        made = replace(draft, encoded=encode_field(of.UNION_NODE, union), is_apart=True)
        return made.together


def _expected(node: Node) -> int | None:
    """Return how many rows a node is expected to make; None if that is not known."""
    if node.rows is None or not is_having(node):
        return node.rows
    return node.rows // _HAVING_FRACTION  # DataFusion expects up to all groups
