"""Blocks in shared memory between real processes: the same promises as over Flight."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import flight

import mrflight
from mrflight.config.transport import Transport
from mrflight.errors import ServerUnavailableError, ShuffleNotFoundError
from mrflight.shuffle.client.writer import ShuffleWriter
from tests.support.clusters.spilling_server import Spilling, plain_rows, spilling
from tests.support.commands.scripts import running_script
from tests.support.suite.waiting import await_that

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

MIB = 2**20
LARGE = 512 * MIB
SMALL = 4 * MIB
TRANSPORTS: list[Transport] = ["auto", "shared", "flight"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spilling]:
    with spilling(LARGE, tmp_path_factory.mktemp("spill"), "shared") as server:
        yield server


@pytest.fixture
def server(running: Spilling) -> Iterator[Spilling]:
    """A server that several tests share, and that holds nothing before and after each."""
    yield running
    for shuffle in running.cluster.status().shuffles:  # of a test that failed
        running.cluster.open_shuffle(shuffle.id).drop()
    running.await_only_the_proof()


def over(shuffle: mrflight.Shuffle, transport: Transport) -> mrflight.Shuffle:
    """Return the shuffle as a process sees it that uses this transport."""
    return replace(shuffle, client=replace(shuffle.client, transport=transport))


def batch(map_id: int, rows: int) -> pa.RecordBatch:
    """Return rows of 16 bytes, which blocks do not encode."""
    random = np.random.default_rng([map_id, rows])
    key, n = random.integers(-(2**62), 2**62, (2, rows))
    return pa.record_batch({"key": key, "n": n})


def write(
    shuffle: mrflight.Shuffle, map_id: int, *batches: pa.RecordBatch, attempt: int = 0
) -> None:
    with shuffle.writer(map_id, attempt, key=["key"]) as out:
        for each in batches:
            out.write(each)


def put_plainly(server: Spilling, name: str, map_id: int, rows: pa.RecordBatch) -> None:
    """Put rows into partition 0 as a client does that knows only Flight, and commit them."""
    with flight.FlightClient(server.location) as client:
        descriptor = flight.FlightDescriptor.for_path(name, "0", str(map_id), "0")
        writer, reader = client.do_put(descriptor, rows.schema)
        writer.write_batch(rows)
        writer.done_writing()
        reader.read()
        writer.close()
    schema = base64.b64encode(rows.schema.serialize()).decode()
    commit = {"id": name, "map_id": map_id, "attempt": 0, "schema": schema}
    commit |= {"rows": [rows.num_rows], "size_bytes": [rows.nbytes]}
    with flight.FlightClient(server.cluster.location) as metadata:
        list(metadata.do_action(("commit_map", json.dumps(commit).encode())))


@pytest.mark.parametrize("memory", [LARGE, SMALL], ids=["in memory", "spilled"])
def test_a_partition_has_blocks_of_all_kinds_and_is_read_in_all_ways(
    tmp_path: Path, memory: int
) -> None:
    """Large blocks, which stay in the segments of their writer, and small ones, which do not."""
    rows = [batch(number, size) for number, size in enumerate([200_000, 300, 200_000, 300, 50_000])]
    with spilling(memory, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("kinds", partitions=1)
        for map_id, transport in enumerate(("shared", "shared", "flight", "flight")):
            write(over(shuffle, transport), map_id, rows[map_id])  # type: ignore[arg-type]
        put_plainly(server, "kinds", 4, rows[4])
        assert (server.stats().spilled_blocks > 0) == (memory == SMALL)
        expected = pa.Table.from_batches(rows)
        for transport in TRANSPORTS:
            assert pa.Table.from_batches(over(shuffle, transport).reader(0)) == expected
        assert plain_rows(server.cluster, "kinds", 0) == expected
        shuffle.drop()
        server.await_only_the_proof()


@pytest.mark.slow
def test_what_is_passed_counts_once_and_within_the_budget(tmp_path: Path) -> None:
    """Five times the budget in blocks that the server keeps as they lie, or spills."""
    budget = 32 * MIB
    with spilling(budget, tmp_path, "shared") as server:
        process = psutil.Process(server.process.pid)
        shuffle = server.cluster.create_shuffle("budget", partitions=8)
        before = process.memory_full_info().pss
        rows = batch(0, 100_000)
        most = 0
        with shuffle.writer(0, key=["key"], buffer_bytes=16 * MIB) as out:
            for _ in range(100):
                out.write(rows)
                most = max(most, process.memory_full_info().pss - before, sum(server.segments()))
        stats = server.stats()
        assert stats.size_bytes > 4 * budget
        assert stats.memory_bytes <= budget
        assert stats.spilled_bytes >= stats.size_bytes - budget
        assert most < budget + 60 * MIB
        assert sum(server.segments()) <= stats.memory_bytes + MIB
        assert sum(each.num_rows for p in range(8) for each in shuffle.reader(p)) == 100 * 100_000
        shuffle.drop()


def test_a_page_that_a_reader_maps_too_counts_once(server: Spilling) -> None:
    """The system divides the bytes of a segment between the processes that map it."""
    shuffle = server.cluster.create_shuffle("once", partitions=4)
    rows = batch(0, MIB)  # 16 MiB
    write(shuffle, 0, rows, rows, rows, rows)
    processes = [psutil.Process(server.process.pid), psutil.Process()]
    held = [each for p in range(4) for each in shuffle.reader(p)]
    assert all(each["n"].to_numpy().max() > 0 for each in held)  # so that the pages are there
    mapped = [mapped_segments(each) for each in processes]
    stored = sum(server.segments())
    assert stored > 48 * MIB
    assert all(rss > stored / 2 for rss, _ in mapped), mapped
    assert sum(pss for _, pss in mapped) <= 1.1 * stored, mapped
    assert sum(each.num_rows for each in held) == 4 * MIB
    shuffle.drop()


def mapped_segments(process: psutil.Process) -> tuple[int, int]:
    """Return the bytes of segments that a process maps: all of them, and its part of them."""
    maps = [each for each in process.memory_maps() if each.path.startswith("/memfd:mrflight")]
    return sum(each.rss for each in maps), sum(each.pss for each in maps)


def digest(table: pa.Table) -> str:
    found = hashlib.sha256()
    for column in table.columns:
        for chunk in column.chunks:
            found.update(chunk.buffers()[1])
    return found.hexdigest()


@pytest.mark.slow
def test_a_reader_that_still_maps_a_dropped_partition_sees_the_same_bytes(tmp_path: Path) -> None:
    with spilling(LARGE, tmp_path, "shared") as server:
        shuffle = server.cluster.create_shuffle("dropped", partitions=2)
        write(shuffle, 0, batch(0, 200_000), *(batch(1, 300) for _ in range(50)))
        held = [pa.Table.from_batches(shuffle.reader(p)) for p in range(2)]
        before = [digest(table) for table in held]
        shuffle.drop()
        server.await_only_the_proof()
        other = server.cluster.create_shuffle("other", partitions=2)
        write(other, 0, batch(2, 400_000), *(batch(3, 300) for _ in range(50)))
        assert [digest(table) for table in held] == before
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        assert [digest(table) for table in held] == before
        with pytest.raises(ServerUnavailableError) as gone:
            list(other.reader(0))
        assert gone.value.retryable
        del held
        gc.collect()
        assert "memfd:mrflight" not in Path("/proc/self/maps").read_text()
        server.process.returncode = 0


def open_files(server: Spilling) -> int:
    """Return how many files the server has open, without segments."""
    return len(os.listdir(f"/proc/{server.process.pid}/fd")) - len(server.segments())


def await_files_of(server: Spilling, before: int) -> None:
    """Wait until channels and connections of a process that is gone are closed.

    gRPC may keep two files for others.
    """
    await_that(lambda: open_files(server) <= before + 2, "the channels to be closed")


WRITER = """
import pickle, sys
import numpy as np
import pyarrow as pa
shuffle = pickle.loads(bytes.fromhex(sys.argv[1]))
out = shuffle.writer(0, 0, key=["key"], buffer_bytes=2**20, writer_id="w1")
for part in range(20):
    rows = np.random.default_rng(part).integers(-2**62, 2**62, 100_000)
    out.write(pa.record_batch({"key": rows, "n": range(100_000)}))
