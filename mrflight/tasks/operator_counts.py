"""Counts what the operators of a query's plan did in a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrflight.events.attempt_counts import COUNTS
from mrflight.events.kinds import OperatorWork

if TYPE_CHECKING:
    from datafusion import ExecutionPlan

_READS_FILES = "file_type=parquet"
"""In the text of a scan of an input; other scans are of rows that the task was given."""

_PART_OF_FILE = re.compile(r":\d+\.\.\d+\]")
"""In the text of a scan of a range of bytes."""

_NANOSECOND = 1e-9


def count_operators(plan: ExecutionPlan) -> None:
    """Add what the operators of a plan did to the counts of the attempt: 10 us for each.

    Other tasks read other ranges of a file. A file without ranges is read by all of them.
    """
    operators, scanned, shared = [], 0, 0
    for node in _walk(plan):
        work = _work(node)
        operators.append(work)
        if not node.children() and _READS_FILES in (text := node.display()):
            if _PART_OF_FILE.search(text):
                scanned += work.rows
            else:
                shared += work.rows
    COUNTS.add_run(tuple(operators), scanned, shared)


def _walk(plan: ExecutionPlan) -> Iterator[ExecutionPlan]:
    yield plan
    for child in plan.children():
        yield from _walk(child)


def _work(node: ExecutionPlan) -> OperatorWork:
    if (metrics := node.metrics()) is None:
        return OperatorWork(0, 0.0)
    # Scans measure how long they decode apart from what they compute.
    decoded = metrics.sum_by_name("time_elapsed_processing") or 0
    took = max(decoded, metrics.elapsed_compute or 0)
    return OperatorWork(metrics.output_rows or 0, round(took * _NANOSECOND, 6))
