"""Every error that mrflight raises on purpose.

    MrflightError
    ├── JobError                     the job file or its input is wrong (exit code 2)
    │   ├── JobFileError             a key of the job file: unknown, missing, of a wrong value
    │   ├── InputError               a path that matches nothing, a file that cannot be read
    │   │   ├── BadRowError          a row that cannot be parsed, with its file and line
    │   │   └── SchemaMismatchError  files or batches that should agree in their columns do not
    │   ├── ColumnNotFoundError      a column that does not exist, with those that do
    │   ├── KeyTypeError             a key column of a type that has no hash
    │   ├── UserFunctionError        a user's function that cannot be found, or gives no answer
    │   │   └── UserFunctionRaisedError  one that raised
    │   └── OutputError              the output exists, or does not take what the job makes
    ├── JobFailedError               the job was right and still could not finish (exit code 1)
    │   ├── WorkerLostError          a worker process ended in the middle of a task
    │   ├── DeadlineExceededError    a wait took longer than it was given
    │   ├── StoreError               a store, or a disk, failed as it was read
    │   ├── CommitError              the table's log did not take the commit
    │   └── CommitReplacedError      of two commits of one version one has replaced the other
    └── ShuffleError                 a server's answer: something is wrong with a shuffle
        ├── ShuffleNotFoundError     no shuffle of this id: never made, or dropped
        ├── ShuffleExistsError       a shuffle of this id is there already
        ├── AttemptLostError         another attempt of this map has been committed
        ├── NoDataServersError       no data server is registered, or too few for the replicas
        ├── OutputLostError          what maps had sent is gone with a data server
        ├── MapsMissingError         rows were to be read before all maps are committed
        ├── PlacementChangedError    partitions went elsewhere while an attempt was sent to them
        ├── NotRepeatableError       a map sent other rows than the first time
        ├── LeaseHeldError           another job commits to this table now
        ├── LeaseLostError           a lease for commits to a table has ended
        ├── JournalError             a metadata server's journal cannot be written, or read
        ├── ProtocolError            a message that does not follow the wire contract
        ├── IncompletePartitionError a reader got other rows than it was promised
        ├── CorruptBlockError        a block's bytes are not those that were written
        ├── SpillError               a data server could not write or read its spill file
        └── ServerUnavailableError   a server cannot be reached

A message says what happened, to what, and what to do about it.
"""

from __future__ import annotations


class MrflightError(Exception):
    """Root of every error that mrflight raises on purpose.

    ``retryable`` says whether another attempt of the same work may succeed;
    it is the only thing that retry looks at. ``location`` and ``partition`` are
    the server and the partition of a shuffle that it is about, where it is about one.
    """

    retryable = False
    location: str | None = None
    partition: int | None = None


class JobError(MrflightError):
    """The job file or its input is wrong; running it again changes nothing."""


class JobFileError(JobError):
    """A key of the job file is unknown, missing, or of a wrong value."""


class InputError(JobError):
    """An input matches nothing, or one of its files cannot be read."""


class BadRowError(InputError):
    """A row cannot be parsed; the message names its file and line."""


class SchemaMismatchError(InputError):
    """Files or batches that should have the same columns do not."""


class ColumnNotFoundError(JobError):
    """A column that was asked for does not exist."""

    @classmethod
    def among(cls, column: str, columns: list[str], where: str) -> ColumnNotFoundError:
        """The error for ``column`` in ``where``, which has ``columns``."""
        return cls(f"{where} has no column {column!r}; it has {', '.join(map(repr, columns))}")


class KeyTypeError(JobError):
    """A key column is of a type that cannot be hashed or ordered."""


class UserFunctionError(JobError):
    """A function named in the job file cannot be found, raised, or gave what is no answer."""


class UserFunctionRaisedError(UserFunctionError):
    """A function named in the job file raised, perhaps for want of something outside."""

    retryable = True


class OutputError(JobError):
    """The output exists already, or does not take what the job makes."""


class JobFailedError(MrflightError):
    """The job was right and still could not finish."""

    retryable = True


class WorkerLostError(JobFailedError):
    """A worker process ended in the middle of a task."""


class DeadlineExceededError(JobFailedError):
    """A wait took longer than it was given."""


class StoreError(JobFailedError):
    """A store, or a disk, failed as it was read; the file may be as it should."""


class CommitError(JobFailedError):
    """The table's log did not take the commit."""


class CommitReplacedError(JobFailedError):
    """Of two commits of one version of a table the later one took the place of the earlier one."""


class ShuffleError(MrflightError):
    """Something is wrong with a shuffle, as its servers see it."""


class ShuffleNotFoundError(ShuffleError):
    """No shuffle of this id: it was never made, or it has been dropped."""


class ShuffleExistsError(ShuffleError):
    """A shuffle of this id is there already."""


class AttemptLostError(ShuffleError):
    """Another attempt of this map has been committed; this one must stop."""


class NoDataServersError(ShuffleError):
    """No data server is registered, or fewer than the replicas asked for."""

    retryable = True


class OutputLostError(ShuffleError):
    """What committed maps had sent is gone with a data server; they are to be written again."""

    retryable = True


class MapsMissingError(ShuffleError):
    """A reader came before the maps: fewer are committed than it was told, or none is."""

    retryable = True


class PlacementChangedError(ShuffleError):
    """Partitions went to other servers while an attempt was sent to the old ones."""

    retryable = True


class NotRepeatableError(ShuffleError):
    """What is made again does not go together with what is there, so that all has to be.

    A map that sends other rows than the first time, or a share of a partition that was lost.
    """


class LeaseHeldError(ShuffleError):
    """Another job commits to this table now."""

    retryable = True


class LeaseLostError(ShuffleError):
    """A lease for commits to a table has ended, and another job may have the next one."""


class JournalError(ShuffleError):
    """A metadata server's journal cannot be written, or read."""


class ProtocolError(ShuffleError):
    """A message does not follow the wire contract."""


class IncompletePartitionError(ShuffleError):
    """A reader got other rows than the committed attempts promised."""

    retryable = True


class CorruptBlockError(ShuffleError):
    """A block's bytes or rows are not those that were written; none of them are used."""

    retryable = True


class SpillError(ShuffleError):
    """A data server could not write or read its spill file."""

    retryable = True


class ServerUnavailableError(ShuffleError):
    """A server cannot be reached."""

    retryable = True
