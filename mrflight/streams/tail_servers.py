"""Which data server has the tail of a live stream: one of the stream's own, or of a cluster's."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from mrflight.config.identity import ClientOptions, ClusterAccess, Endpoint
from mrflight.errors import NoDataServersError
from mrflight.runtime.supervised_cluster import SupervisedCluster
from mrflight.scheduler.job_run import JobRun
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.storage.tail_file import TailFile


class TailServers(ABC):
    """The data servers that a tail can be on."""

    @abstractmethod
    def choose(self, current: Endpoint | None) -> Endpoint:
        """Return the data server of the tail, or another one if that is gone.

        Raises NoDataServersError, and ServerUnavailableError if that cannot be told now.
        """

    @abstractmethod
    def file(self, stream: str, tail: str, server: Endpoint) -> TailFile:
        """Return what readers need to know of a tail."""


class OwnServers(TailServers):
    """Those that the stream has started."""

    def __init__(self, job: JobRun, cluster: SupervisedCluster[Any]) -> None:
        """Wait until they are ready."""
        cluster.start()
        cluster.wait()
        self._cluster = cluster
        self._identity = job.client.identity

    def choose(self, current: Endpoint | None) -> Endpoint:
        locations = self._cluster.data_servers()
        if current is not None and current.location in locations:
            return current
        if not locations:
            raise NoDataServersError("there is no data server")
        return Endpoint(locations[0], self._identity)

    def file(self, stream: str, tail: str, server: Endpoint) -> TailFile:
        return TailFile(stream, tail, server.location, server.identity)


class StandingServers(TailServers):
    """Those of a standing cluster, by the locations that they have announced there."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

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

    def file(self, stream: str, tail: str, server: Endpoint) -> TailFile:
        return TailFile(stream, tail, server.location, cluster=self._access.location)


def tail_servers(job: JobRun) -> TailServers:
    """Return the data servers of a job; its own ones are then ready."""
    if job.cluster is None:
        return StandingServers(ClusterAccess(job.metadata, job.client))
    return OwnServers(job, job.cluster)
