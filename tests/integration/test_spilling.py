"""Data servers that spill: real processes, real files, and a disk that fills up."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import CorruptBlockError, ShuffleNotFoundError, SpillError
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    encode_block,
    ipc_options,
    to_wire,
)
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.tickets import BlockStream
from tests.support.clusters.cluster import Server, data_server, standing_cluster
from tests.support.clusters.spilling_server import Spilling, plain_rows, spilling
from tests.support.commands.process_memory import flip_in_memory
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_end

MIB = 2**20
LARGE = 512 * MIB
SMALL = 4 * MIB


def batch(map_id: int, part: int, rows: int = 50_000) -> pa.RecordBatch:
    random = np.random.default_rng([map_id, part])
    number = np.arange(rows) + (map_id * 100 + part) * rows
    return pa.record_batch({"key": random.integers(0, 2**60, rows), "n": number})


def write(shuffle: mrflight.Shuffle, maps: int = 4, parts: int = 8) -> None:
    """Return the rows of every map: 800 kB in each partition."""
    for map_id in range(maps):
        with shuffle.writer(map_id, key=["key"]) as out:
            for part in range(parts):
                out.write(batch(map_id, part))


@pytest.mark.slow
def test_rows_are_the_same_with_and_without_spilling(tmp_path: Path) -> None:
    found = {}
    for memory in (SMALL, LARGE):
        with spilling(memory, tmp_path) as server:
            shuffle = server.cluster.create_shuffle("same", partitions=5)
            write(shuffle)
            stats = server.stats()
            assert (stats.spilled_bytes >= stats.size_bytes - SMALL) == (memory == SMALL)
            assert stats.memory_bytes <= memory
            assert sum(path.stat().st_size for path in server.files()) >= stats.spilled_bytes
            blocks = [pa.Table.from_batches(shuffle.reader(p)) for p in range(5)]
            plain = [plain_rows(server.cluster, "same", p) for p in range(5)]
            assert blocks == plain
            found[memory] = blocks
            shuffle.drop()
            assert server.files() == []
            assert server.stats() == ServerStats(0, 0, 0)
    assert found[SMALL] == found[LARGE]
    numbers = [np.asarray(table["n"]) for table in found[SMALL]]
    for of_partition in numbers:
        assert np.all(np.diff(of_partition // 5_000_000) >= 0), "maps in their order"
    expected = [batch(map_id, part)["n"].to_numpy() for map_id in range(4) for part in range(8)]
    assert np.array_equal(np.sort(np.concatenate(numbers)), np.concatenate(expected))


def test_batches_of_a_plain_client_are_spilled_too(tmp_path: Path) -> None:
    with spilling(SMALL, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("plain", partitions=1)
        with flight.FlightClient(server.location) as client:
            descriptor = flight.FlightDescriptor.for_path("plain", "0", "0", "0")
            writer, reader = client.do_put(descriptor, batch(0, 0).schema)
            for part in range(20):
                writer.write_batch(batch(0, part))
            writer.done_writing()
            assert b'"blocks":20' in reader.read().to_pybytes()
            writer.close()
        stats = server.stats()
        assert stats.blocks == 20
        assert stats.spilled_bytes > 10 * 800_000
        shuffle.drop()


def resident_peak(process: Server) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kib) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_holds_little_more_than_its_budget(tmp_path: Path) -> None:
    """There are enough partitions for blocks of 20 KiB, with four times the budget together."""
    with spilling(32 * MIB, tmp_path, is_warm=False) as server:
        shuffle = server.cluster.create_shuffle("memory", partitions=2_000)
        before = resident_peak(server.process)
        write(shuffle, maps=2, parts=125)
        stats = server.stats()
        assert stats.size_bytes > 4 * 32 * MIB
        assert stats.memory_bytes <= 32 * MIB
        assert resident_peak(server.process) - before < (32 + 70) * MIB
        assert sum(piece.num_rows for piece in shuffle.reader(77)) > 5_000
        shuffle.drop()


def test_a_server_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "theirs.blocks").write_text("a file of a user")
    options = ("--memory", SMALL, "--spill-dir", tmp_path)
    with standing_cluster(data_servers=0) as standing:
        dying = data_server(standing.metadata, *options)
        living = data_server(standing.metadata, *options)
        with (
            mrflight.connect(standing.metadata) as cluster,
            dying as (dead, _),
            living as (lives, _),
        ):
            shuffle = cluster.create_shuffle("both", partitions=4)
            write(shuffle)
            folders = set(tmp_path.glob("mrflight-spill-*"))
            assert len(folders) == 2
            dead.send_signal(signal.SIGKILL)
            dead.wait()
            with data_server(standing.metadata, *options):
                left = set(tmp_path.glob("mrflight-spill-*"))
            assert len(left) == 1
            assert left < folders
            shuffle.drop()  # or the server would wait for another one to move it to
            lives.terminate()
            assert await_end(lives, "the server that lives") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.blocks"]


def test_a_bit_that_changed_on_disk_is_reported_to_both_kinds_of_readers(tmp_path: Path) -> None:
    with spilling(SMALL, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("damaged", partitions=1)
        write(shuffle)
        (path,) = server.files()
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            (byte,) = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        assert_corrupt(server, shuffle)
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(SpillError, match="too early"):
            list(shuffle.reader(0))
        shuffle.drop()


def assert_corrupt(server: Spilling, shuffle: mrflight.Shuffle) -> None:
    """Check that our own reader and a plain client get an error for partition 0."""
    with pytest.raises(CorruptBlockError, match="were written; fetch it from a replica"):
        list(shuffle.reader(0))
    with pytest.raises(flight.FlightServerError, match="were written") as caught:
        plain_rows(server.cluster, shuffle.id, 0)
    assert b'"CorruptBlockError"' in caught.value.extra_info


@pytest.mark.skipif(sys.platform != "linux", reason="writes to /proc")
@pytest.mark.parametrize("rows", [1_000, 100_000], ids=["in shared pages", "as it lies"])
def test_a_bit_that_changes_in_memory_is_reported_to_both_kinds_of_readers(
    tmp_path: Path, rows: int
) -> None:
    written, changed = b"what is 0 change", b"what is 1 change"
    with spilling(LARGE, tmp_path, transport="flight") as server:  # nobody can change sealed memory
        shuffle = server.cluster.create_shuffle("memory", partitions=1)
        with shuffle.writer(0, key=["key"]) as out:
            column = pa.array([bytes(16)] * (rows - 1) + [written], pa.binary(16))
            out.write(pa.record_batch({"key": column}))
        before = pa.Table.from_batches(shuffle.reader(0))
        assert written in before["key"].to_pylist()
        assert flip_in_memory(psutil.Process(server.process.pid), written) >= 1
        assert_corrupt(server, shuffle)
        assert flip_in_memory(psutil.Process(server.process.pid), changed) >= 1
        assert pa.Table.from_batches(shuffle.reader(0)) == before
        shuffle.drop()


def put_tagged(location: str, shuffle: str, block: Block, hashes: list[int]) -> None:
    """Put a block once for each of these hashes; raises the server's error."""
    descriptor = flight.FlightDescriptor.for_command(BlockStream(shuffle, 0, 0).encode())
    with flight.FlightClient(location) as client:
        writer, reader = client.do_put(descriptor, WIRE_SCHEMA)
        for xxh3 in hashes:
            tag = BlockTag(0, block.rows, xxh3)
            writer.write_with_metadata(to_wire(block), tag.encode())
        writer.done_writing()
        reader.read()
        writer.close()


