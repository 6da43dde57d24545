"""The servers of a job's own: started for it, replaced where they end, and ended with it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.fork_server import ForkServer
from mrflight.forked_process import Waits
from mrflight.private_folder import PrivateFolder
from mrflight.server_process import START_TIMEOUT_S, ServerProcess
from mrflight.silence_probe import SilenceProbe
from mrflight.supervision import Supervision

log = logging.getLogger(__name__)

MOST_RESTARTS = 8
"""Of metadata servers, and of data servers, in a job: what ends so many ends the next one too, and
with each data server maps are lost that are made again."""

SLOW_START_S = 10.0
"""Of a server, which takes well under a second: it stands still, and another one is started."""

_PROBE_END_TIMEOUT_S = 1.0


class EmbeddedCluster:
    """A metadata server and data servers on unix sockets in a private folder.

    They start side by side in the constructor, which does not wait: `wait`
    does. From then on another one is started where one ends, or does not
    answer. They end with `close`, or with this
    process, however it ends.
    """

    def __init__(
        self,
        folder: PrivateFolder,
        fork_server: ForkServer,
        data_servers: int,
        memory_bytes: int,
        spill_dir: Path,
        heartbeat_timeout_s: float,
        tell: Callable[[str], None] = log.warning,
    ) -> None:
        """``memory_bytes`` is what all data servers hold together before they spill.

        One that is silent for ``heartbeat_timeout_s`` is given up. ``tell`` is told in a line
        when a server ended and what is done about it, from threads of its own.
        """
        self._folder = folder
        self._fork_server = fork_server
        self._tell = tell
        self.metadata = f"grpc+unix://{folder.path}/metadata.sock"
        self._options = {
            "metadata": [
                *("--heartbeat-timeout", f"{heartbeat_timeout_s} s"),
                *("--journal", str(folder.path / "metadata.journal")),
            ],
            "data": [
                *("--metadata", self.metadata),
                *("--memory", str(memory_bytes // max(1, data_servers))),
                *("--spill-dir", str(spill_dir)),
            ],
        }
        self._started = dict.fromkeys(self._options, 0)
        self._first = {"metadata": 1, "data": data_servers}
        self._servers: list[ServerProcess] = []
        self._silence_s = heartbeat_timeout_s
        self._waits = Waits()
        self._changing = threading.Lock()  # of `_servers`, and of the processes in it
        self._probe: SilenceProbe | None = None
        self._supervisions: list[Supervision[ServerProcess]] = []
        for kind, count in self._first.items():
            for _ in range(count):
                self._servers.append(self._start(kind))

    def wait(self) -> None:
        """Return once every server is ready; JobFailedError with its log for one that is not.

        One that is killed meanwhile, or stands still, is replaced.
        """
        if self._supervisions:
            return
        deadline = time.monotonic() + START_TIMEOUT_S
        metadata, *data = self._servers
        # First, and watched at once: the others wait for it.
        metadata = self._ready(metadata, deadline)
        self._supervisions.append(Supervision([metadata], self._replace, self._tell))
        self._probe = SilenceProbe(
            self.metadata,
            self._data_servers,
            self._silence_s,
            self._end_the_silent,
            self._starting_late,
        )
        data = [self._ready(server, deadline) for server in data]
        self._supervisions.append(Supervision(data, self._replace, self._tell))

    def close(self) -> None:
        """End all servers, whatever they do: the job is over, and what they hold was for it.

        Does not wait for their ends, as closing the fork server does.
        """
        self._waits.end()  # of the supervisions and the probe, which are waited for below
        if self._probe is not None:
            self._probe.close()
        for supervision in self._supervisions:
            supervision.close()  # first, or it would start others
        with self._changing:
            while self._servers:
                self._servers.pop().close()
        if self._probe is not None:
            self._probe.join(_PROBE_END_TIMEOUT_S)

    def _ready(self, server: ServerProcess, deadline: float) -> ServerProcess:
        """The server once it is ready, or the one in its place."""
        server.is_forked()  # what is loaded before that takes its time
        try:
            server.wait_ready(min(deadline, time.monotonic() + SLOW_START_S))
            return server
        except DeadlineExceededError:
            if time.monotonic() >= deadline:
                raise
            self._end(server, SLOW_START_S)
        except JobFailedError:
            if not server.was_killed():
                raise
        other = self._replace(server)
        if other is None:
            raise JobFailedError(f"{_called(server)} cannot be started")
        return self._ready(other, deadline)

    def _data_servers(self) -> list[str]:
        """The locations of those that live, or seem to."""
        with self._changing:
            return [server.location for server in self._servers if server.kind == "data"]

    def _starting_late(self) -> list[str]:
        """The locations of those that nobody waits for, and that stand still in their start."""
        with self._changing:
            return [server.location for server in self._servers if server.is_late(self._silence_s)]

    def _end_the_silent(self, location: str) -> None:
        """End a server that lives and does not answer, so that another one takes its place."""
        with self._changing:
            for server in self._servers:
                if server.location == location:
                    self._end(server, self._silence_s)

    def _end(self, server: ServerProcess, silence_s: float) -> None:
        """End a server, and say that it was not somebody else."""
        self._tell(f"{_called(server)} has not answered for {silence_s:g} s and is ended")
        server.kill()

    def _start(self, kind: str) -> ServerProcess:
        """Start a server; JobFailedError or OSError where it cannot be.

        A data server is known by its location, which the blocks of a dead one are still looked
        for at: a new one gets its own. The metadata server is found where it always was.
        """
        number = self._started[kind]
        self._started[kind] += 1
        name = f"data{number}" if kind == "data" else "metadata"
        socket = self._folder.path / f"{name}.sock"
        arguments = ["--lifeline", str(self._folder.lifeline.path), *self._options[kind]]
        log_path = self._folder.path / f"{kind}{number}.log"
        return ServerProcess(
            self._fork_server, kind, name, socket, arguments, log_path, self._waits
        )

    def _replace(self, ended: ServerProcess) -> ServerProcess | None:
        """What is started where a server ended, or is about to."""
        with self._changing:
            self._servers.remove(ended)
            called = _called(ended)
            how, last_line = ended.how_it_ended(), ended.last_log_line()
            ended.close()
            other, outcome = self._start_another(ended)
        log.info("%s %s, and said last: %s", called, how, last_line)
        why = "" if how.startswith("was killed") else f" ({last_line})"
        self._tell(f"{called} {how}{why}; {outcome}")
        return other

    def _start_another(self, ended: ServerProcess) -> tuple[ServerProcess | None, str]:
        """Another one in its place, and what to say of it."""
        kind = ended.kind
        if self._started[kind] == self._first[kind] + MOST_RESTARTS:
            return None, f"none takes its place, as {MOST_RESTARTS} have been replaced by now"
        try:
            other = self._start(kind)
            if not other.is_forked():  # its fork server was killed; it has another one by now
                other.close()
                other = self._start(kind)
            if not other.is_forked():
                other.close()
                return None, "none takes its place, as nobody is left to fork it from"
        except (JobFailedError, OSError) as error:
            return None, f"none takes its place: {error}"
        self._servers.append(other)
        return other, f"{other.name} takes its place" if kind == "data" else "it is started again"


def _called(server: ServerProcess) -> str:
    return f"the data server {server.name}" if server.kind == "data" else "the metadata server"
