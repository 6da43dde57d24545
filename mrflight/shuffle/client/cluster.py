"""A client of a running cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.config.identity import ANONYMOUS, ClientOptions, ClusterAccess, Identity
from mrflight.config.locations import parse_location
from mrflight.config.transport import Transport
from mrflight.errors import EventLogNotFoundError, JobError
from mrflight.ids import ShuffleKey, new_token
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats, StatusResponse
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts

if TYPE_CHECKING:  # most programs append nothing
    from mrflight.shuffle.client.append_message import Appended
    from mrflight.shuffle.client.appender import Appender
    from mrflight.shuffle.client.log_client import LogClient, LogRows
    from mrflight.shuffle.wire.log_protocol import LogPlacement, LogState


class Cluster(Closeable):
    """A client of the cluster whose metadata server is at ``location``; made by `connect`."""

    def __init__(self, location: str, client: ClientOptions | None = None) -> None:
        self.location = location
        self._client = (client or ClientOptions()).at(location)
        self._connections = Connections(self._client)
        self._metadata = MetadataClient(location, self._connections)
        self._appenders: dict[str, Appender] = {}
        self._appending = threading.Lock()

    def create_shuffle(
        self,
        name: str,
        partitions: int,
        replicas: int = 1,
        lease_s: float | None = None,
        token: str | None = None,
        job: str = "",
    ) -> Shuffle:
        """Create a shuffle and place its partitions evenly over the data servers.

        It exists until it is dropped; with ``lease_s`` it is also dropped after that time without
        a call of its `Shuffle.health`. A client that got no answer can repeat the call with the
        same ``token``, up to 32 random letters and digits, and gets the same shuffle. ``job`` is a
        name for people, which ``mrflight status`` shows.
        Raises ShuffleExistsError if there is a shuffle of this name, and NoDataServersError if
        fewer than ``replicas`` servers are registered.
        """
        token = token or new_token()
        self._metadata.put_shuffle(name, partitions, replicas, token, lease_s, job)
        return self._handle(name, partitions, token)

    def open_shuffle(self, name: str, token: str = "") -> Shuffle:
        """Return an existing shuffle; raise ShuffleNotFoundError if there is none of this name.

        A cluster that knows its callers wants the ``token`` of the shuffle, which the handle that
        created it has, and otherwise raises AccessDeniedError.
        """
        description = self._metadata.describe_shuffle(name, token=token)
        return self._handle(name, len(description.placement), description.token)

    def _handle(self, name: str, partitions: int, token: str) -> Shuffle:
        return Shuffle(self.location, name, partitions, token, self._client)

    def create_log(self, name: str, replicas: int = 1, token: str = "") -> LogPlacement:
        """Create an event log: rows that are durable when they are acknowledged.

        Rows are on the disks of ``replicas`` data servers before they are acknowledged, which need
        a ``--log-dir``. Raises EventLogExistsError, and NoDataServersError if there are too few. A
        client that got no answer can repeat the call with the same ``token``. A cluster that knows
        its callers wants a handle with every call: that of the result, which is a secret and allows
        everything, or one for less; see `LogPlacement.handle`.
        """
        with self._logs() as logs:
            return logs.create(name, replicas, token)

    def append(self, log: str, batch: pa.RecordBatch) -> Appended:
        """Append rows to an event log, and return their offsets once they are durable.

        Threads that append at the same time share a stream. See `appender` for many batches in
        flight, and for its errors.
        """
        with self._appending:
            if log not in self._appenders:
                self._appenders[log] = self.appender(log)
            appender = self._appenders[log]
        try:
            return appender.append(batch).result()
        except EventLogNotFoundError:
            with self._appending:  # the next log of this name has another token
                self._appenders.pop(log, None)
            raise

    def appender(self, log: str, producer: str = "") -> Appender:
        """Return a producer of an event log, which keeps many batches in flight; close it.

        With the name of a ``producer``, which no other may use at the same time, a program that is
        started again learns from `Appender.last_sequence` which of its batches are stored.
        """
        from mrflight.shuffle.client.appender import Appender

        return Appender(self.location, ShuffleKey.parse(log), self._client, producer)

    def read_log(self, log: str, start: int = 0, stop: int | None = None) -> Iterator[LogRows]:
        """Yield the rows of an event log in order, up to ``stop`` or to those durable now.

        Raises OffsetTrimmedError if rows from ``start`` on have been trimmed.
        """
        with self._logs() as logs:
            yield from logs.read(ShuffleKey.parse(log), start, stop)

    def log_state(self, log: str, producer: str = "") -> LogState:
        """Return the first row and the end of an event log, its schema, and a producer's state."""
        with self._logs() as logs:
            return logs.state(ShuffleKey.parse(log), producer)

    def trim(self, log: str, offset: int) -> int:
        """Delete the segments of an event log below an offset; return the first row kept.

        Segments are deleted whole, and the one that is written is kept.
        """
        with self._logs() as logs:
            return logs.trim(ShuffleKey.parse(log), offset)

    def drop_log(self, log: str) -> None:
        """Drop an event log, and delete its rows."""
        with self._appending:
            appender = self._appenders.pop(log, None)
        if appender is not None:
            appender.close()
        with self._logs() as logs:
            logs.drop(ShuffleKey.parse(log))

    def _logs(self) -> LogClient:
        from mrflight.shuffle.client.log_client import LogClient

        return LogClient(self.location, self._client)

    @property
    def access(self) -> ClusterAccess:
        """Where the cluster is, and how this client talks to it, without a connection."""
        return ClusterAccess(self.location, self._client)

    def status(self) -> StatusResponse:
        """Return the servers and shuffles of the cluster, as its metadata server sees them now."""
        return self._metadata.status()

    def stats(self, location: str) -> ServerStats:
        """Return what a data server of the cluster holds now."""
        return call(self._connections, location, DataAction.STATS, Done(), ServerStats)

    def close(self) -> None:
        """Close the connections; shuffles and event logs continue to exist."""
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()
        self._connections.close()


def connect(
    location: str,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    transport: Transport = "auto",
    identity: Identity = ANONYMOUS,
    logs: Sequence[str] = (),
) -> Cluster:
    """Return a client of the cluster whose metadata server is at ``grpc+tls://host:port``.

    The ``identity`` names the files of certificates, and where the client's token is. A cluster on
    the loopback address of this machine, at ``grpc+tcp://127.0.0.1:port``, may need none.

    Rows go to and from data servers through shared memory where a server is on the same machine,
    and over Flight otherwise; with the ``transport`` ``flight`` always over Flight, and with
    ``shared`` it is an error if there is no shared memory.

    ``logs`` are handles of event logs, or references to them such as ``file:PATH``. The logs can
    then be named without a token, also as the tails of tables that are read fresh.

    It connects at the first call, which raises ServerUnavailableError if the server cannot be
    reached. Raises JobError if ``location`` is not a location.
    """
    try:
        client = ClientOptions(timeouts, transport, identity, tuple(logs))
        return Cluster(parse_location(location), client)
    except ValueError as error:
        raise JobError(str(error)) from error
