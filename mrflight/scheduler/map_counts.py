"""Counts what the tasks of a job have read and shuffled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from mrflight.scheduler.bad_row_files import BadRowFiles
from mrflight.scheduler.metrics import JobMetrics
from mrflight.sources.bad_rows import BadRow
from mrflight.tasks.map_task import MapResult, MapTask
from mrflight.tasks.part_files import ReduceResult


class MapCounts:
    """Counts what the maps of one run of all stages have read and shuffled."""

    def __init__(self, metrics: JobMetrics, bad_row_files: BadRowFiles) -> None:
        """``metrics`` get the sums, and ``bad_row_files`` the files of the attempts that count."""
        self._metrics = metrics
        self._bad_row_files = bad_row_files
        self._rows_read = 0
        self._bytes_shuffled = 0

    def add(self, tasks: Sequence[MapTask], results: Sequence[MapResult], size_bytes: int) -> None:
        """Add the maps of an input, which sent ``size_bytes`` to a shuffle."""
        self.add_read(results)
        self._bytes_shuffled += size_bytes
        self._metrics.input_bytes = sum(result.input_bytes for result in results)
        self._metrics.bytes_shuffled = self._bytes_shuffled
        self._add_bad_rows(tasks, results)

    def add_read(self, results: Sequence[MapResult | ReduceResult]) -> None:
        """Add the rows that all tasks of a stage have read of files."""
        self._rows_read += sum(result.file_rows for result in results)
        self._rows_read += max((result.shared_rows for result in results), default=0)
        self._metrics.rows_in = self._rows_read

    def _add_bad_rows(self, tasks: Sequence[MapTask], results: Sequence[MapResult]) -> None:
        """Count what the maps skipped. An input that is read again has the same bad rows again."""
        counts: Counter[str] = Counter()
        files: defaultdict[str, list[str]] = defaultdict(list)
        kept: defaultdict[str, list[BadRow]] = defaultdict(list)
        for task, result in zip(tasks, results, strict=True):
            if task.bad_rows is not None:
                counts[task.bad_rows.input] += result.bad_rows
                files[task.bad_rows.input] += filter(None, [result.bad_rows_file])
                kept[task.bad_rows.input] += result.kept_bad_rows
        self._metrics.bad_rows |= counts
        self._metrics.kept_bad_rows |= kept
        self._bad_row_files.counted |= files
