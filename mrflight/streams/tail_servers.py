"""Which data server has the tail of a live stream: one of the stream's own, or of a cluster's."""

from __future__ import annotations

import random
import secrets
from abc import abstractmethod
from typing import Any

from mrflight.config.identity import ClientOptions, ClusterAccess, Endpoint, Identity
from mrflight.errors import NoDataServersError
from mrflight.ids import new_token
from mrflight.runtime.supervised_cluster import SupervisedCluster
from mrflight.scheduler.job_run import JobRun
from mrflight.security.known_tails import KnownTail
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.tail_protocol import reader_token
from mrflight.storage.tail_file import TailFile
from mrflight.system.closeable import Closeable


class TailServers(Closeable):
    """The data servers that the tail of a stream can be on, and its ``name`` there."""

    name: str

    def __init__(self) -> None:
        self.token = new_token()
        """With which the tail is fed."""

    @abstractmethod
    def choose(self, current: Endpoint | None) -> Endpoint:
        """Return the data server of the tail, or another one if that is gone.

        Raises NoDataServersError, and ServerUnavailableError if that cannot be told now.
        """

    def take_new_name(self) -> str:
        """Return the name of the tail, another one if a stranger can have taken the first."""
        return self.name

    @abstractmethod
    def file(self, stream: str, server: Endpoint) -> TailFile:
        """Return what the file beside the table says, once readers can find this server by it."""


class OwnServers(TailServers):
    """Those that the stream has started."""

    def __init__(self, stream: str, identity: Identity, cluster: SupervisedCluster[Any]) -> None:
        """Wait until they are ready. ``identity`` is that of the stream."""
        super().__init__()
        cluster.start()
        cluster.wait()
        self._cluster = cluster
        self._identity = identity
        self._known = KnownTail(stream)
        self.name = self._known.name

    def choose(self, current: Endpoint | None) -> Endpoint:
        locations = self._cluster.data_servers()
        if current is not None and current.location in locations:
            return current
        if not locations:
            raise NoDataServersError("there is no data server")
        return Endpoint(locations[0], self._identity)

    def file(self, stream: str, server: Endpoint) -> TailFile:
        self._known.tell(server, reader_token(self.token))
        return TailFile(stream, self.name)

    def close(self) -> None:
        self._known.close()


class StandingServers(TailServers):
    """Those of a standing cluster, by the locations that they have announced there."""

    def __init__(self, stream: str, access: ClusterAccess) -> None:
        super().__init__()
        self._access = access
        self._stream = stream
        self.take_new_name()

    def take_new_name(self) -> str:
        self.name = f"{self._stream}.{secrets.token_hex(8)}"
        return self.name

    def choose(self, current: Endpoint | None) -> Endpoint:
        identity = self._access.client.identity
        with Connections(ClientOptions(identity=identity)) as connections:
            servers = MetadataClient(self._access.location, connections).status().servers
        if current is not None and current.location in [each.location for each in servers]:
            return current
        if not servers:
            raise NoDataServersError(
                f"the cluster at {self._access.location} has no data server; start one"
            )
        random.shuffle(servers)  # or all tails would be on the first of those that are empty
        freest = min(servers, key=lambda each: each.use.held_bytes)
        return Endpoint(freest.location, identity)

    def file(self, stream: str, server: Endpoint) -> TailFile:
        token, cluster = reader_token(self.token), self._access.location
        return TailFile(stream, self.name, server.location, cluster, token=token)

    def close(self) -> None:
        """Leave the servers, which are not the stream's."""


def tail_servers(stream: str, job: JobRun) -> TailServers:
    """Return the data servers of a stream's job; its own ones are then ready."""
    if job.cluster is None:
        return StandingServers(stream, ClusterAccess(job.metadata, job.client))
    return OwnServers(stream, job.client.identity, job.cluster)
