"""What a sink is: part files at their final names, then one commit.

The driver opens a `Sink`, which looks at what is there and refuses what
cannot work. Its `part_writer`, small and picklable, travels to the reduce
tasks; the `PartFile`s they return are all that the commit needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from mrflight.result import MergeCounts
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.system.deadlines import NO_DEADLINE, Deadline


class SinkTask(Protocol):
    """Work of a sink that a worker does; small and picklable. It may be run again."""

    @property
    def name(self) -> str: ...

    def run(self, attempt: int) -> Any:
        """Files that it writes have the attempt in their names, and count once they are named."""


Note = Callable[[list[Any]], str]
"""Makes of results what is told of them."""


class SinkTasks(msgspec.Struct, frozen=True):
    """Who runs the tasks of a sink; without more they run here, one after the other."""

    run: Callable[[Sequence[SinkTask], Note], list[Any]] = lambda tasks, note: [
        task.run(0) for task in tasks
    ]
    """The results in the order of the tasks; raises what an attempt does that is the last."""
    workers: int = 1
    memory_bytes: int = 64 << 20
    """What one task may hold,"""
    encoder_bytes: int = 64 << 20
    """and of rows that wait to be encoded as much beside it."""


HERE = SinkTasks()


class Commit(msgspec.Struct, frozen=True):
    """What the winning reduce attempts made, ready to be committed."""

    parts: tuple[PartFile, ...]
    schema: pa.Schema
    """Of the result where there are no parts, which have their own."""
    deadline: Deadline = NO_DEADLINE
    """Until when the store is waited for, up to the call that lands it."""
    has_stale_files: bool = True
    """Whether there may be files of attempts that are not among these."""
    tasks: SinkTasks = HERE
    lock: CommitLock | None = None
    """Where a sink that `needs_lock` asks for its turn."""


class Sink(ABC):
    """An output that was looked at and found possible."""

    needs_lock = False
    """Whether of two jobs that commit to it at the same time both may believe to have done so."""

    @property
    @abstractmethod
    def part_writer(self) -> PartWriter: ...

    @abstractmethod
    def was_committed(self) -> bool:
        """Whether an earlier run of the same ``run_id`` was, when the sink was opened."""

    @abstractmethod
    def committed_version(self) -> int | None:
        """The version that it committed; None for plain folders, and where there was none."""

    def commit_and_cleanup(self, commit: Commit) -> int | None:
        """`setup`, `commit` the parts, then `cleanup`; the version."""
        self.setup(commit)
        version = self.commit(commit)
        self.cleanup()
        return version

    def check_rows(self, schema: pa.Schema) -> None:
        """Raise JobError where rows of this schema, as a job will make them, cannot be taken.

        What most sinks have to say their part writers say.
        """
        return

    def setup(self, commit: Commit) -> None:
        """Do what takes long before `commit` is called with the same parts; nothing for most sinks.

        Raises as `commit` does, with nothing committed.
        """
        return

    def merge_counts(self) -> MergeCounts | None:
        """What a merge that has landed did; None for what is no merge, and was another's."""
        return None

    @abstractmethod
    def commit(self, commit: Commit) -> int | None:
        """Make the parts visible in one step; the table's new version, None for plain folders.

        Where another run of the same ``run_id`` was faster, the version is that run's. Raises
        SchemaMismatchError where the parts do not go together in one table, OutputError where the
        table changed so that it does not take the parts, DeadlineExceededError where the store
        stands still before anything is decided, CommitError where it fails: with nothing
        committed, unless it says that it is, or that this is not known.

        In the main thread an interrupt may end it at any time. A call that is under way then may
        land all the same, so that `abort` leaves the parts alone.
        """

    @abstractmethod
    def cleanup(self) -> None:
        """Remove what a commit that has landed replaced, and the job's other part files.

        Raises CommitError, which says that the job is committed, where readers would find what
        is to go beside the new files. A failure to remove others is passed over.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove the job's part files that are not committed, empty folders that it made, no more.

        Does nothing after `commit`, nor where nobody knows whether that is still to come. A failure
        to remove is passed over.
        """
