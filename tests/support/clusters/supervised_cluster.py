"""A job's own cluster of real servers, to be hurt, and what it tells of that."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import psutil
import pytest

from mrflight.config.identity import ClientOptions
from mrflight.errors import MrflightError
from mrflight.events.recorder import Recorder
from mrflight.runtime.local.cluster import EmbeddedCluster
from mrflight.runtime.supervised_cluster import ClusterOptions
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.progress import QuietProgress
from mrflight.system.scratch import SocketFolder
from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.threads import WAIT_S

AT_ONCE_S = 2.0  # of a machine that does other things as well; undisturbed it takes some ms
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
        self, data_servers: int = 2, notify: Callable[[str], None] | None = None
    ) -> EmbeddedCluster:
        notices = Notices(notify or self.messages.put)
        options = ClusterOptions(data_servers, data_servers << 20, self.spill, 3.0)
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
        until(lambda: shown in self.servers())
        return self.servers()[shown]

    def location(self, name: str) -> str:
        return f"grpc+unix://{self.folder.path}/{name}.sock"

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> str:
        """Kill a server and return the message about it."""
        process = self.server(name)
        killed = time.monotonic()
        process.send_signal(number)
        message = self.messages.get(timeout=WAIT_S)
        if number == signal.SIGKILL:
            assert time.monotonic() - killed < AT_ONCE_S
        return message


@contextmanager
def surroundings(spill: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterHarness]:
    """Nothing of what is started here may be left at the end."""
    temporary = Path(tempfile.mkdtemp(prefix="mrf"))  # short, as a socket's path is
    try:
        with nothing_left_over(temporary) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setattr(tempfile, "tempdir", str(temporary))
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
        began = time.monotonic()
    assert time.monotonic() - began < AT_ONCE_S


def until(condition: Callable[[], bool]) -> None:
    """Ask until it holds; a server that is just being started is asked again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if condition():
                return
        except MrflightError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline


def alive(cluster: EmbeddedCluster) -> set[str]:
    """The names of the data servers that a metadata server takes for alive."""
    with Connections(ClientOptions(identity=cluster.identity)) as connections:
        status = MetadataClient(cluster.metadata, connections).status()
    return {server.location.rpartition("/")[2].removesuffix(".sock") for server in status.servers}
