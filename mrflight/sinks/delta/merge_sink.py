"""The sink that merges into a Delta table: rows come, and those with their keys go, at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.sql.predicate import Predicate
from mrflight.config.spec import OutputSection
from mrflight.result import MergeCounts
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.delta.merge_commit import Merge, check_can_remove
from mrflight.sinks.delta.merge_writer import MergeWriter
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.storage import Location


class MergeSink(DeltaSink):
    """Part files with the rows that come, then the files of the table that have their keys.

    Both count from the one version of the log on that names the former, and what is left of the
    latter.
    """

    def __init__(
        self, location: Location, spec: OutputSection, job_id: str, app_id: str | None
    ) -> None:
        """Look at what is there; OutputError for what cannot work."""
        check_can_remove(location)
        super().__init__(location, spec, job_id, app_id)
        predicate = spec.delete_when
        self._merge_writer = MergeWriter(
            self._part_writer,
            tuple(spec.keys),
            spec.order_by,
            None if predicate is None else Predicate(predicate, "output.delete_when"),
        )
        self._merge: Merge | None = None
        self._counts: MergeCounts | None = None

    @property
    def part_writer(self) -> MergeWriter:
        return self._merge_writer

    def check_rows(self, schema: pa.Schema) -> None:
        self._merge_writer.written(schema)

    def setup(self, commit: Commit) -> None:
        """Rewrite the files of the table as it is now: what others change meanwhile comes later."""
        table, committed = commit.deadline.run(
            self._following.look,
            f"the Delta table {self._location.url} was loaded, with nothing committed",
        )
        if table is not None and committed is None:
            self._merged_at(commit).at(table, commit.tasks)

    def commit(self, commit: Commit) -> int:
        self._check_parts(commit)
        merge = self._merged_at(commit)
        named = replace(commit, parts=tuple(_named(commit.parts)))
        schema = self._merge_writer.written(commit.schema)
        if named.parts:
            schema = common_schema(named.parts, null_fits=False)
        transaction = self._delta_commit(named, schema)
        version = self._land(commit, replace(transaction, merge=merge, tasks=commit.tasks))
        ours = {part.path for part in (*named.parts, *merge.added)}
        if self._kept == ours:  # and not those of another run that was faster
            self._counts = merge.counts()
        has_key_files = len(named.parts) < len(commit.parts)
        self._has_stale_files = self._has_stale_files or merge.has_rewritten or has_key_files
        return version

    def merge_counts(self) -> MergeCounts | None:
        return self._counts

    def _merged_at(self, commit: Commit) -> Merge:
        if self._merge is None:
            self._merge = Merge(self._merge_writer, commit.parts)
        return self._merge


def _named(parts: Sequence[PartFile]) -> list[PartFile]:
    return [part for part in parts if not part.is_key_file]
