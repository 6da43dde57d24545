"""The interface of sinks: part files at their final names, then one commit.

The driver opens a `Sink`, which looks at the output and refuses what cannot work. Its
`part_writer`, which is small and picklable, is sent to the reduce tasks. The `PartFile`s that they
return are all that the commit needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa

from mrflight.errors import OutputError
from mrflight.result import MergeCounts
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.system.deadlines import NO_DEADLINE, Deadline

if TYPE_CHECKING:  # only loaded where a commit needs a lock
    from mrflight.sinks.commit.commit_lease import CommitLock


class SinkTask(Protocol):
    """Work of a sink that a worker runs. It is small, picklable, and may be run again."""

    @property
    def name(self) -> str: ...

    def run(self, attempt: int) -> Any:
        """Run an attempt, whose files have its number in their names and count once committed."""


Summarize = Callable[[list[Any]], str]
"""Makes the text of the progress report from the results of the tasks."""


class SinkTasks(msgspec.Struct, frozen=True):
    """Runs the tasks of a sink. By default they run in this process, one after the other."""

    run: Callable[[Sequence[SinkTask], Summarize], list[Any]] = lambda tasks, summarize: [
        task.run(0) for task in tasks
    ]
    """Returns the results in the order of the tasks; raises what a task's last attempt raised."""
    workers: int = 1
    memory_bytes: int = 64 << 20
    """The memory of a task."""
    encoder_bytes: int = 64 << 20
    """The memory of a task for rows that wait to be encoded, besides ``memory_bytes``."""


LOCAL_TASKS = SinkTasks()


class Commit(msgspec.Struct, frozen=True):
    """The output of the committed reduce attempts, ready to be committed to the table."""

    parts: tuple[PartFile, ...]
    schema: pa.Schema
    """The schema of the result if there are no parts, which have their own."""
    deadline: Deadline = NO_DEADLINE
    """The deadline for the store's answers, up to the call that commits."""
    has_stale_files: bool = True
    """Whether there may be files of attempts other than those of the parts."""
    tasks: SinkTasks = LOCAL_TASKS
    lock: CommitLock | None = None
    """The lock that a sink with `needs_lock` acquires."""
    offsets: StreamOffsets | None = None
    """The offsets that the commit of a stream's batch moves on, by compare and swap."""


class Sink(ABC):
    """An output that was checked before the job writes to it.

    The driver calls `setup`, `commit` and `cleanup` in this order, and `abort` if the job fails.
    """

    needs_lock = False
    """Whether two jobs that commit at the same time may both believe that they succeeded."""

    @property
    @abstractmethod
    def part_writer(self) -> PartWriter: ...

    @abstractmethod
    def was_committed(self) -> bool:
        """Return whether an earlier job of the same ``run_id`` was committed when this opened."""

    @abstractmethod
    def committed_version(self) -> int | None:
        """Return the version that it committed; None for plain folders, and if there was none."""

    def check_rows(self, schema: pa.Schema) -> None:
        """Raise JobError if rows of this schema, which a job will write, cannot be accepted."""
        self.part_writer.check(schema)

    def setup(self, commit: Commit) -> None:
        """Do what takes long, before `commit` is called with the same parts.

        Most sinks do nothing. Raises as `commit` does, with nothing committed.
        """
        return

    def recorded_offsets(self, stream: str) -> dict[str, int]:
        """Return the next offsets that the output has recorded for a stream, by partition.

        They are those of the newest version. Raises OutputError if this output cannot record any,
        and CommitError if it cannot be read.
        """
        raise OutputError(
            "output.format: a stream needs a table that records its offsets with its rows; use "
            "delta, iceberg or ducklake"
        )

    def stored_schema(self) -> pa.Schema | None:
        """Return the columns that the table had when this opened; None if there was none."""
        return None

    def compact_small_files(self, min_files: int) -> int:
        """Rewrite small files as larger ones if there are so many; return how many there were.

        For the upkeep of a stream's table between two commits. Raises OutputError and CommitError,
        with nothing changed. Does nothing to tables that mrflight cannot compact.
        """
        return 0

    def remove_old_files(self) -> None:
        """Delete files that no version within the table's retention needs; raises the same."""
        return

    def following(self, job_id: str) -> Sink | None:
        """Return the sink of a stream's next batch to the same output; None to open it again.

        Its part files may be written before this one has committed, but it commits after this one.
        """
        return None

    def merge_counts(self) -> MergeCounts | None:
        """Return what a committed merge has changed; None without one, or if another job did it."""
        return None

    @abstractmethod
    def commit(self, commit: Commit) -> int | None:
        """Make the parts visible in one step; return the table's version, None for plain folders.

        If another job of the same ``run_id`` was faster, the version is that of the other job.
        Raises SchemaMismatchError if the parts do not fit into one table, OutputError if the table
        has changed so that it does not accept the parts, DeadlineExceededError if the store does
        not answer before anything is decided, and CommitError if the store fails. Nothing is
        committed then, unless the message says that it is, or that this is not known.

        In the main thread an interrupt may end this at any time. A call that is running then may
        still commit, so `abort` leaves the parts alone.
        """

    @property
    @abstractmethod
    def outcome_unknown(self) -> bool:
        """Whether a commit that was begun and has not succeeded may still take effect."""

    @abstractmethod
    def cleanup(self) -> None:
        """After `commit`, remove the files that it replaced and the job's other part files.

        Raises CommitError, which says that the job is committed, if readers would find replaced
        files beside the new ones. Other failures to remove files are ignored.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove the job's part files that are not committed and the empty folders it created.

        Does nothing after `commit`, or while it is not known whether the commit will take effect.
        A failure to remove files is ignored.
        """
