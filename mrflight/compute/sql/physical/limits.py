"""How many rows one task sorts, and how many are sent to all tasks: a pure function of a plan."""

from __future__ import annotations

import sys
from typing import NamedTuple

from mrflight.compute.sql.physical.nodes import Node

_FEW_ROWS = 10_000
"""The rows of a file that every task reads by itself, in a millisecond or two."""


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
