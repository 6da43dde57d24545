"""The sink that writes a folder of plain files: parquet, csv or arrow.

Its files are visible from the moment they are written. A run counts once a manifest names its
files, which happens in one step.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from msgspec import structs
from msgspec.structs import replace

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.commit_guard import MAX_TRIES, CommitGuard, random_backoff
from mrflight.sinks.commit.job_files import JobFiles, sync_names
from mrflight.sinks.commit.run_name import find_committed
from mrflight.sinks.folder.checks import check_append, check_folder, check_mode, check_store
from mrflight.sinks.folder.tombstones import check_deletable, delete_tombstoned
from mrflight.sinks.parts.file_format import DEFAULT_CODEC, FileFormat
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.preflight import check_writable, translate_refusal
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import Location
from mrflight.storage.manifest import Manifest, Run, encode_schema
from mrflight.storage.manifest_log import Entry, ManifestLog
from mrflight.storage.part_name import PartId, hash_run_id
from mrflight.system.deadlines import Deadline

log = logging.getLogger(__name__)


class FolderSink(Sink):
    """Part files in a folder, and a manifest that lists those of the committed attempts."""

    def __init__(
        self, location: Location, spec: OutputSection, job_id: str, app_id: str | None
    ) -> None:
        """Look at the folder; raise OutputError if it cannot work, CommitError if reading fails."""
        check_store(location, spec)
        self._location, self._spec, self._job_id, self._app_id = location, spec, job_id, app_id
        self._run_hash = hash_run_id(app_id)
        self._guard = CommitGuard(location.url)
        self._has_stale_files = True
        self._committed: Entry | None = None
        """The newest manifest, once this job is in it."""
        self._put_may_be_late = False
        """Whether a put may still take effect though the store has failed it."""
        try:
            self._look_first()
        except OSError as error:
            raise CommitError(f"the folder {location.url} cannot be read: {error}") from error

    def _look_first(self) -> None:
        location, spec, app_id = self._location, self._spec, self._app_id
        check_folder(location)
        self._manifests = ManifestLog(location)
        entry = self._manifests.newest()
        self._was_committed = (
            entry.manifest is not None
            and app_id is not None
            and find_committed(app_id, location.url, entry.manifest.find_run) is not None
        )
        if not self._was_committed:
            check_mode(location, spec, entry.manifest, self._run_hash)
            check_writable(location)
        # The tombstones are of a commit whose cleanup did not finish.
        entry = delete_tombstoned(self._manifests, entry)
        manifest = entry.manifest
        if self._was_committed:
            self._manifests.sync(entry)
            self._remove_older(entry)
        self._seen_runs = _jobs(manifest)
        existing = manifest.schema if manifest and spec.mode == "append" else None
        self._target = TableSchema(location.url, False, tuple(spec.partition_by), existing)
        self._part_writer = FilePartWriter(
            location,
            self._job_id,
            self._target,
            FileFormat(spec.format, codec=spec.compression or DEFAULT_CODEC),
            run_hash=self._run_hash,
        )
        self._job_files = JobFiles.of(location, self._job_id, bool(spec.partition_by))

    @property
    def part_writer(self) -> FilePartWriter:
        return self._part_writer

    def was_committed(self) -> bool:
        return self._was_committed

    def committed_version(self) -> None:
        return None

    def commit(self, commit: Commit) -> None:
        if commit.parts:
            schema = common_schema(commit.parts, null_fits=self._spec.format == "csv")
            commit = replace(commit, schema=schema)
        self._has_stale_files = commit.has_stale_files
        entry = self._look(commit.deadline)
        if not commit.parts and not self._appends_to_files(entry.manifest):
            write = partial(self._part_writer.write_empty, PartId(0, 0), commit.schema)
            parts = commit.deadline.run(write, "the result was written, with nothing committed")
            commit = replace(commit, parts=tuple(parts))
        for _ in range(MAX_TRIES):
            if self._has_this_run(entry.manifest):
                self._manifests.sync(entry)
                self._committed = entry
                return
            try:
                new = commit.deadline.run(
                    partial(self._next, commit, entry.manifest),
                    f"the files in {self._location.url} were listed, with nothing committed",
                )
            except CommitError:
                # Another job of its run may have been faster and removed its files.
                entry = self._look(commit.deadline)
                if not self._has_this_run(entry.manifest):
                    raise
                continue
            put = partial(self._put, entry.number + 1, new)
            after = self._guard.commit_once(put, commit.deadline)
            if not self._has_this_run(after.manifest):
                random_backoff()
                after = self._look(commit.deadline)
            entry = after
        raise CommitError(
            f"{self._location.url}: other jobs were faster {MAX_TRIES} times; run the job again"
        )

    @property
    def outcome_unknown(self) -> bool:
        return self._guard.outcome_unknown or self._put_may_be_late

    def cleanup(self) -> None:
        assert self._committed is not None, "cleanup comes after commit"
        assert self._committed.manifest is not None
        entry = self._delete_tombstoned(self._committed)
        # A disk is always listed, for its folders. On other stores a listing is a request.
        if self._has_stale_files or self._location.store.is_disk:
            self._job_files.delete_except(self._committed.manifest.files)
        self._remove_older(entry)

    def abort(self) -> None:
        """See `Sink.abort`. Without a readable manifest all files stay: they may be committed."""
        if self._committed is not None or self.outcome_unknown:
            return
        try:
            manifest = self._manifests.newest().manifest
        except (OutputError, CommitError):
            return
        self._job_files.delete_except(manifest.files if manifest else ())

    def _appends_to_files(self, manifest: Manifest | None) -> bool:
        """Return whether the folder will have files from which readers know its columns."""
        return self._spec.mode == "append" and manifest is not None and bool(manifest.files)

    def _look(self, deadline: Deadline) -> Entry:
        """Return the newest manifest, after the files that earlier commits replaced are deleted."""

        def look() -> Entry:
            entry = self._manifests.newest()
            if self._has_this_run(entry.manifest):
                return entry
            return delete_tombstoned(self._manifests, entry)

        return deadline.run(
            look, f"the folder {self._location.url} was read, with nothing committed"
        )

    def _put(self, number: int, manifest: Manifest) -> Entry:
        """Put the manifest if no other job is faster, and return the newest then.

        Raises CommitError if the store fails, OutputError if this user may not write there, and
        UnsyncedCommitError. A put that failed may have taken effect.
        """
        failure: CommitError | None = None
        try:
            self._manifests.put(number, manifest)
        except FileExistsError:
            pass  # it may be ours, if the store's answer was lost
        except CommitError as error:
            failure = error
        after = self._newest_after(failure)
        if failure is None or after.number >= number:
            if failure is not None and self._has_this_run(after.manifest):
                log.warning("committed, but the store's answer was lost: %s", failure)
            return after
        refused = translate_refusal(failure)
        self._put_may_be_late = refused is failure and not self._location.store.is_disk
        raise refused from failure.__cause__

    def _newest_after(self, failure: CommitError | None) -> Entry:
        try:
            return self._manifests.newest()
        except (OutputError, CommitError) as error:
            self._put_may_be_late = True
            raise CommitError(
                f"{failure or error}; whether this job is committed is not known: look at the "
                "folder before it is run again (with a job.run_id it commits once in any case)"
            ) from error

    def _remove_older(self, entry: Entry) -> None:
        with suppress(OSError):  # the next commit removes them
            self._manifests.remove_older(entry)

    def _delete_tombstoned(self, entry: Entry) -> Entry:
        try:
            return delete_tombstoned(self._manifests, entry)
        except CommitError as error:
            raise CommitError(
                f"{error}; this job is committed: delete that file, and do not run it again"
            ) from error

    def _has_this_run(self, manifest: Manifest | None) -> bool:
        """Return whether this job, or another with the same run id, is committed."""
        return manifest is not None and (
            manifest.has_run(self._app_id) or self._job_id in _jobs(manifest)
        )

    def _check_unchanged(self, before: Manifest | None) -> None:
        """Raise if another job has written to the folder and the mode does not allow that."""
        if self._spec.mode == "error" and before is not None:
            raise OutputError(
                f"{self._location.url} was written by another writer while the job ran; choose "
                "another folder, or set output.mode to append or overwrite"
            )
        if self._spec.mode == "overwrite" and _jobs(before) != self._seen_runs:
            raise CommitError(
                f"{self._location.url}: another job wrote to the folder while this one ran, and "
                "an overwrite would remove what this one has not seen; nothing was committed, "
                "run it again"
            )

    def _next(self, commit: Commit, before: Manifest | None) -> Manifest:
        """Return the manifest after ``commit``; raise OutputError if it does not fit any more."""
        self._check_unchanged(before)
        spec, new = self._spec, {part.path for part in commit.parts}
        schema = replace(self._target, existing=None).to_stored(commit.schema)
        runs, tombstones = (before.runs, set(before.tombstones)) if before else ([], set())
        if before is not None and spec.mode == "append":
            check_append(self._location, spec, before)
            replace(self._target, existing=before.schema).to_stored(commit.schema)
            schema = before.schema
        elif before is not None:
            tombstones |= before.files
            runs = [structs.replace(run, files=[]) for run in runs]
        on_disk = self._job_files.paths(self._run_hash)
        if not new <= on_disk:
            raise CommitError(
                f"{self._location.url}: {min(new - on_disk)} is gone, which this job wrote; does "
                "another job overwrite the folder at the same time?"
            )
        tombstones = (tombstones | on_disk) - new
        check_deletable(self._location, tombstones)
        sync_names(self._location, new)
        return Manifest(
            format=spec.format,
            partition_by=spec.partition_by,
            schema_ipc=encode_schema(schema),
            runs=[*runs, Run(job=self._job_id, app=self._app_id, files=sorted(new))],
            tombstones=sorted(tombstones),
        )


def _jobs(manifest: Manifest | None) -> list[str]:
    return [run.job for run in manifest.runs] if manifest else []
