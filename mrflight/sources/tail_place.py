"""Where the tail of a live stream is read: at a data server, or in the event log of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.identity import ClientOptions, ClusterAccess, Endpoint
from mrflight.config.locations import is_encrypted, is_on_this_machine
from mrflight.errors import (
    AccessDeniedError,
    EventLogNotFoundError,
    JobFileError,
    LogOwnerChangedError,
    OffsetTrimmedError,
    TailBehindError,
    TailNotFoundError,
    TailTrimmedError,
)
from mrflight.ids import ShuffleKey
from mrflight.security.known_tails import find_tail
from mrflight.shuffle.client.log_client import LogClient, LogRows
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.tail_client import TailClient, TailRows
from mrflight.shuffle.log.durable_log import NO_MARK
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.log_rights import LogId
from mrflight.shuffle.wire.tail_protocol import TailRange, TailRead
from mrflight.sources.recorded_names import partition_of_log
from mrflight.storage.tail_file import TailFile


class TailExtent(msgspec.Struct, frozen=True):
    """How far a tail goes, and how much that is."""

    watermark: dict[str, int]
    rows: int
    size_bytes: int

    @classmethod
    def of(cls, found: TailRows) -> TailExtent:
        """Return that of rows that were read."""
        batches = found.batches
        return cls(
            found.watermark,
            sum(batch.num_rows for batch in batches),
            sum(batch.nbytes for batch in batches),
        )


class ServerTail(msgspec.Struct, frozen=True):
    """A tail that a data server holds."""

    server: Endpoint
    token: str
    """That of the tail's readers."""

    def read(self, request: TailRead) -> TailRows:
        """Return the rows that are asked for; raise the errors of `TailClient.read`."""
        with TailClient(self.server, self.token) as client:
            return client.read(request)


class LogTail(msgspec.Struct, frozen=True):
    """A tail that is an event log: its rows from the table's offset on, up to the durable ones.

    The owner of the log is found through the metadata server, also if it changes meanwhile.
    """

    cluster: ClusterAccess
    log: str
    """Its name and its id. The reader has a handle of its own, if the cluster wants one."""
    recorded: tuple[int, int] = (0, NO_MARK)
    """The offset that the table has recorded, and its mark: see `DurableLog.mark`."""

    @property
    def partition(self) -> str:
        """The name under which the table records the offset of the log."""
        return partition_of_log(self._id)

    @property
    def _id(self) -> LogId:
        return LogId.parse(self.log)

    def read(self, request: TailRead) -> TailRows:
        """Return the rows that are asked for, all of which are durable.

        Raises TailTrimmedError, TailBehindError and TailNotFoundError.
        """
        name, since, until = self._range(request)
        with self._client(request) as client:
            key = self._pinned(client, since, request.pin_s)
            found = _up_to(client, key, since, until)
            parts = [(TailRange(name, each.start, each.stop), each.rows) for each in found]
            if not parts and (high := client.state(key).high) < since:
                raise _behind(high, since)
        if not parts:
            return TailRows(pa.schema([]), {name: since}, [])
        return TailRows(parts[0][1].schema, {name: parts[-1][0].hi}, parts)

    def measure(self, request: TailRead) -> TailExtent:
        """Return how much `read` would return, without the rows."""
        name, since, until = self._range(request)
        with self._client(request) as client:
            key = self._pinned(client, since, request.pin_s)
            state = client.state(key)
        if since < state.low:
            raise _trimmed(since, state.low)
        if (wanted := max(since, until or 0)) > state.high:
            raise _behind(state.high, wanted)
        stop = max(since, state.high) if until is None else until
        share = (stop - since) / max(1, state.high - state.low)
        return TailExtent({name: stop}, stop - since, int(state.size_bytes * share))

    def _range(self, request: TailRead) -> tuple[str, int, int | None]:
        name = self.partition
        since = request.since.get(name)
        if since is None:
            raise TailTrimmedError(
                f"the version of the table has no offset of event log {self._id.name!r}; load the "
                "newest one"
            )
        return name, since, None if request.until is None else request.until.get(name, since)

    def _pinned(self, client: LogClient, since: int, pin_s: float) -> ShuffleKey:
        """Return the key of the log, once its rows before ``since`` are those of the table."""
        key = client.find(self._id)
        if pin_s > 0 and (low := client.pin(key, since, pin_s)) > since:
            raise _trimmed(since, low)
        offset, mark = self.recorded
        if since == offset and mark != NO_MARK:
            (found,) = client.state(key, offsets=[since]).marks
            if found not in (mark, NO_MARK):
                raise TailBehindError(
                    f"event log {key.id!r} has lost rows that the table has, before offset "
                    f"{since}, and has given their offsets to others"
                )
        return key

    @contextmanager
    def _client(self, request: TailRead) -> Iterator[LogClient]:
        options = self.cluster.client
        if request.wait_s:
            wait_s = min(options.timeouts.reconnect_s, request.wait_s)
            options = options.with_timeouts(replace(options.timeouts, reconnect_s=wait_s))
        try:
            with LogClient(self.cluster.location, options) as client:
                yield client
        except EventLogNotFoundError as error:
            raise TailNotFoundError(
                f"the event log of the stream is gone from the cluster at "
                f"{self.cluster.location}: {error}"
            ) from error
        except OffsetTrimmedError as error:
            raise TailTrimmedError(str(error)) from error
        except LogOwnerChangedError as error:
            raise TailBehindError(str(error)) from error
        except AccessDeniedError as error:
            raise _not_known(self.cluster.location, error) from error


