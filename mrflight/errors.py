"""Every error that mrflight raises on purpose.

    MrflightError
    ├── JobError
    │   ├── JobFileError
    │   ├── InputError
    │   │   ├── BadRowError
    │   │   ├── LostOffsetsError
    │   │   └── SchemaMismatchError
    │   ├── ColumnNotFoundError
    │   ├── KeyTypeError
    │   ├── UserFunctionError
    │   │   └── UserFunctionRaisedError
    │   └── OutputError
    ├── JobFailedError
    │   ├── WorkerLostError
    │   ├── DeadlineExceededError
    │   ├── StoreError
    │   ├── BrokerUnavailableError
    │   ├── CommitError
    │   │   ├── CatalogLockedError
    │   │   ├── StreamMovedError
    │   │   └── StreamRestoredError
    │   ├── CommitOverwrittenError
    │   └── UnsyncedCommitError
    └── ShuffleError
        ├── AccessDeniedError
        ├── TooManyStreamsError
        ├── ShuffleNotFoundError
        ├── ShuffleExistsError
        ├── AttemptSupersededError
        ├── NoDataServersError
        ├── MapOutputLostError
        ├── MapOutputMissingError
        ├── PlacementChangedError
        ├── InconsistentMapOutputError
        ├── LeaseHeldError
        ├── LeaseLostError
        ├── JournalError
        ├── ProtocolError
        ├── IncompletePartitionError
        ├── CorruptBlockError
        ├── SpillError
        ├── EventLogNotFoundError
        ├── EventLogExistsError
        ├── EventLogDamagedError
        ├── EventLogWriteError
        ├── OffsetTrimmedError
        ├── ProducerSequenceError
        ├── LogOwnerChangedError
        ├── TailError
        │   ├── TailNotFoundError
        │   ├── TailTrimmedError
        │   └── TailBehindError
        └── ServerUnavailableError

A message says what happened, to what, and what to do about it.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

_KEY = re.compile(
    r"(?:--set )?((?:job|inputs|shuffle|reduce|output|storage|stages|cluster|stream)"
    r"(?:(?:\.[\w-]+)+(?:\[\d+\])*(?![\w.\[])|(?=:| must | is missing)))"
)
"""A key path at the beginning of a message. A section alone is also a word."""


class MrflightError(Exception):
    """Root of every error that mrflight raises on purpose.

    ``retryable`` says whether another attempt of the same work may succeed. It is the only thing
    that the retry looks at. ``location`` and ``partition`` name the server and the partition of a
    shuffle that the error is about; None if it is not about one.
    """

    retryable = False
    location: str | None = None
    partition: int | None = None

    @property
    def key(self) -> str | None:
        """The key path of the job file, such as ``output.mode``, that the error is about.

        A message begins with it; None if it does not.
        """
        found = _KEY.match(str(self))
        return found[1] if found else None


class JobError(MrflightError):
    """The job file or its input is wrong (exit code 2); running it again changes nothing."""


class JobFileError(JobError):
    """A key of the job file is unknown, missing or has an invalid value."""


class InputError(JobError):
    """An input matches no file, or one of its files cannot be read."""


class BadRowError(InputError):
    """A row cannot be parsed; the message names its file and line."""


class LostOffsetsError(InputError):
    """A partition of Kafka, or an event log, no longer has messages that were not read yet.

    Or it has lost messages that were read, so that others have their offsets, or will have them.
    """

    def __init__(
        self,
        message: str,
        topic: str = "",
        partition: int = -1,
        wanted: int = -1,
        earliest: int = -1,
    ):
        """A server's answer has only the message."""
        super().__init__(message)
        self.topic = topic
        self.kafka_partition = partition
        self.wanted = wanted
        """The offset that was to be read."""
        self.earliest = earliest
        """The first offset that is there."""

    @property
    def is_deletion(self) -> bool:
        """Whether the first messages were deleted, so that one can go on with what is there.

        Nobody knows which offset to go on from if the end has gone back.
        """
        return self.wanted < self.earliest

    def __reduce__(self) -> tuple[type[LostOffsetsError], tuple[object, ...]]:
        values = (self.topic, self.kafka_partition, self.wanted, self.earliest)
        return type(self), (str(self), *values)


