"""What one task holds or sorts, and what is sent to all tasks: pure functions of a plan."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from mrflight.compute.sql.physical.nodes import JOINS, UNIONS, WINDOWS, Node

_FEW_ROWS = 10_000
"""The rows of a file that every task reads by itself, in a millisecond or two."""

_VALUE_BYTES, _ROW_BYTES = 8, 16
"""What a value, and the place of a row, take in a join's table, roughly."""
_PROJECTION = re.compile(r"projection=\[(.*?)\]")


def held_bytes(root: Node) -> float:
    """Return about how many bytes the joins and windows of a plan hold, and its result has.

    It is infinite if DataFusion does not expect any number of rows for one of them. Aggregates and
    sorts do not count: they write what does not fit to files. Neither does the result of an
    aggregate, of which DataFusion expects as many rows as it is given.
    """
    joined = [node.children[0] for node in root.walk() if node.holds_left]
    windowed = [node.children[0] for node in root.walk() if node.kind in WINDOWS]
    held = joined + windowed + ([root] if _passes_rows(root) else [])
    return sum(_rows_of(each) * (_ROW_BYTES + _VALUE_BYTES * _columns_of(each)) for each in held)


def _passes_rows(node: Node) -> bool:
    """Return whether the rows of files become rows of the result, all or most of them."""
    while node.children and node.kind not in (*JOINS, *UNIONS):
        if node.kind == "AggregateExec" or "fetch=" in node.text:
            return False
        node = node.children[0]
    return True


def _rows_of(node: Node) -> float:
    return float("inf") if node.rows is None else node.rows


def _columns_of(node: Node) -> int:
    """Return how many columns a node has at most: those of the files below it."""
    projections = (_PROJECTION.search(each.text) for each in node.walk() if each.is_scan)
    return sum(1 + each[1].count(",") for each in projections if each is not None)


class Limits(NamedTuple):
    """How many rows are sent to all tasks, or sorted by one task, by what is expected."""

    max_rows: int
    """The rows that are sent to all tasks."""
    sorted_rows: int = sys.maxsize
    """The rows that one task sorts. The tasks of a result that is written sort a range each."""

    def allow(self, join: Node) -> bool:
        """Return whether the left side of a partitioned join may be sent to every task."""
        left, right = join.children
        is_cut = left.kind == right.kind == "RepartitionExec"
        if not is_cut or join.keeps_left or left.rows is None or left.rows > self.max_rows:
            return False
        return right.rows is None or left.rows * right.partitions <= right.rows

    def divide(self, merge: Node) -> bool:
        """Return whether several tasks sort the rows of the last merge."""
        if merge.rows is None:
            return self.sorted_rows < sys.maxsize
        return merge.rows > self.sorted_rows

    @staticmethod
    def are_few(node: Node) -> bool:
        """Return whether every task may read the files of a node by itself."""
        return all(each.rows is not None and each.rows <= _FEW_ROWS for each in node.walk())
