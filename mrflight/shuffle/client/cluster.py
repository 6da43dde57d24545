"""A cluster as its users hold it."""

from __future__ import annotations

from mrflight.config.locations import parse_location
from mrflight.errors import JobError
from mrflight.ids import new_writer_id
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import StatusResponse
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts


class Cluster(Closeable):
    """A running cluster, by the location of its metadata server; made by `connect`."""

    def __init__(self, location: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.location = location
        self._connections = Connections(timeouts)
        self._metadata = MetadataClient(location, self._connections)

    def create_shuffle(
        self,
        name: str,
        partitions: int,
        replicas: int = 1,
        lease_s: float | None = None,
        token: str | None = None,
    ) -> Shuffle:
        """Make a shuffle and place its partitions evenly over the data servers.

        It stays until it is dropped; with ``lease_s`` it is dropped as well when nobody has asked
        for its `Shuffle.health` for so long. Who had no answer and asks again with the same
        ``token``, up to 32 letters and digits of his own, gets the same shuffle.
        Raises ShuffleExistsError where there is one of this name,
        NoDataServersError where fewer servers than ``replicas`` are registered.
        """
        token = token or new_writer_id()
        self._metadata.put_shuffle(name, partitions, replicas, token, lease_s)
        return Shuffle(self.location, name, partitions, self._connections.timeouts, token)

    def open_shuffle(self, name: str) -> Shuffle:
        """A shuffle that somebody made; ShuffleNotFoundError where there is none."""
        description = self._metadata.describe_shuffle(name)
        partitions = len(description.placement)
        timeouts = self._connections.timeouts
        return Shuffle(self.location, name, partitions, timeouts, description.token)

    def status(self) -> StatusResponse:
        """The servers and shuffles of the cluster, as its metadata server sees them now."""
        return self._metadata.status()

    def close(self) -> None:
        """Close the connections; shuffles stay."""
        self._connections.close()


def connect(location: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Cluster:
    """A client of the cluster whose metadata server is at ``location``, ``grpc+tcp://host:port``.

    Connects at the first call; ServerUnavailableError comes from there, JobError from here for a
    text that is no location.
    """
    try:
        return Cluster(parse_location(location), timeouts)
    except ValueError as error:
        raise JobError(str(error)) from error