TailPlace = ServerTail | LogTail


def place_of(file: TailFile, cluster: ClusterAccess | None) -> TailPlace:
    """Return where a tail is read; ``cluster`` is what the reader knows of a standing one.

    What the file says is not believed: a server is asked that is this user's own, or that the
    cluster of the reader knows. Raises TailNotFoundError if there is none, and JobFileError if the
    reader has to name the cluster.
    """
    if not file.cluster:
        return ServerTail(*find_tail(file.tail))
    if cluster is None:
        _check_unnamed(file)
    access = cluster or ClusterAccess(file.cluster)
    if file.log:
        return LogTail(access, file.log)
    # A reader sends its token only to servers that the cluster knows, whatever the file says.
    try:
        with Connections(ClientOptions(identity=access.client.identity)) as connections:
            status = MetadataClient(access.location, connections).status()
    except AccessDeniedError as error:
        raise _not_known(access.location, error) from error
    if file.location not in [server.location for server in status.servers]:
        raise TailNotFoundError(
            f"the data server at {file.location}, which had the tail, is not in the cluster at "
            f"{access.location} any more; the stream is about to fetch it again"
        )
    return ServerTail(Endpoint(file.location, access.client.identity), file.token)


def _check_unnamed(file: TailFile) -> None:
    """Raise JobFileError unless nobody but this machine is asked, in the clear and as nobody."""
    if is_encrypted(file.cluster):
        raise _not_known(file.cluster, "its connections are encrypted")
    for location in (file.cluster, file.location):
        if location and not is_on_this_machine(location):
            raise _not_known(file.cluster, f"{location} is not on this machine")


def _up_to(client: LogClient, key: ShuffleKey, since: int, until: int | None) -> Iterator[LogRows]:
    if until is None:
        yield from client.read_durable(key, since)
        return
    stop = since
    for each in client.read(key, since, until):
        yield each
        stop = each.stop
    if stop < until:
        raise _behind(stop, until)


def _trimmed(since: int, low: int) -> TailTrimmedError:
    return TailTrimmedError(
        f"the rows from offset {since} on are not kept any more, only those from {low} on; load "
        "the table again, which has the others"
    )


def _behind(stop: int, until: int) -> TailBehindError:
    return TailBehindError(f"offset {stop} is reached, and {until} was asked for")


def _not_known(location: str, reason: object) -> JobFileError:
    return JobFileError(
        f"the tail is on the cluster at {location}, which has to know who reads: {reason}; give "
        "read_table(cluster=mrflight.connect(..., identity=...)), or [cluster] metadata with tls "
        "and token in a job; and logs=, or cluster.logs, with a handle if an event log is the tail"
    )
