"""The embedded cluster as processes of this machine: see `mrflight.runtime.supervised_cluster`."""

from __future__ import annotations

from mrflight.config.identity import Endpoint
from mrflight.events.recorder import Recorder
from mrflight.runtime.local.server_process import START_TIMEOUT_S, ServerCommand, ServerProcess
from mrflight.runtime.supervised_cluster import ClusterOptions, StartLimits, SupervisedCluster
from mrflight.security.job_tokens import make_tokens
from mrflight.system.fork_server.child import WaitLimit
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder

SLOW_START_S = 10.0
"""When a server that is not ready counts as stuck. A start takes well under a second."""


class EmbeddedCluster(SupervisedCluster[ServerProcess]):
    """A metadata server and data servers on unix sockets in a private folder.

    They end with `close`, or with this process, however it ends.
    """

    def __init__(
        self,
        folder: SocketFolder,
        fork_server: ForkServer,
        options: ClusterOptions,
        events: Recorder,
    ) -> None:
        self._tokens = make_tokens(folder.path)
        metadata = Endpoint(f"grpc+unix://{folder.path}/metadata.sock", self._tokens.of_job)
        super().__init__(metadata, options, StartLimits(START_TIMEOUT_S, SLOW_START_S), events)
        self._folder = folder
        self._fork_server = fork_server
        self._options = options
        self._wait_limit = WaitLimit()

    def close(self) -> None:
        """Kill all servers, without waiting for their ends, for which the fork server waits."""
        self._wait_limit.expire()  # the supervisors and the probe are waited for
        super().close()

    def _start(self, kind: str, number: int) -> ServerProcess:
        name = f"data{number}" if kind == "data" else "metadata"
        socket = self._folder.path / f"{name}.sock"
        journal = self._folder.path / "metadata.journal"
        arguments = (
            *("--parent-lock", str(self._folder.parent_watch.path)),
            *self._options.arguments(kind, self.metadata, journal),
            *self._tokens.arguments,
        )
        log_path = self._folder.path / f"{kind}{number}.log"
        command = ServerCommand(kind, name, socket, arguments, log_path)
        return ServerProcess(self._fork_server, command, self._wait_limit)
