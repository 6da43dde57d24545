"""A job's own servers as processes of this machine: see `mrflight.runtime.supervised_cluster`."""

from __future__ import annotations

from pathlib import Path

from mrflight.runtime.local.server_process import START_TIMEOUT_S, ServerProcess
from mrflight.runtime.supervised_cluster import SupervisedCluster
from mrflight.system.fork_server.child import Waits
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.progress import ProgressReport
from mrflight.system.scratch import SocketFolder

SLOW_START_S = 10.0
"""Of a server, which takes well under a second: it stands still, and another one is started."""


class EmbeddedCluster(SupervisedCluster[ServerProcess]):
    """A metadata server and data servers on unix sockets in a private folder.

    They start side by side in the constructor, which does not wait. They end with `close`, or
    with this process, however it ends.
    """

    def __init__(
        self,
        folder: SocketFolder,
        fork_server: ForkServer,
        data_servers: int,
        memory_bytes: int,
        spill_dir: Path,
        heartbeat_timeout_s: float,
        progress: ProgressReport,
    ) -> None:
        """``memory_bytes`` is what all data servers hold together before they spill.

        One that is silent for ``heartbeat_timeout_s`` is given up. ``progress`` is
        notified when a server ended and what is done about it, from threads of its own.
        """
        metadata = f"grpc+unix://{folder.path}/metadata.sock"
        super().__init__(
            metadata, data_servers, START_TIMEOUT_S, SLOW_START_S, heartbeat_timeout_s, progress
        )
        self._folder = folder
        self._fork_server = fork_server
        self._options = {
            "metadata": [
                *("--heartbeat-timeout", f"{heartbeat_timeout_s} s"),
                *("--journal", str(folder.path / "metadata.journal")),
            ],
            "data": [
                *("--metadata", metadata),
                *("--memory", str(memory_bytes // max(1, data_servers))),
                *("--spill-dir", str(spill_dir)),
            ],
        }
        self._waits = Waits()
        self._start_all()

    def close(self) -> None:
        """End all servers. Does not wait for their ends, as closing the fork server does."""
        self._waits.end()  # of the supervisions and the probe, which are waited for
        super().close()

    def _start(self, kind: str, number: int) -> ServerProcess:
        name = f"data{number}" if kind == "data" else "metadata"
        socket = self._folder.path / f"{name}.sock"
        arguments = ["--parent-lock", str(self._folder.parent_watch.path), *self._options[kind]]
        log_path = self._folder.path / f"{kind}{number}.log"
        return ServerProcess(
            self._fork_server, kind, name, socket, arguments, log_path, self._waits
        )
