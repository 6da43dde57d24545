"""A job's own cluster of real servers, to be hurt, and what it tells of that."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from mrflight.config.identity import ClientOptions, Endpoint
from mrflight.errors import MrflightError
from mrflight.events.recorder import Recorder
from mrflight.runtime import liveness_probe
from mrflight.runtime.liveness_probe import LivenessProbe
from mrflight.runtime.local import server_process
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.supervised_cluster import ClusterOptions
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.system.fork_server.child import ForkedProcess
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.progress import QuietProgress
from mrflight.system.scratch import SocketFolder
from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.threads import run_threads
from tests.support.suite.waiting import await_that, hang_s

NEVER_S = 3600.0
"""What has to happen by then happens without any timer."""
MODULES = ["mrflight.servers.metadata", "mrflight.servers.data"]


class Notices(QuietProgress):
    """Hands every notice to a function."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify

    def notify(self, line: str) -> None:
        self._notify(line)


@dataclass
class ClusterHarness:
    """The environment in which a cluster is started, and the messages that it gave."""

    folder: SocketFolder
    fork_server: ForkServer
    spill: Path
    messages: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def cluster(
        self,
        data_servers: int = 2,
        notify: Callable[[str], None] | None = None,
        silence_s: float = NEVER_S,
    ) -> EmbeddedCluster:
        """Start one. Whatever is noticed of its servers is not noticed by their silence."""
        notices = Notices(notify or self.messages.put)
        options = ClusterOptions(data_servers, data_servers << 20, self.spill, silence_s)
        cluster = EmbeddedCluster(self.folder, self.fork_server, options, Recorder(notices))
        cluster.start()
        return cluster

    def servers(self) -> dict[str, psutil.Process]:
        """All that live, by their names."""
        found = {}
        for process in psutil.Process(self.fork_server.pid).children():
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.name().removeprefix("mrflight-")] = process
        return found

    def is_empty(self) -> bool:
        """Return whether all have ended. A zombie with other threads that run holds its locks."""
        return psutil.Process(self.fork_server.pid).children() == []

    def server(self, name: str) -> psutil.Process:
        """The one of a name, which it gives itself a moment after it was forked."""
        shown = name[: 15 - len("mrflight-")]  # as much as the system has of it
        return await_that(lambda: self.servers().get(shown), f"the server {name}")

    def location(self, name: str) -> str:
        return f"grpc+unix://{self.folder.path}/{name}.sock"

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> str:
        """Kill a server and return the message about it."""
        self.server(name).send_signal(number)
        return self.message()

    def message(self) -> str:
        """Wait for the next message."""
        return self.messages.get(timeout=hang_s())

    def hurt_at_fork(
        self, name: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Have the next server of this name send itself a signal before it does anything else."""
        really, is_hurt = self.fork_server.start, False

        def start(process: str, target: str, arguments: Sequence[str], **how: Any) -> ForkedProcess:
            nonlocal is_hurt
            if process == f"mrflight-{name}" and not is_hurt:
                is_hurt = True
                target, arguments = "os:system", [f"kill -{number:d} $PPID"]
            return really(process, target, arguments, **how)

        monkeypatch.setattr(self.fork_server, "start", start)


@contextmanager
def surroundings(spill: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterHarness]:
    """Nothing of what is started here may be left at the end."""
    temporary = Path(tempfile.mkdtemp(prefix="mrf"))  # short, as a socket's path is
    try:
        with nothing_left_over(temporary) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setattr(tempfile, "tempdir", str(temporary))
            # Who waits for an end that does not come is not to get away with it.
            monkeypatch.setattr(server_process, "_END_TIMEOUT_S", NEVER_S)
            monkeypatch.setattr("mrflight.runtime.local.cluster.SLOW_START_S", NEVER_S)
            monkeypatch.setattr(liveness_probe, "PROBE_EVERY_S", 0.1)
            with (
                SocketFolder() as folder,
                ForkServer([folder.path, spill], MODULES) as fork_server,
            ):
                yield ClusterHarness(folder, fork_server, spill)
            assert not folder.path.exists()
    finally:
        shutil.rmtree(temporary)
    assert "supervisor" not in {thread.name for thread in threading.enumerate()}


@contextmanager
def started(cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """It is ready; at the end it closes without waiting for anybody."""
    with closing(cluster):
        cluster.wait()
        yield cluster
        run_threads([cluster.close])


def watch_closely(cluster: EmbeddedCluster, silence_s: float, reports: int = 1) -> None:
    """Have it take a server for lost after a short silence, until so many have been.

    After that the replacements may take as long as they like to start and to answer.
    """
    reported = 0

    def report(location: str) -> None:
        nonlocal reported
        reported += 1
        if reported == reports:
            probe.close()
        cluster._end_silent(location)

    assert cluster._probe is not None
    cluster._probe.close()
    cluster._silence_s = silence_s
    metadata = Endpoint(cluster.metadata, cluster.identity)
    probe = LivenessProbe(metadata, cluster.data_servers, silence_s, report, cluster._starting_late)
    cluster._probe = probe


def until(condition: Callable[[], bool], what: str = "the cluster to be so") -> None:
    """Ask until it holds; a server that is just being started is asked again."""

    def holds() -> bool:
        with suppress(MrflightError):
            return condition()
        return False

    await_that(holds, what)


def await_alive(cluster: EmbeddedCluster, *names: str) -> None:
    """Wait until a metadata server takes these data servers for alive, maybe with others.

    One that was killed goes from there once its heartbeats are missed.
    """
    until(lambda: alive(cluster) >= set(names), f"{', '.join(names)} to be alive")


def declare_lost(cluster: EmbeddedCluster, *locations: str) -> None:
    """Have the metadata server take data servers for lost, as when their heartbeats are missed.

    It only removes an incarnation that it is told, so another one takes the place before.
    """
    with Connections(ClientOptions(identity=cluster._tokens.of_servers)) as connections:
        metadata = MetadataClient(cluster.metadata, connections)
        for location in locations:
            metadata.register_server(location, "lost")
            metadata.unregister_server(location, "lost")


def alive(cluster: EmbeddedCluster) -> set[str]:
    """The names of the data servers that a metadata server takes for alive."""
    with Connections(ClientOptions(identity=cluster.identity)) as connections:
        status = MetadataClient(cluster.metadata, connections).status()
    return {server.location.rpartition("/")[2].removesuffix(".sock") for server in status.servers}
