"""A part of a plan while it is cut: a node and those below it, down to the exchanges."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.fragment_plan import Input, Keyed
from mrflight.compute.sql.physical.nodes import MERGES, Node
from mrflight.compute.sql.physical.protobuf import encode_field, with_children


class Draft(msgspec.Struct, frozen=True):
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
    def over(node: Node, *below: Draft) -> Draft:
        """Return a node with these in place of its children, in one fragment."""
        old = [child.encoded for child in node.children]
        return Draft(
            with_children(node.encoded, old, [draft.encoded for draft in below]),
            max(draft.tasks for draft in below),
            tuple(
                each
                for draft, is_sliceable in zip(below, node.slices_children, strict=True)
                for each in (draft if is_sliceable else draft.unsliced).inputs
            ),
            tuple(scan for draft in below for scan in draft.scans),
            tuple(scan for draft in below for scan in draft.small_scans),
            (node.text, *(line for draft in below for line in draft.lines)),
            any(draft.lost_order for draft in below) and node.kind != "SortExec",
            any(draft.is_apart for draft in below) and node.kind not in MERGES,
        )

    def matched(self, by: Sequence[Keyed], given: Sequence[Keyed]) -> Draft:
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
    def held(self) -> Draft:
        """The same, below an operator that holds all of its rows in memory."""
        return replace(self, inputs=tuple(replace(each, is_held=True) for each in self.inputs))

    @property
    def unsliced(self) -> Draft:
        """The same, below an operator that needs all rows of a partition in one task."""
        given = tuple(replace(each, is_sliceable=False) for each in self.inputs)
        return replace(self, inputs=given)

    @property
    def together(self) -> Draft:
        """The same rows as one partition in each task."""
        if not self.is_apart:
            return self
        one = encode_field(of.COALESCE_NODE, encode_field(1, self.encoded))
        lines = ("CoalescePartitionsExec", *self.lines)
        return replace(self, encoded=one, lines=lines, lost_order=True, is_apart=False)