class SchemaMismatchError(InputError):
    """Files or batches that must have the same columns do not."""


class ColumnNotFoundError(JobError):
    """A requested column does not exist; the message lists those that do."""

    @classmethod
    def among(cls, column: str, columns: list[str], where: str) -> ColumnNotFoundError:
        """Return the error for ``column`` that is missing in ``where``, which has ``columns``."""
        import difflib  # for few processes

        if len(columns) == 1 and (found := next((x for x in ";\t|" if x in columns[0]), None)):
            return cls(
                f"{where} has no column {column!r}; it has only {columns[0]!r}: if {found!r} is "
                "between the values of a csv file, set csv.delimiter to it"
            )
        near = difflib.get_close_matches(column.lower(), [name.lower() for name in columns], n=1)
        meant = next((name for name in columns if near == [name.lower()]), None)
        hint = "it has" if meant is None else f"did you mean {meant!r}? It has"
        return cls(f"{where} has no column {column!r}; {hint} {', '.join(map(repr, columns))}")


class KeyTypeError(JobError):
    """A key column has a type that cannot be hashed or ordered."""


class UserFunctionError(JobError):
    """A function that the job file names is not found, raised, or returned a wrong value."""


class UserFunctionRaisedError(UserFunctionError):
    """A function that the job file names raised. Its message tells an error from another.

    `StageAttempts` does not try a task a third time after two equal errors, unless the system
    failed below the function: a file, a network, a service or the memory may be there later.
    """

    retryable = True
    has_system_cause = False
    """True if an OSError or a MemoryError was raised, perhaps behind another exception."""


class OutputError(JobError):
    """The output exists already, or does not accept the result of the job."""


class JobFailedError(MrflightError):
    """The job is right and still could not finish (exit code 1)."""

    retryable = True


class MemoryLimitError(JobFailedError):
    """A task needs more memory than the job gives it, as another attempt would, too."""

    retryable = False


class WorkerLostError(JobFailedError):
    """A worker process ended while it ran a task."""


class DeadlineExceededError(JobFailedError):
    """A wait took longer than its timeout."""


class StoreError(JobFailedError):
    """A store or a disk failed during a read; the file itself may be intact."""


class BrokerUnavailableError(JobFailedError):
    """No broker of a Kafka cluster answers, or none has a partition that is read."""


class CommitError(JobFailedError):
    """The table's log did not accept the commit."""


class CatalogLockedError(CommitError):
    """Another process keeps the file of a catalog locked; the message names that process."""


class StreamMovedError(CommitError):
    """The table has other offsets of a stream than a batch begins with: another writer was there.

    Nothing of the batch is committed.
    """


class StreamRestoredError(CommitError):
    """A table was restored to an earlier version, and its stream cannot tell where to go on."""

    retryable = False


class CommitOverwrittenError(JobFailedError):
    """Two commits wrote the same version of a table, and the later one replaced the earlier."""


class UnsyncedCommitError(JobFailedError):
    """What a commit consists of could not be synced; the message says if it is in its table.

    A disk reports such a failure once. So nothing is tried again, which would seem to succeed.
    """

    retryable = False


class ShuffleError(MrflightError):
    """Something is wrong with a shuffle, as its servers see it."""


class AccessDeniedError(ShuffleError):
    """A server does not know who calls, or that caller may not do what it asks for."""


class UnencryptedServerError(ShuffleError):
    """A client that encrypts was to call a server in the clear, and has sent it nothing."""


class TooManyStreamsError(ShuffleError):
    """A caller has as many streams at one server as this allows at the same time."""

    retryable = True


class QuotaExceededError(ShuffleError):
    """A caller holds as many shuffles or tails at one server as this allows."""