def test_a_block_that_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    block = encode_block([batch(0, 0)], ipc_options("none"))
    with spilling(LARGE, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("way", partitions=1)
        with pytest.raises(CorruptBlockError, match="run its map again"), from_flight("it", "put"):
            put_tagged(server.location, "way", block, [block.xxh3, block.xxh3 ^ 1])
        assert server.stats().blocks == 1, "the one before it, of an attempt that cannot commit"
        shuffle.drop()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
def test_a_full_disk_fails_the_writer_and_a_later_one_succeeds(tmp_path: Path) -> None:
    with spilling(SMALL, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("full", partitions=2)
        unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (MIB, unlimited[1]))
        with pytest.raises(SpillError, match="File too large") as full:
            write(shuffle, maps=1, parts=20)
        assert full.value.retryable
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        with shuffle.writer(0, attempt=1, key=["key"]) as out:
            for part in range(20):
                out.write(batch(0, part))
        rows = sum(piece.num_rows for p in range(2) for piece in shuffle.reader(p))
        assert rows == 20 * 50_000
        shuffle.drop()


@pytest.mark.slow
def test_a_reader_learns_that_its_shuffle_was_dropped(tmp_path: Path) -> None:
    with spilling(SMALL, tmp_path) as server:
        shuffle = server.cluster.create_shuffle("dropped", partitions=1)
        write(shuffle, maps=20, parts=8)  # 128 MB are more than a connection buffers
        reading = shuffle.reader(0)
        next(reading)
        shuffle.drop()
        with refused(ShuffleNotFoundError):
            list(reading)
        assert server.files() == []
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 60


@pytest.mark.slow
def test_a_spill_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [
        sys.executable,
        "-m",
        "mrflight.servers.data",
        "--metadata",
        "grpc+tcp://127.0.0.1:1",
    ]
    done = subprocess.run(
        [*command, "--spill-dir", str(tmp_path / "file" / "below")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--spill-dir" in done.stderr
    assert "Not a directory" in done.stderr
