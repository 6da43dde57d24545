"""What a merge changes of a table, brought up to the version that it is committed to."""

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
from mrflight.sinks.delta.merge_candidates import key_files, plan_rewrites, target_files
from mrflight.sinks.delta.merge_writer import MergeWriter
from mrflight.sinks.delta.rewrite import RewriteTask, Rewritten
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.storage import Location
from mrflight.storage.delta import (
    can_remove_files,
    delta_errors,
    has_deletion_vectors,
    import_deltalake,
    other_client_hint,
)
from mrflight.units import format_count


class Merge:
    """The files of a table that hold keys of the merge, and what comes in their place.

    By looking at every version that is tried: what other writers added is rewritten as well, what
    they removed is forgotten, and what is still there need not be done again. As a commit is the
    version right after the one that was looked at, merges are serializable.
    """

    def __init__(self, writer: MergeWriter, parts: Sequence[PartFile]) -> None:
        """``parts`` are all that the reducers wrote."""
        self._writer = writer
        self._parts = tuple(parts)
        self._numbers = count(MAX_PARTITIONS)
        self._done: dict[str, Rewritten] = {}
        self._schema: pa.Schema | None = None
        self.changed: list[Rewritten] = []
        """Of the version that was looked at last."""
        self.has_rewritten = False
        """Whether there are files that it made, be they committed or not."""

    def at(self, table: DeltaTable, tasks: SinkTasks) -> None:
        """Look at a version, and rewrite what was not yet. Raises as `Sink.land` does."""
        check_mergeable(table, self._writer.keys)
        if self._schema != table.schema:
            self._done, self._schema = {}, table.schema
        with delta_errors(f"the log of {table.location.url} cannot be read"):
            targets = target_files(table, self._writer.keys)
        sources = key_files(table.location, self._parts, table.schema, self._writer.keys)
        planned = plan_rewrites(
            [target for target in targets if target.logged not in self._done],
            sources,
            tasks.workers,
        )
        if planned:
            self.has_rewritten = True
            work = [self._task(table, each.targets, each.sources, tasks) for each in planned]
            for results in tasks.run(work, _told):
                self._done |= {each.target.logged: each for each in results}
        there = {target.logged for target in targets}
        self.changed = [
            each for path, each in self._done.items() if path in there and each.is_changed
        ]

    def _task(self, table: DeltaTable, targets: Any, sources: Any, tasks: SinkTasks) -> RewriteTask:
        first = next(self._numbers)
        for _ in targets[1:]:
            next(self._numbers)
        return RewriteTask(
            table.location,
            table.schema,
            self._writer.keys,
            targets,
            sources,
            self._writer.rows.with_memory_limit(tasks.encoder_bytes),
            first,
            tasks.memory_bytes,
        )

    @property
    def added(self) -> list[PartFile]:
        """Files with the rows that stay."""
        return [part for each in self.changed for part in each.parts]

    def removed(self, partition_by: Sequence[str], now_ms: int) -> list[Any]:
        """The log's actions for the files that go."""
        remove = import_deltalake().transaction.RemoveAction
        return [
            remove(
                unquote(each.target.logged),  # deltalake encodes it; `target_files` looks how
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


def _told(results: list[list[Rewritten]]) -> str:
    files = [each for of_task in results for each in of_task]
    changed = sum(each.is_changed for each in files)
    return f"{format_count(len(files), 'file')} looked into, {changed:,} with rows of the keys"


def check_mergeable(table: DeltaTable, keys: Sequence[str]) -> None:
    """OutputError, or ColumnNotFoundError, for a table whose rows cannot be found or removed."""
    for name in keys:
        if name not in table.schema.names:
            where = f"output.keys: the Delta table {table.location.url}"
            raise ColumnNotFoundError.among(name, table.schema.names, where)
    with delta_errors(f"the log of {table.location.url} cannot be read"):
        has_them = has_deletion_vectors(table.handle)
    if has_them:
        raise OutputError(
            f"the Delta table {table.location.url} has deletion vectors, which mrflight does not "
            "read; purge them first with REORG TABLE ... APPLY (PURGE)"
        )


def check_can_remove(location: Location) -> None:
    """OutputError where the client cannot remove a file of a table there in a transaction."""
    if not can_remove_files():
        raise OutputError(
            "output.mode: merge needs a deltalake that removes files in a transaction, 1.6 or "
            "newer, and hops-deltalake (1.4) does not; take append or overwrite for "
            f"{location.url}; {other_client_hint(location)}"
        )