class ShuffleNotFoundError(ShuffleError):
    """No shuffle has this id: it was never created, or it has been dropped."""


class ShuffleExistsError(ShuffleError):
    """A shuffle with this id exists already."""


class AttemptSupersededError(ShuffleError):
    """Another attempt of this map has been committed; this one must stop."""


class NoDataServersError(ShuffleError):
    """No data server is registered, or fewer than the number of replicas."""

    retryable = True


class MapOutputLostError(ShuffleError):
    """The output of committed maps was lost with a data server; these maps have to run again."""

    retryable = True


class MapOutputMissingError(ShuffleError):
    """A reader came too early: no map is committed, or fewer than the reader was told."""

    retryable = True


class PlacementChangedError(ShuffleError):
    """Partitions moved to other servers while an attempt was writing to the old ones."""

    retryable = True


class InconsistentMapOutputError(ShuffleError):
    """Map output that was written again does not match what was read or committed before.

    A map that runs again may write other rows than the first time, or a slice of a skewed
    partition may have been lost. Recovering single tasks is not enough then: the job runs all maps
    and reduces again.
    """


class LeaseHeldError(ShuffleError):
    """Another job holds the commit lease of this table."""

    retryable = True


class LeaseLostError(ShuffleError):
    """The commit lease of a table has ended, and another job may hold the next one."""


class JournalError(ShuffleError):
    """A metadata server cannot read or write its journal."""


class ProtocolError(ShuffleError):
    """A message violates the wire contract."""


class IncompletePartitionError(ShuffleError):
    """A reader received other rows than the committed attempts promised."""

    retryable = True


class CorruptBlockError(ShuffleError):
    """A block's bytes or rows are not those that were written; none of them are used."""

    retryable = True


class SpillError(ShuffleError):
    """A data server could not read or write its spill file."""

    retryable = True


class EventLogNotFoundError(ShuffleError):
    """No event log has this name: it was never created, or it has been dropped."""


class EventLogExistsError(ShuffleError):
    """An event log of this name exists already."""


class EventLogDamagedError(ShuffleError):
    """A segment of an event log has bytes that were not written; its rows are not served."""


class EventLogWriteError(ShuffleError):
    """A data server could not store rows of an event log, and has not acknowledged them."""

    retryable = True


class OffsetTrimmedError(ShuffleError):
    """Rows of an event log were asked for that have been trimmed."""


class ProducerSequenceError(ShuffleError):
    """A producer's batch neither follows its last nor is one of its last batches sent again."""


class LogOwnerChangedError(ShuffleError):
    """A data server was asked for an event log that another one owns now."""

    retryable = True


class TailError(ShuffleError):
    """The rows of a live stream that its table does not have yet cannot be read."""

    retryable = True


class TailNotFoundError(TailError):
    """No tail of this name is on a data server: it was lost, or the stream has ended."""


class TailTrimmedError(TailError):
    """A tail no longer has rows from some offset on, because they are in the table."""


class TailBehindError(TailError):
    """A tail has not come as far as a reader wants within the time that the reader waits."""


class ServerUnavailableError(ShuffleError):
    """A server cannot be reached."""

    retryable = True
    is_silent = False
    """True if nothing answered at a new connection from the same process either."""


_OLD_NAMES: dict[str, type[MrflightError]] = {
    "AttemptLostError": AttemptSupersededError,
    "CommitReplacedError": CommitOverwrittenError,
    "MapsMissingError": MapOutputMissingError,
    "NotRepeatableError": InconsistentMapOutputError,
    "OutputLostError": MapOutputLostError,
}
"""The former names of errors that users may catch; they still work and warn."""

if not TYPE_CHECKING:  # type checkers shall still report names that do not exist

    def __getattr__(name: str) -> type[MrflightError]:
        if name not in _OLD_NAMES:
            raise AttributeError(f"module 'mrflight.errors' has no attribute {name!r}")
        new = _OLD_NAMES[name]
        warnings.warn(f"{name} is now {new.__name__}", DeprecationWarning, stacklevel=2)
        return new
