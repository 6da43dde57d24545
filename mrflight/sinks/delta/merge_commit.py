"""The changes that a merge makes to a table, for the version that it is committed to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from mrflight.errors import ColumnNotFoundError, OutputError
from mrflight.ids import MAX_PARTITIONS
from mrflight.result import MergeCounts
from mrflight.sinks.commit.base import SinkTasks
from mrflight.sinks.delta.merge_candidates import (
    PlannedRewrite,
    list_target_files,
    plan_rewrites,
    to_key_files,
)
from mrflight.sinks.delta.merge_writer import MergeWriter
from mrflight.sinks.delta.rewrite import RewriteResult, RewriteTask
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.storage import Location
from mrflight.storage.delta import (
    can_remove_files,
    delta_errors,
    import_deltalake,
    other_client_hint,
)
from mrflight.units import format_count


class Merge:
    """The files of the table that have keys of the merge, and the files that replace them.

    Before every try to commit, the files of the newest version are looked at: those that other
    writers added are rewritten as well, those that they removed are forgotten, and those that are
    still there are not rewritten again. A commit is the version right after the one that was looked
    at, so merges are serializable.
    """

    def __init__(self, writer: MergeWriter, parts: Sequence[PartFile]) -> None:
        """``parts`` are all files that the reduce tasks wrote, with the key files."""
        self._writer = writer
        self._parts = tuple(parts)
        self._numbers = count(MAX_PARTITIONS)
        self._done: dict[str, RewriteResult] = {}
        self._schema: pa.Schema | None = None
        self.changed: list[RewriteResult] = []
        """The files to replace in the version that was looked at last."""
        self.has_rewritten = False
        """Whether files were written, committed or not."""

    def prepare(self, table: DeltaTable, tasks: SinkTasks) -> None:
        """Rewrite the files of this version that were not rewritten yet.

        Raises what `Sink.commit` raises.
        """
        check_mergeable(table, self._writer.keys)
        if self._schema != table.schema:
            self._done, self._schema = {}, table.schema
        with delta_errors(f"the log of {table.location.url} cannot be read"):
            targets = list_target_files(table, self._writer.keys)
        sources = to_key_files(table.location, self._parts, table.schema, self._writer.keys)
        planned = plan_rewrites(
            [target for target in targets if target.log_path not in self._done],
            sources,
            tasks.workers,
        )
        if planned:
            self.has_rewritten = True
            work = [self._make_task(table, each, tasks) for each in planned]
            for results in tasks.run(work, _summarize):
                self._done |= {each.target.log_path: each for each in results}
        current = {target.log_path for target in targets}
        self.changed = [
            each for path, each in self._done.items() if path in current and each.is_changed
        ]

    def _make_task(
        self, table: DeltaTable, planned: PlannedRewrite, tasks: SinkTasks
    ) -> RewriteTask:
        first = next(self._numbers)
        for _ in planned.targets[1:]:
            next(self._numbers)
        return RewriteTask(
            table.location,
            table.schema,
            self._writer.keys,
            planned.targets,
            planned.sources,
            self._writer.rows.with_memory_limit(tasks.encoder_bytes),
            first,
            tasks.memory_bytes,
        )

    @property
    def added(self) -> list[PartFile]:
        """The files with the remaining rows."""
        return [part for each in self.changed for part in each.parts]

    def removals(self, partition_by: Sequence[str], now_ms: int) -> list[Any]:
        """Return the log's actions that remove the replaced files."""
        remove = import_deltalake().transaction.RemoveAction
        return [
            remove(
                unquote(each.target.log_path),  # deltalake encodes it: see `_check_paths`
                True,
                now_ms,
                each.target.size_bytes,
                dict(zip(partition_by, each.target.values, strict=True)),
            )
            for each in self.changed
        ]

    def counts(self) -> MergeCounts:
        return MergeCounts(
            rows_updated=sum(each.updated for each in self.changed),
            rows_deleted=sum(each.deleted for each in self.changed),
            files_rewritten=sum(bool(each.parts) for each in self.changed),
            files_removed=sum(not each.parts for each in self.changed),
        )


def _summarize(results: list[list[RewriteResult]]) -> str:
    files = [each for result in results for each in result]
    changed = sum(each.is_changed for each in files)
    return f"{format_count(len(files), 'file')} read, {changed:,} changed"


def check_mergeable(table: DeltaTable, keys: Sequence[str]) -> None:
    """Raise for a table whose rows cannot be found by these keys, or not be removed.

    Raises ColumnNotFoundError for a key column that is missing, and OutputError.
    """
    for name in keys:
        if name not in table.schema.names:
            where = f"output.keys: the Delta table {table.location.url}"
            raise ColumnNotFoundError.among(name, table.schema.names, where)
    table.check_no_deletion_vectors()


def check_can_remove(location: Location) -> None:
    """Raise OutputError if the client cannot remove a file from a table in a transaction."""
    if not can_remove_files():
        raise OutputError(
            "output.mode: merge needs deltalake 1.6 or newer, which can remove files in a "
            "transaction; hops-deltalake (1.4) cannot; use append or overwrite for "
            f"{location.url}; {other_client_hint(location)}"
        )
