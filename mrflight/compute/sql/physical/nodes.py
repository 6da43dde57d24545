"""The nodes of a physical plan: what each does, and the bytes that a task decodes it from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.hash_keys import column_of, hash_keys
from mrflight.compute.sql.physical.protobuf import number_of, only_field, with_children
from mrflight.compute.sql.physical.scans import files_of, groups_of

if TYPE_CHECKING:
    from datafusion import ExecutionPlan, SessionContext

_JOIN_TYPE = re.compile(r"join_type=(\w+)")

JOINS = ("HashJoinExec", "NestedLoopJoinExec", "CrossJoinExec", "SortMergeJoinExec")
UNIONS = ("UnionExec", "InterleaveExec")
MERGES = ("CoalescePartitionsExec", "SortPreservingMergeExec")
SERIES = "LazyMemoryExec"
"""What makes the rows of ``range`` and ``generate_series``."""
WINDOWS = ("WindowAggExec", "BoundedWindowAggExec")
_BY_PARTITION = ("mode=FinalPartitioned", "mode=SinglePartitioned")
_KEEP_RIGHT = ("Right", "RightAnti", "RightMark", "Full")
"""The joins that emit rows of their right side that match nothing."""

_KEEP_UNMATCHED_LEFT = ("Left", "LeftAnti", "LeftMark", "Full")
_DROP_ROWS = ("FilterExec", "GlobalLimitExec", "LocalLimitExec", "SortExec: TopK")
_DROPPING_JOINS = ("LeftSemi", "RightSemi", "LeftAnti", "RightAnti")
_BY_ROW = ("ProjectionExec", "FilterExec", "CoalesceBatchesExec", "CooperativeExec")
"""The operators that make the rows of a slice without a look at other rows."""
_KEEP_LEFT = ("Left", "LeftSemi", "LeftAnti", "LeftMark", "Full")
"""The joins that emit rows of their left side, which therefore must be in one task only."""


_ROWS = re.compile(r"statistics=\[Rows=\w+\((\d+)\)|statistics=\[Rows=Absent")


def expected_rows(explained: str) -> Iterator[int | None]:
    """Yield the expected rows of each node of a plan that was explained with its statistics."""
    for line in explained.splitlines():
        if line.strip():
            found = _ROWS.search(line)
            yield int(found[1]) if found and found[1] else None


class Node:
    """A node of a physical plan."""

    def __init__(
        self,
        plan: ExecutionPlan,
        session: SessionContext,
        rows: Iterator[int | None],
        edit_scan: Callable[[bytes], bytes] = lambda scan: scan,
    ) -> None:
        """``rows`` are the expected rows of this node, and then of those below, from the top on.

        ``edit_scan`` says what stands for a scan in the bytes of the nodes.
        """
        self._plan = plan
        self._session = session
        self._edit_scan = edit_scan
        self.rows = next(rows, None)
        """How many rows it is expected to make; None if that is not known."""
        self.text = plan.display().strip()
        """Its line in ``explain``."""
        self.kind = re.split(r"[:\s]", self.text, maxsplit=1)[0]
        self.children = [Node(child, session, rows, edit_scan) for child in plan.children()]

    @cached_property
    def encoded(self) -> bytes:
        """The bytes of the node and all below it."""
        if self.is_scan:
            return self._edit_scan(self._planned)
        old = [child._planned for child in self.children]
        new = [child.encoded for child in self.children]
        for child in self.children:
            del child._planned
        return with_children(self._planned, old, new)

    @cached_property
    def _planned(self) -> bytes:
        """The bytes as they were planned, which are large if they name many files."""
        return self._plan.to_bytes(self._session)

    @property
    def partitions(self) -> int:
        return len(groups_of(self.encoded)) if self.is_scan else self._plan.partition_count

    @property
    def is_hashed(self) -> bool:
        """True for a repartition by the hash of keys, False for one that deals rows out in turn."""
        is_repartition = self.kind == "RepartitionExec"
        return is_repartition and self._plan.output_partitioning.scheme == "Hash"

    @property
    def hash_columns(self) -> tuple[int, ...] | None:
        """The positions of the columns by whose hash a repartition distributes rows.

        None for one that deals them out in turn, or if a key is computed.
        """
        if not self.is_hashed:
            return None
        found = [column_of(key) for key in hash_keys(self.encoded)]
        columns = tuple(each for each in found if each is not None)
        return columns if len(columns) == len(found) else None

    @property
    def keeps_order(self) -> bool:
        """True for a repartition whose partitions are sorted as the rows that it distributes."""
        return "maintains_sort_order=true" in self.text or "preserve_order=true" in self.text

    @property
    def is_scan(self) -> bool:
        """True if it reads files, in as many groups as it has partitions."""
        return self.kind == "DataSourceExec" and "file_groups=" in self.text

    @property
    def scanned_file(self) -> str:
        """The path of the first file that a scan reads."""
        return files_of(self.encoded)[0]

    @property
    def join_type(self) -> str:
        found = _JOIN_TYPE.search(self.text)
        return found[1] if found else "Inner"

    @property
    def keeps_left(self) -> bool:
        """True for a join that emits rows of its left side that match nothing, or each once."""
        return self.join_type in _KEEP_LEFT

    @property
    def drops_unmatched_right(self) -> bool:
        """True for a join for which rows of its right side that match nothing are of no use."""
        is_hash_join = self.kind == "HashJoinExec" and "null_aware" not in self.text
        return is_hash_join and self.join_type not in _KEEP_RIGHT

    @property
    def matches_nulls(self) -> bool:
        """True for a join for which null equals null."""
        return number_of(only_field(self.encoded)[1], of.JOIN_NULLS) != 0

    @property
    def drops_unmatched_left(self) -> bool:
        """True for a join for which rows of its left side that match nothing are of no use."""
        is_hash_join = self.kind == "HashJoinExec" and "null_aware" not in self.text
        return is_hash_join and self.join_type not in _KEEP_UNMATCHED_LEFT

    @property
    def drops_rows(self) -> bool:
        """True if rows are left out here or below, so that some keys may be missing."""
        return any(
            node.text.startswith(_DROP_ROWS)
            or (node.kind in JOINS and node.join_type in _DROPPING_JOINS)
            for node in self.walk()
        )

    @property
    def holds_left(self) -> bool:
        """True for a join that holds all rows of its left side in memory."""
        return self.kind in JOINS and self.kind != "SortMergeJoinExec"

    @property
    def is_partitioned_join(self) -> bool:
        """True for a join whose sides are both distributed by their keys."""
        return "mode=Partitioned" in self.text or self.kind == "SortMergeJoinExec"

    @property
    def needs_keys_together(self) -> bool:
        """True if it takes for granted that a partition has all rows of the keys in it."""
        if self.kind == "AggregateExec":
            return any(mode in self.text for mode in _BY_PARTITION)
        return self.is_partitioned_join or self.kind in (
            "InterleaveExec",
            *WINDOWS,
        )

    @property
    def slices_children(self) -> tuple[bool, ...]:
        """Whether the rows for all slices of a child are together those for the whole child.

        Each slice of one child is read with all rows of the other.
        """
        if "fetch=" in self.text or "null_aware" in self.text or "lim=" in self.text:
            return (False,) * len(self.children)
        if self.kind in JOINS:
            return tuple(self.join_type.startswith(("Inner", side)) for side in ("Left", "Right"))
        by_row = self.kind in _BY_ROW or self.text.startswith("AggregateExec: mode=Partial,")
        return (by_row,) * len(self.children)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()
