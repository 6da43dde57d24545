"""A metadata server that is killed and started again resumes, and so does a job."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import AttemptSupersededError, ShuffleNotFoundError
from tests.support.faults import stopped_server
from tests.support.faults.stopped_server import METADATA_STEPS
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

PARTITIONS = 4
ROWS = 2_000
EVENTS = {"a map is committed": 5, "the shuffle is dropped": 6}
"""And which event of the cluster that is: two servers join it, and the shuffle has two maps."""


class Server:
    """A server process that can be killed and started again with the same options."""

    def __init__(self, module: str, *options: str, kills_itself: Sequence[str] = ()) -> None:
        """``kills_itself`` is the step, and which time, of a metadata server's first process."""
        self._command = [sys.executable, "-m", f"mrflight.servers.{module}", *options]
        self.location = ""
        first = [sys.executable, "-m", stopped_server.__name__, *kills_itself, *options]
        self._start(first if kills_itself else self._command)

    def start(self) -> None:
        self._start(self._command)

    def _start(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        assert ready, "the server ended before it was ready"
        assert self.location in ("", ready[-1])
        self.location = ready[-1]

    def kill(self) -> None:
        self.process.kill()
        self.await_kill()

    def await_kill(self) -> None:
        assert self.process.wait(hang_s()) == -9
        self._close()

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(hang_s())
        self._close()
        return code

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def servers(*listening: str, journal: Path, kills_itself: Sequence[str] = ()) -> Iterator[Server]:
    """A metadata server with a journal, and two data servers; all end by themselves."""
    started: list[Server] = []
    try:
        options = (*listening, "--journal", str(journal))
        started.append(Server("metadata", *options, kills_itself=kills_itself))
        at = ("--metadata", started[0].location, "--spill-dir", str(journal.parent))
        started.extend(Server("data", *at) for _ in range(2))
        yield started[0]
    finally:
        codes = [server.stop() for server in reversed(started) if server.process.poll() is None]
    assert codes == [0, 0, 0]


def fixed_port() -> int:
    """A free one that the system gives to no client: one that tries again could reach itself."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = lowest - 1 - os.getpid() % 10_000
    for port in range(first, 1024, -1):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port from 1025 to {first} is free")


@contextmanager
def at_work(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for work, of which nothing more is begun after a failure."""
    with ThreadPoolExecutor(threads) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[Server]:
    with servers("--port", str(fixed_port()), journal=tmp_path / "journal") as server:
        yield server


def batch(map_id: int) -> pa.RecordBatch:
    ids = [map_id * ROWS + row for row in range(ROWS)]
    return pa.record_batch({"k": [f"key {number}" for number in ids], "n": pa.array(ids)})


def write(shuffle: mrflight.Shuffle, map_id: int) -> None:
    rows = batch(map_id)
    with shuffle.writer(map_id, key=["k"]) as out:
        for start in range(0, ROWS, ROWS // 4):
            out.write(rows.slice(start, ROWS // 4))


def read(shuffle: mrflight.Shuffle, partition: int) -> list[int]:
    """The numbers in a partition, in which every key must be one of its own."""
    numbers: list[int] = []
    for rows in shuffle.reader(partition):
        ids = mrflight.partition_ids(rows, key=["k"], partitions=shuffle.partitions)
        assert set(ids.to_pylist()) == {partition}
        numbers += rows["n"].to_pylist()
    return numbers


def read_all(shuffle: mrflight.Shuffle) -> list[int]:
    return sorted(n for partition in range(shuffle.partitions) for n in read(shuffle, partition))


@contextmanager
def while_down(metadata: Server, *work: Callable[[], None]) -> Iterator[None]:
    """Have work begin while there is no server, and end once there is one again."""
    metadata.kill()
    begun = threading.Semaphore(0)

    def begin(each: Callable[[], None]) -> None:
        begun.release()
        each()

    with at_work(len(work)) as threads:
        done = [threads.submit(begin, each) for each in work]
        for _ in work:
            assert begun.acquire(timeout=hang_s())
        yield
        assert not any(each.done() for each in done)  # nobody but the server could have answered
        metadata.start()
        for each in done:
            each.result(hang_s())


@pytest.mark.slow
def test_writers_and_readers_go_on_after_every_kill(metadata: Server) -> None:
    """Killed whenever a number of maps has been committed, with writers at work all the time."""
    maps, kills_at = 36, (3, 10, 17, 24)
    with mrflight.connect(metadata.location) as client:
        shuffle = client.create_shuffle("clicks", PARTITIONS)
    committed, last_kill = threading.Semaphore(0), threading.Event()

    def run(map_id: int) -> None:
        if map_id >= kills_at[-1]:  # or all might be done before
            assert last_kill.wait(hang_s())
        write(shuffle, map_id)
        committed.release()

    with at_work(4) as threads:
        running = [threads.submit(run, map_id) for map_id in range(maps)]
        already = 0
        for at in kills_at:
            for _ in range(at - already):
                assert committed.acquire(timeout=hang_s())
            already = at
            metadata.kill()
            if at == kills_at[-1]:
                last_kill.set()
            metadata.start()
        for each in running:
            each.result(hang_s())
    with at_work(PARTITIONS) as threads:
        reading = [threads.submit(read, shuffle, p) for p in range(PARTITIONS)]
        metadata.kill()
        metadata.start()
        numbers = [n for each in reading for n in each.result(hang_s())]
    assert Counter(numbers) == Counter(range(maps * ROWS))
    with mrflight.connect(metadata.location) as client:
        (state,) = client.status().shuffles
        assert (state.maps, state.rows) == (maps, maps * ROWS)
        assert shuffle.health().lost_maps == []
    shuffle.drop()


@pytest.mark.slow
@pytest.mark.parametrize("step", METADATA_STEPS)
@pytest.mark.parametrize(("what", "number"), EVENTS.items())
def test_a_kill_at_a_step(what: str, number: int, step: str, tmp_path: Path) -> None:
    """The client asks again, whether the server had kept the event or not."""
    port, journal = str(fixed_port()), tmp_path / "journal"
    with (
        servers("--port", port, journal=journal, kills_itself=(step, str(number))) as metadata,
        at_work(1) as threads,
    ):
        with mrflight.connect(metadata.location) as client:
            shuffle = client.create_shuffle("clicks", PARTITIONS)
        working = threads.submit(_use_shuffle, shuffle)
        metadata.await_kill()
        assert not working.done(), what
        metadata.start()
        assert working.result(hang_s()) == list(range(2 * ROWS))
        with mrflight.connect(metadata.location) as client:
            assert client.status().shuffles == []


def _use_shuffle(shuffle: mrflight.Shuffle) -> list[int]:
    """Write, read and drop it; return what was read."""
    for map_id in range(2):
        write(shuffle, map_id)
    found = read_all(shuffle)
    shuffle.drop()
    return found


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_write_and_of_its_commit(metadata: Server) -> None:
    with mrflight.connect(metadata.location) as client:
        shuffle = client.create_shuffle("clicks", PARTITIONS)
    write(shuffle, 0)
    out = shuffle.writer(1, key=["k"])
    twin = shuffle.writer(1, attempt=1, key=["k"])
    with while_down(metadata, lambda: write(shuffle, 2)):
        out.write(batch(1))  # the data servers know the shuffle
        twin.write(batch(1))
    with while_down(metadata, out.commit):
        pass
    with refused(AttemptSupersededError):
        twin.commit()
    out.commit()  # a second time, with nothing to do
    twin.abort()
    assert read_all(shuffle) == list(range(3 * ROWS))
    shuffle.drop()


@pytest.mark.slow
def test_a_kill_between_two_shuffles(metadata: Server, tmp_path: Path) -> None:
    with mrflight.connect(metadata.location) as client:
        dropped = client.create_shuffle("dropped", PARTITIONS)
        write(dropped, 0)
        dropped.drop()
        first = client.create_shuffle("first", PARTITIONS)
        for map_id in range(3):
            write(first, map_id)
        before = (client.status().shuffles, first.layout())
    for _ in range(2):
        metadata.kill()
        metadata.start()
    with mrflight.connect(metadata.location) as client:
        assert (client.status().shuffles, first.layout()) == before
        assert [server.partitions for server in client.status().servers] == [2, 2]
        with pytest.raises(ShuffleNotFoundError):
            client.open_shuffle("dropped")
        second = client.create_shuffle("second", PARTITIONS)
        write(second, 0)
        assert read_all(first) == list(range(3 * ROWS))
        assert read_all(second) == list(range(ROWS))
        for shuffle in (first, second):
            shuffle.drop()
        assert client.status().shuffles == []


@pytest.mark.slow
def test_a_kill_of_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with servers("--socket", str(path), journal=tmp_path / "journal") as metadata:
        with mrflight.connect(metadata.location) as client:
            shuffle = client.create_shuffle("clicks", PARTITIONS)
        write(shuffle, 0)
        with while_down(metadata, lambda: write(shuffle, 1)):
            path.unlink()
        assert read_all(shuffle) == list(range(2 * ROWS))
        shuffle.drop()


# Journals that are of no use


def refusal(journal: Path) -> str:
    """Return the message of a server that does not start with a journal."""
    command = [sys.executable, "-m", "mrflight.servers.metadata", "--port", "0"]
    ended = subprocess.run(
        [*command, "--journal", str(journal)],
        capture_output=True,
        text=True,
        check=False,
        timeout=hang_s(),
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_damaged_journal_is_refused_as_it_is(metadata: Server, tmp_path: Path) -> None:
    with mrflight.connect(metadata.location) as client:
        shuffle = client.create_shuffle("clicks", PARTITIONS)
    write(shuffle, 0)
    metadata.kill()
    log = tmp_path / "journal-wal"
    whole = log.read_bytes()
    data = bytearray(whole)
    data[60] ^= 1  # in its first event, that a data server has joined
    log.write_bytes(data)
    reason = refusal(tmp_path / "journal")
    assert reason.startswith(f"mrflight: the journal {tmp_path}/journal is damaged: ")
    assert "put an undamaged copy in its place" in reason
    assert log.read_bytes() == data
    log.write_bytes(whole)
    metadata.start()
    shuffle.drop()


@pytest.mark.slow
def test_a_journal_that_another_server_has_is_refused(metadata: Server, tmp_path: Path) -> None:
    reason = refusal(tmp_path / "journal")
    assert reason.startswith(f"mrflight: the journal {tmp_path}/journal belongs to another server")


@pytest.mark.slow
def test_a_file_that_is_no_journal_is_refused_as_it_is(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("k,n\n1,2\n" * 10)
    assert refusal(table) == f"mrflight: {table} is not a journal of mrflight; name another file"
    assert table.read_text() == "k,n\n1,2\n" * 10


@pytest.mark.slow
def test_a_journal_where_none_can_be_is_refused(tmp_path: Path) -> None:
    assert "cannot be used" in refusal(tmp_path / "no" / "folder" / "journal")
