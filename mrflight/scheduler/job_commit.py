"""The commit of what a job, or a batch of a stream, has written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mrflight.scheduler.direct_scheduler import MAP_AND_REDUCE
from mrflight.scheduler.job_run import JobRun
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.sinks.commit.base import Commit, Sink, SinkTask, SinkTasks
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.tasks.part_files import ReduceResult


class JobCommit:
    """The part files of the attempts that count, ready for the sink of their job."""

    def __init__(
        self, job: JobRun, reduced: Sequence[ReduceResult], offsets: StreamOffsets | None = None
    ) -> None:
        """``offsets`` are those that the commit of a stream's batch moves on."""
        self._job = job
        self._parts = tuple(part for result in reduced for part in result.parts)
        started = job.runner.started
        self._has_stale_files = started["reduce"] + started[MAP_AND_REDUCE] > len(reduced)
        self._schema = reduced[0].schema
        self._offsets = offsets

    @property
    def files(self) -> int:
        """The number of new files with rows."""
        return sum(not part.is_key_file for part in self._parts)

    def setup(self, sink: Sink) -> None:
        """Do what takes long, with nothing committed; see `Sink.setup`."""
        sink.setup(self._commit(sink, self._sink_tasks()))

    def run(self, sink: Sink) -> int | None:
        """Commit, and return the version; see `Sink.commit`."""
        return sink.commit(self._commit(sink, self._sink_tasks(is_within_commit=True)))

    def _commit(self, sink: Sink, tasks: SinkTasks) -> Commit:
        return Commit(
            self._parts,
            self._schema,
            self._job.deadline,
            self._has_stale_files,
            tasks,
            self._lock() if sink.needs_lock else None,
            self._offsets,
        )

    def _lock(self) -> CommitLock:
        client = self._job.client
        timeouts = self._job.deadline.clamp(client.timeouts)
        return CommitLock(self._job.metadata, client.with_timeouts(timeouts))

    def _sink_tasks(self, *, is_within_commit: bool = False) -> SinkTasks:
        """Return what runs the tasks of a sink; ``is_within_commit``: without own progress."""
        runner, memory = self._job.runner, self._job.settings.memory

        def run(tasks: Sequence[SinkTask], note: Callable[[list[Any]], str]) -> list[Any]:
            spec = TaskSetSpec(tasks, lambda task, attempt: runner.submit(task.run, attempt))
            if is_within_commit:
                return runner.run_quietly("rewrite", spec)
            return runner.run("rewrite", spec, note)

        return SinkTasks(run, runner.workers, memory.rewriter, memory.encoder)