print("half", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_half_way_leaves_no_rows_and_no_memory(server: Spilling) -> None:
    shuffle = server.cluster.create_shuffle("half", partitions=4)
    files = open_files(server)
    with running_script(WRITER, pickle.dumps(shuffle).hex()) as script:
        assert script.read_line() == "half"
        await_that(lambda: server.stats().blocks > 10, "blocks of the writer")
        script.process.send_signal(signal.SIGKILL)
        script.process.wait()
    await_files_of(server, files)
    assert [each for p in range(4) for each in shuffle.reader(p, maps=0)] == []
    rows = batch(0, 1_000)
    with shuffle.writer(0, 1, key=["key"], writer_id="w1") as out:
        out.write(rows)
    shuffle.drop_stale_attempts(0, 2, "w1")
    assert server.stats().blocks == 4
    assert sum(each.num_rows for p in range(4) for each in shuffle.reader(p)) == 1_000
    shuffle.drop()
    server.await_only_the_proof()


READER = """
import pickle, sys
shuffle = pickle.loads(bytes.fromhex(sys.argv[1]))
held = list(shuffle.reader(0))
reading = shuffle.reader(0)
held.append(next(reading))
print(sum(each.num_rows for each in held), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_reader_that_is_killed_leaves_nothing(server: Spilling) -> None:
    shuffle = server.cluster.create_shuffle("read", partitions=1)
    files = open_files(server)
    write(shuffle, 0, *(batch(number, 100_000) for number in range(40)))
    with running_script(READER, pickle.dumps(shuffle).hex()) as script:
        assert int(script.read_line()) > 40 * 100_000
        script.process.send_signal(signal.SIGKILL)
        script.process.wait()
    shuffle.drop()
    server.await_only_the_proof()
    await_files_of(server, files)
    assert not any("mrflight" in name for name in os.listdir("/dev/shm"))


@pytest.mark.slow
def test_a_server_with_few_open_files_keeps_blocks_in_memory_of_its_own(tmp_path: Path) -> None:
    """Half of its files are segments at most, and nobody sees an error."""
    with spilling(LARGE, tmp_path, "shared") as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (100, 100))
        shuffle = server.cluster.create_shuffle("few", partitions=1)
        rows = [batch(number, 10_000) for number in range(120)]  # 160 kB each
        for number, each in enumerate(rows):
            write(shuffle, number, each)
        assert server.stats().blocks == 120
        assert 40 <= len(server.segments()) <= 52
        expected = pa.Table.from_batches(rows)
        for transport in TRANSPORTS:
            assert pa.Table.from_batches(over(shuffle, transport).reader(0)) == expected
        shuffle.drop()
        server.await_only_the_proof()


HOLDER = """
import pickle, resource, sys
shuffle = pickle.loads(bytes.fromhex(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
held = list(shuffle.reader(0))
print(len(held), sum(each.num_rows for each in held), flush=True)
"""


@pytest.mark.slow
def test_a_reader_with_few_open_files_holds_all_rows(server: Spilling) -> None:
    """What it has mapped needs no open file."""
    shuffle = server.cluster.create_shuffle("few", partitions=1)
    for number in range(100):
        write(shuffle, number, batch(number, 10_000))
    with running_script(HOLDER, pickle.dumps(shuffle).hex()) as script:
        assert script.read_line() == "100 1000000"
    shuffle.drop()


def write_blocks(out: ShuffleWriter) -> None:
    """Write two blocks twenty times."""
    for number in range(20):
        out.write(batch(number, 100_000))
        out._flush()


def test_a_writer_of_a_dropped_shuffle_does_not_wait(server: Spilling) -> None:
    """Nobody receives its segments, of which its channel holds few."""
    shuffle = server.cluster.create_shuffle("gone", partitions=2)
    out = shuffle.writer(0, key=["key"])
    shuffle.drop()
    with pytest.raises(ShuffleNotFoundError), out:
        write_blocks(out)
