"""Servers of a job's own cluster that end are replaced: real servers, killed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import psutil
import pyarrow as pa
import pytest

from mrflight.client import connect
from mrflight.cluster import MOST_RESTARTS, EmbeddedCluster, PrivateFolder
from mrflight.errors import JobFailedError, MrflightError
from mrflight.fork_server import ForkServer
from mrflight.shuffle.calls import call
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.metadata_client import MetadataClient
from mrflight.shuffle.protocol import DataAction, Done, ServerStats
from mrflight.silence_probe import SilenceProbe
from tests.support.leftovers import nothing_left_over

WAIT_S = 30.0
AT_ONCE_S = 2.0  # of a machine that does other things as well; undisturbed it takes some ms
MODULES = ["mrflight.servers.metadata", "mrflight.servers.data"]


@dataclass
class Surroundings:
    """What a cluster is started in, and what it told."""

    folder: PrivateFolder
    fork_server: ForkServer
    spill: Path
    told: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def cluster(
        self, data_servers: int = 2, tell: Callable[[str], None] | None = None
    ) -> EmbeddedCluster:
        told = tell or self.told.put
        memory_bytes = data_servers << 20
        return EmbeddedCluster(
            self.folder, self.fork_server, data_servers, memory_bytes, self.spill, 3.0, told
        )

    def servers(self) -> dict[str, psutil.Process]:
        """All that live, by their names."""
        found = {}
        for process in psutil.Process(self.fork_server.pid).children():
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.name().removeprefix("mrflight-")] = process
        return found

    def is_empty(self) -> bool:
        """Whether all have ended: one whose first thread has is a zombie, and holds its locks."""
        return psutil.Process(self.fork_server.pid).children() == []

    def server(self, name: str) -> psutil.Process:
        """The one of a name, which it gives itself a moment after it was forked."""
        shown = name[: 15 - len("mrflight-")]  # as much as the system has of it
        until(lambda: shown in self.servers())
        return self.servers()[shown]

    def location(self, name: str) -> str:
        return f"grpc+unix://{self.folder.path}/{name}.sock"

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> str:
        """What is told when a server was killed."""
        process = self.server(name)
        killed = time.monotonic()
        process.send_signal(number)
        told = self.told.get(timeout=WAIT_S)
        if number == signal.SIGKILL:
            assert time.monotonic() - killed < AT_ONCE_S
        return told


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """Nothing of what is started here may be left at the end."""
    temporary = Path(tempfile.mkdtemp(prefix="mrf"))  # short, as a socket's path is
    try:
        with nothing_left_over(temporary) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setattr(tempfile, "tempdir", str(temporary))
            spill = tmp_path / "spill"
            with (
                closing(PrivateFolder()) as folder,
                ForkServer([folder.path, spill], MODULES) as fork_server,
            ):
                yield Surroundings(folder, fork_server, spill)
            assert not folder.path.exists()
    finally:
        shutil.rmtree(temporary)
    assert "supervision" not in {thread.name for thread in threading.enumerate()}


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


def alive(location: str) -> set[str]:
    """The names of the data servers that a metadata server takes for alive."""
    with Connections() as connections:
        status = MetadataClient(location, connections).status()
    return {
        server.location.rpartition("/")[2].removesuffix(".sock")
        for server in status.servers
        if server.alive
    }


def stats_of(location: str) -> ServerStats:
    with Connections() as connections:
        return call(connections, location, DataAction.STATS, Done(), ServerStats)


def test_a_data_server_that_is_killed_is_replaced(around: Surroundings) -> None:
    with started(around.cluster()) as cluster:
        assert alive(cluster.metadata) == {"data0", "data1"}
        said = around.kill("data0")
        assert said == "the data server data0 was killed by SIGKILL; data2 takes its place"
        until(lambda: "data2" in alive(cluster.metadata))
        assert stats_of(around.location("data2")).blocks == 0
        said = around.kill("data2")
        assert said == "the data server data2 was killed by SIGKILL; data3 takes its place"
        until(lambda: "data3" in alive(cluster.metadata))
        assert stats_of(around.location("data1")).blocks == 0  # which nothing happened to
        assert len(around.servers()) == 3


def test_the_metadata_server_is_started_where_it_was(around: Surroundings) -> None:
    with started(around.cluster()) as cluster:
        before = around.server("metadata").pid
        said = around.kill("metadata")
        assert said == "the metadata server was killed by SIGKILL; it is started again"
        assert around.server("metadata").pid != before
        until(lambda: alive(cluster.metadata) == {"data0", "data1"})  # who come by themselves
        assert len(around.servers()) == 3


def test_a_metadata_server_that_stands_still_is_replaced(around: Surroundings) -> None:
    with started(around.cluster()) as cluster:
        around.server("metadata").suspend()
        said = [around.told.get(timeout=WAIT_S) for _ in range(2)]
        assert said == [
            "the metadata server has not answered for 3 s and is ended",
            "the metadata server was killed by SIGKILL; it is started again",
        ]
        until(lambda: alive(cluster.metadata) == {"data0", "data1"})
        assert len(around.servers()) == 3
    assert around.told.empty()


def test_a_driver_that_stood_still_itself_ends_no_server(around: Surroundings) -> None:
    """The call that was under way is late then, the next one is not."""
    ended: list[str] = []
    with started(around.cluster()) as cluster:
        metadata = around.server("metadata")
        probe = SilenceProbe(cluster.metadata, list, 2.0, ended.append)
        metadata.suspend()
        with closing(probe):
            until(lambda: probe.late_calls == 1)
            metadata.resume()
            until(lambda: probe.late_calls == 0)
        probe.join(WAIT_S)
        assert ended == []


def test_data_servers_that_stand_still_are_replaced(around: Surroundings) -> None:
    with started(around.cluster()) as cluster:
        for name in ("data0", "data1"):
            around.server(name).suspend()
        said = sorted(around.told.get(timeout=WAIT_S) for _ in range(4))
        assert said[0] == "the data server data0 has not answered for 3 s and is ended"
        assert said[1].startswith("the data server data0 was killed by SIGKILL; data")
        assert said[2] == "the data server data1 has not answered for 3 s and is ended"
        assert said[3].startswith("the data server data1 was killed by SIGKILL; data")
        until(lambda: alive(cluster.metadata) == {"data2", "data3"})
        assert len(around.servers()) == 3
    assert around.told.empty()


def test_a_data_server_that_was_given_up_and_answers_is_not_ended(around: Surroundings) -> None:
    """It is on its way back, or about to end by itself."""
    ended: list[str] = []
    asked = threading.Event()

    def suspects() -> list[str]:
        asked.set()
        return [around.location("data0"), around.location("nowhere")]

    with started(around.cluster()) as cluster:
        with Connections() as connections:
            client = MetadataClient(cluster.metadata, connections)
            with closing(SilenceProbe(cluster.metadata, suspects, 2.0, ended.append)) as probe:
                for _ in range(3):
                    asked.clear()
                    client.unregister_server(around.location("data0"))
                    assert asked.wait(WAIT_S)
            probe.join(WAIT_S)
        assert ended == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("metadata", signal.SIGSTOP), ("metadata", signal.SIGKILL), ("data1", signal.SIGKILL)],
)
def test_what_happens_to_a_server_in_its_start_is_made_good(
    around: Surroundings, name: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.cluster.SLOW_START_S", 3.0)
    cluster = around.cluster()
    with closing(cluster):
        around.server(name).send_signal(number)  # most likely before it is ready
        cluster.wait()
        until(lambda: len(alive(cluster.metadata)) == 2)
        with connect(cluster.metadata) as client:
            shuffle = client.create_shuffle("numbers", partitions=4)
            with shuffle.writer(map_id=0, attempt=0, key=["key"]) as out:
                out.write(pa.record_batch({"key": np.arange(1000)}))
            assert sum(info.rows for info in shuffle.layout()[1]) == 1000


def test_all_of_them_at_once(around: Surroundings) -> None:
    with started(around.cluster(3)) as cluster:
        for process in around.servers().values():
            process.kill()
        said = sorted(around.told.get(timeout=WAIT_S) for _ in range(4))
        ended = [line.partition(";")[0] for line in said]
        places = {line.partition("; ")[2] for line in said}
        assert ended == [
            *(f"the data server data{n} was killed by SIGKILL" for n in range(3)),
            "the metadata server was killed by SIGKILL",
        ]
        assert places == {
            *(f"data{number} takes its place" for number in range(3, 6)),
            "it is started again",
        }
        until(lambda: alive(cluster.metadata) == {"data3", "data4", "data5"})


def test_what_takes_the_place_has_the_same_memory_and_spills_to_the_same_folder(
    around: Surroundings,
) -> None:
    batch = pa.record_batch({"key": np.arange(1_000_000)})  # 8 MB, where each server holds 1 MiB
    with started(around.cluster()) as cluster:
        around.kill("data0")
        around.kill("data1")
        until(lambda: alive(cluster.metadata) == {"data2", "data3"})
        with connect(cluster.metadata) as client:
            shuffle = client.create_shuffle("numbers", partitions=4)
            with shuffle.writer(map_id=0, attempt=0, key=["key"]) as out:
                out.write(batch)
            read = [list(shuffle.reader(partition)) for partition in range(4)]
        rows = pa.Table.from_batches(chain.from_iterable(read))
        assert sorted(rows["key"].to_pylist()) == batch["key"].to_pylist()
        for name in ("data2", "data3"):
            stats = stats_of(around.location(name))
            assert stats.memory_bytes <= 1 << 20
            assert stats.spilled_bytes > 0
        folders = [path for path in around.spill.iterdir() if path.is_dir()]
        assert len(folders) == 2  # those of the dead are gone


def test_how_it_ended_is_told(around: Surroundings) -> None:
    with started(around.cluster()):
        said = around.kill("data0", signal.SIGSEGV)
        assert said == "the data server data0 was killed by SIGSEGV; data2 takes its place"
        said = around.kill("data1", signal.SIGTERM)  # so it drains, and ends by itself
        assert said.startswith("the data server data1 ended with code 0 (")
        assert said.endswith("stopping); data3 takes its place")


def test_a_job_gets_so_many_servers_of_a_kind_and_no_more(around: Surroundings) -> None:
    with started(around.cluster()) as cluster:
        for number in range(MOST_RESTARTS):
            before = around.server("metadata").pid
            said = around.kill("metadata")  # most of them before they are ready
            assert said == "the metadata server was killed by SIGKILL; it is started again", number
            assert around.server("metadata").pid != before
        said = around.kill("metadata")
        assert said == (
            "the metadata server was killed by SIGKILL; none takes its place, as 8 have been "
            "replaced by now"
        )
        assert set(around.servers()) == {"data0", "data1"}
        assert around.kill("data0").endswith("data2 takes its place")  # they are counted apart
        assert around.told.empty()
        assert cluster.metadata == around.location("metadata")


def test_servers_that_cannot_start_are_tried_so_often_and_no_more(around: Surroundings) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with started(around.cluster()):
        around.spill.rmdir()
        around.spill.write_text("in the way")
        said = [around.kill("data0"), *(around.told.get(timeout=WAIT_S) for _ in range(8))]
        assert said[0] == "the data server data0 was killed by SIGKILL; data2 takes its place"
        refusal = f"(mrflight: --spill-dir {around.spill}"
        for number, line in enumerate(said[1:], 2):
            assert line.startswith(f"the data server data{number} ended with code 2 {refusal}")
        outcomes = [line.rpartition("; ")[2] for line in said]
        assert outcomes == [
            *(f"data{number} takes its place" for number in range(2, 10)),
            "none takes its place, as 8 have been replaced by now",
        ]
        assert set(around.servers()) == {"metada", "data1"}
        around.spill.unlink()
    assert around.told.empty()
    around.fork_server.close()
    left = set(os.listdir("/proc/self/fd")) - before
    assert left == set()


def test_a_server_that_never_starts_fails_the_job_and_is_not_replaced(
    around: Surroundings,
) -> None:
    around.spill.write_text("in the way")
    cluster = around.cluster()
    with closing(cluster), pytest.raises(JobFailedError, match=r"ended with code 2 .*--spill-dir"):
        cluster.wait()
    assert around.told.empty()
    around.spill.unlink()


def test_closing_waits_for_a_restart_and_ends_what_it_started(around: Surroundings) -> None:
    """The restart is held up once it has started the other server, which then is ended as well."""
    told, goes_on = threading.Event(), threading.Event()

    def hold_up(line: str) -> None:
        told.set()
        assert goes_on.wait(WAIT_S)

    cluster = around.cluster(tell=hold_up)
    cluster.wait()
    before = set(around.servers())
    around.server("data0").kill()
    assert told.wait(WAIT_S)
    until(lambda: set(around.servers()) == before - {"data0"} | {"data2"})
    closer = threading.Thread(target=cluster.close)
    closer.start()
    around.server("data1").kill()  # nobody minds any more
    goes_on.set()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    until(around.is_empty)
    cluster.close()


def test_closing_at_any_moment_leaves_nothing(around: Surroundings) -> None:
    """Between a kill and the restart, or in it: who comes first differs from round to round."""
    replaced = 0
    for pause in range(20):
        with started(around.cluster(1)):
            around.server("data0").kill()
            for _ in range(pause):
                around.servers()  # takes about as long as it takes to notice
        told = around.told.qsize()
        replaced += told
        until(around.is_empty)
        assert around.told.qsize() == told  # nothing more comes after the close
        while not around.told.empty():
            said = around.told.get()
            assert said == "the data server data0 was killed by SIGKILL; data1 takes its place"
    assert 0 < replaced <= 20


def test_without_a_fork_server_nothing_is_started_and_that_is_told(around: Surroundings) -> None:
    with started(around.cluster()):
        servers = list(around.servers().values())
        os.kill(around.fork_server.pid, signal.SIGKILL)
        said = sorted(around.told.get(timeout=WAIT_S) for _ in range(3))
        why = "was not started: the fork server ended or hangs"
        for line in said:
            assert "was killed by SIGKILL; none takes its place: mrflight-" in line
            assert line.endswith(why)
        assert psutil.wait_procs(servers, timeout=WAIT_S)[1] == []
    shutil.rmtree(around.folder.path)  # which the fork server does otherwise
    shutil.rmtree(around.spill)
