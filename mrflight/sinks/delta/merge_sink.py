"""The sink that merges into a Delta table: it adds rows and removes those with the same keys."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from mrflight.compute.sql.predicate import Predicate
from mrflight.config.output_section import OutputSection
from mrflight.result import MergeCounts
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.delta.commit import DeltaCommit
from mrflight.sinks.delta.merge_commit import Merge, check_can_remove
from mrflight.sinks.delta.merge_writer import MergeWriter
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.storage import Location


class MergeSink(DeltaSink):
    """Part files with the new rows, then the files of the table that have their keys.

    One version of the log adds the new rows, and replaces each of those files with one that has the
    remaining rows.
    """

    def __init__(
        self, location: Location, spec: OutputSection, job_id: str, app_id: str | None
    ) -> None:
        """Look at the table; raise OutputError if the job cannot merge into it."""
        check_can_remove(location)
        super().__init__(location, spec, job_id, app_id)
        predicate = spec.delete_when
        self._merge_writer = MergeWriter(
            self._part_writer,
            tuple(spec.keys),
            spec.order_by,
            None if predicate is None else Predicate(predicate, "output.delete_when"),
            () if spec.unstored is None else spec.unstored.names,
        )
        self._merge: Merge | None = None
        self._counts: MergeCounts | None = None

    @property
    def part_writer(self) -> MergeWriter:
        return self._merge_writer

    def following(self, job_id: str) -> DeltaSink:
        sink = super().following(job_id)
        assert isinstance(sink, MergeSink)
        sink._merge_writer = replace(self._merge_writer, rows=sink._part_writer)
        sink._merge = sink._counts = None
        return sink

    def setup(self, commit: Commit) -> None:
        """Rewrite files of the table as it is now; `commit` repeats this for what changes later."""
        self._identify(commit)
        table, committed = commit.deadline.run(
            self._output.refresh,
            f"the Delta table {self._output.location.url} was loaded, with nothing committed",
        )
        if table is not None and committed is None:
            self._merge_of(commit).prepare(table, commit.tasks)

    def commit(self, commit: Commit) -> int:
        self._identify(commit)
        self._job_files.check_exist([part.path for part in commit.parts], commit.deadline)
        merge = self._merge_of(commit)
        parts = tuple(part for part in commit.parts if not part.is_key_file)
        schema = self._merge_writer.select_columns(commit.schema)
        if parts:
            schema = common_schema(parts, null_fits=False)
        added = structs.replace(commit, parts=parts, schema=schema)
        version = self._run(DeltaCommit(self._output, added, merge))
        ours = {part.path for part in (*parts, *merge.added)}
        if version.paths == ours:  # otherwise another run was faster
            self._counts = merge.counts()
        has_key_files = len(parts) < len(commit.parts)
        self._has_stale_files = self._has_stale_files or merge.has_rewritten or has_key_files
        return version.number

    def merge_counts(self) -> MergeCounts | None:
        return self._counts

    def _merge_of(self, commit: Commit) -> Merge:
        if self._merge is None:
            self._merge = Merge(self._merge_writer, commit.parts)
        return self._merge
