"""Cuts a physical plan where rows have to move between tasks: a pure function.

What is between two cuts is a `FragmentPlan`. Its tasks run side by side, each on its own partition
of the inputs. An `Exchange` brings the rows of one fragment to the tasks of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from msgspec.structs import replace

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.drafts import Draft
from mrflight.compute.sql.physical.fragment_plan import Exchange, FragmentPlan, Input, Keyed, Way
from mrflight.compute.sql.physical.hash_keys import column_of, hash_keys
from mrflight.compute.sql.physical.limits import Limits
from mrflight.compute.sql.physical.matched_keys import (
    KeyedExchange,
    exchanges_by,
    is_having,
    join_keys,
)
from mrflight.compute.sql.physical.mends import Mends, check_kept_as_bytes
from mrflight.compute.sql.physical.nodes import JOINS, MERGES, UNIONS, WINDOWS, Node
from mrflight.compute.sql.physical.ordering import (
    last_merge,
    leading_columns,
    unsorted,
)
from mrflight.compute.sql.physical.protobuf import encode_field, only_field
from mrflight.compute.sql.physical.scan_bounds import (
    bounded_columns,
    scanned_column,
)
from mrflight.compute.sql.physical.scans import reading
from mrflight.compute.sql.physical.windows import as_sorted, has_sorted_rows, sorted_for

_PLACEHOLDER = 1000
"""The number of a field that no node has."""

_HAVING_FRACTION = 10
"""The groups that ``having`` is expected to keep are a tenth."""


def cut(root: Node, limits: Limits, tables: Mapping[str, str]) -> FragmentPlan:
    """Return the fragment at the root of a plan, which all others lead to.

    ``tables`` are those whose rows a task gets from elsewhere, by the files that stand for them.

    Raises JobFileError for a plan that cannot be sent to a task.
    """
    check_kept_as_bytes(root)
    return _Cutter(limits, tables, root).fragment(root)


def whole(root: Node, tables: Mapping[str, str], threads: int, why: str) -> FragmentPlan:
    """Return a plan as one fragment, which one task with ``threads`` runs as a whole; see `cut`.

    ``why`` it is not divided is for people. Raises JobFileError as `cut` does.
    """
    check_kept_as_bytes(root)
    nodes = list(root.walk())
    scans = [node for node in nodes if node.is_scan]
    fed = [node for node in scans if node.scanned_file in tables]
    inputs = (Input(each.encoded, Exchange("gather", tables[each.scanned_file])) for each in fed)
    read = tuple(node.encoded for node in scans if node not in fed)
    encoded, lines = Mends(root).whole(), tuple(node.text for node in nodes)
    if root.partitions > 1:  # which feed one another, so that all have to be asked at once
        encoded = encode_field(of.COALESCE_NODE, encode_field(1, encoded))
        lines = ("CoalescePartitionsExec", *lines)
    return FragmentPlan(encoded, tuple(inputs), read, 1, (), lines, threads, why_whole=why)


class _Cutter:
    """Cuts one plan, and looks at each of its nodes once."""

    def __init__(self, limits: Limits, tables: Mapping[str, str], root: Node) -> None:
        self._limits = limits
        self._tables = tables
        self._most = max(node.partitions for node in root.walk())
        self._last_merge = last_merge(root)
        self._mends = Mends(root)
        self._drafts: dict[tuple[int, bool], Draft] = {}
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

    def _draft(self, node: Node, *, by_keys: bool = False) -> Draft:
        """Return the part of a fragment at and below a node.

        ``by_keys``: something above it needs all rows of a key in one task.
        """
        at = id(node), by_keys
        if at not in self._drafts:
            self._drafts[at] = self._looked_at(node, by_keys)
        return self._drafts[at]

    def _looked_at(self, node: Node, by_keys: bool) -> Draft:
        if not node.children:
            return self._leaf(node)
        if node.kind == "RepartitionExec":
            return self._repartition(node, by_keys)
        if node.kind in MERGES:
            return self._merge(node)
        if node.kind in JOINS:
            left, right = self._join(node, by_keys)
            left = self._bounding(node, left, right)
            return Draft.over(node, left.held if node.holds_left else left, right)
        if node.kind in UNIONS:
            return self._union(node, by_keys)
        (child,) = node.children
        draft = self._draft(child, by_keys=by_keys or node.needs_keys_together)
        draft = draft.held if node.kind == "WindowAggExec" else draft
        if draft.inputs and node.kind in WINDOWS and not has_sorted_rows(node):
            encoded = sorted_for(node.encoded, draft.encoded)
            draft = replace(draft, encoded=encoded, lines=("SortExec: for windows", *draft.lines))
            made = Draft.over(node, draft)
            encoded = self._mends.node(node, as_sorted(made.encoded))
            return replace(made, encoded=encoded, lost_order=True)
        if draft.lost_order and node.kind == "LocalLimitExec":
            return draft  # which rows are the first ones is decided where all are merged
        made = Draft.over(node, draft)
        return replace(made, encoded=self._mends.node(node, made.encoded))

    def _leaf(self, node: Node) -> Draft:
        if not node.is_scan:
            encoded = self._mends.node(node, node.encoded)
            return Draft(encoded, node.partitions, lines=(node.text,))
        if node.scanned_file in self._tables:
            return self._table(node, "any", self._most)
        return Draft(node.encoded, node.partitions, scans=(node.encoded,), lines=(node.text,))

    def _table(self, node: Node, way: Way, tasks: int) -> Draft:
        """Return a scan of rows that tasks are given."""
        table = self._tables[node.scanned_file]
        part = reading(node.encoded, f"/{way}/{table}", 0)
        given = Input(part, Exchange(way, table, rows=node.rows))
        return Draft(part, tasks, (given,), lines=(f"Table: {table}",))

    def _exchange(self, way: Way, child: Node, tasks: int) -> Draft:
        return self._sent(Exchange(way, self.fragment(child), rows=_expected(child)), tasks)

    def _sent(self, exchange: Exchange, tasks: int) -> Draft:
        # Equal parts of a plan may be distributed in several ways within one fragment.
        key = id(exchange.source), exchange.way, exchange.keys
        number = self._exchanges.setdefault(key, len(self._exchanges))
        part = encode_field(of.MERGE_NODE, encode_field(_PLACEHOLDER, number))
        given = Input(part, exchange, is_sliceable=exchange.way == "hash")
        return Draft(part, tasks, (given,), lines=(f"Exchange: {exchange.way}",))

    def _repartition(self, node: Node, by_keys: bool) -> Draft:
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

    def _merge(self, node: Node) -> Draft:
        """Cut below a node that brings all rows together, unless one task has them all anyway."""
        (child,) = node.children
        below = self._draft(child)
        is_sorted = below.tasks == 1 and not below.lost_order
        if below.tasks > 1:
            below = self._ranges(node) or self._exchange("gather", child, 1)
        draft = Draft.over(node, below)
        if is_sorted or node.kind == "CoalescePartitionsExec":
            return draft
        # It is one partition, and not in order as a whole.
        _, merge = only_field(draft.encoded)
        return replace(draft, encoded=encode_field(of.SORT_NODE, merge), lost_order=False)

    def _ranges(self, merge: Node) -> Draft | None:
        """Give each task a range of the rows below a merge; None if one task sorts them all."""
        order = leading_columns(merge.encoded) if merge is self._last_merge else ()
        if not order or not self._limits.divide(merge):
            return None
        below = unsorted(merge)
        exchange = Exchange("range", self.fragment(below), order=order, rows=below.rows)
        return self._sent(exchange, self._most)

    def _join(self, node: Node, by_keys: bool) -> tuple[Draft, Draft]:
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

    def _keyed_sides(self, join: Node) -> tuple[Draft, Draft]:
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
                found.append([Keyed(draft.encoded, draft.inputs[0].exchange.rows, is_filter=True)])
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

    def _keyed(self, exchange: KeyedExchange) -> Keyed:
        node, has_all_keys = exchange
        part = self._draft(node, by_keys=True).encoded
        (child,) = node.children
        columns = node.hash_columns or ()
        scanned = tuple(scanned_column(child, column, self._is_cut) for column in columns)
        return Keyed(part, node.rows, has_all_keys and node.drops_rows, scanned)

    def _is_cut(self, node: Node) -> bool:
        """Return whether rows are sent to other tasks at a repartition that was looked at."""
        return node.is_hashed and not self._drafts.keys().isdisjoint(
            {(id(node), True), (id(node), False)}
        )

    def _bounding(self, join: Node, built: Draft, probed: Draft) -> Draft:
        """Return the broadcast side of a join, by whose values scans of the other are bounded."""
        if probed.tasks == 1 or len(built.inputs) != 1 or built.encoded != built.inputs[0].part:
            return built
        bounds = bounded_columns(join, self._is_cut)
        found = tuple(each for each in bounds if each[1].scan in probed.scans)
        return replace(built, inputs=(replace(built.inputs[0], bounds=found),))

    def _broadcast(self, node: Node) -> Draft:
        """Give every task all rows of a node."""
        if node.is_scan and node.scanned_file in self._tables:
            return self._table(node, "gather", 1)
        draft = self._draft(node)
        if draft.tasks == 1 and not draft.inputs and self._limits.are_few(node):
            # To read a small file costs less than to send its rows to everyone.
            few = replace(draft, scans=(), small_scans=draft.scans + draft.small_scans)
            return few.together
        return self._exchange("gather", node, 1)

    def _union(self, node: Node, by_keys: bool) -> Draft:
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
        draft = Draft.over(node, *drafts)
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
