"""Tests of the flaky transport, with real sockets and a real data server."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import ServerUnavailableError
from tests.support.clusters.cluster import data_server, standing_cluster
from tests.support.commands.threads import await_thread
from tests.support.faults.transport import FlakyTransport, TransportCounts
from tests.support.suite.waiting import await_that, hang_s


class Echo:
    """A server that sends back what it receives, over TCP or a Unix socket."""

    def __init__(self, folder: Path, kind: str) -> None:
        if kind == "tcp":
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.location = f"grpc+tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(folder / "echo"))
            self._listener.listen()
            self.location = f"grpc+unix://{folder}/echo"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            await_thread(thread)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=[connection])
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            while chunk := connection.recv(1 << 16):
                connection.sendall(chunk)


def sockets_and_threads() -> set[str | int | None]:
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    names = []
    for link in links:
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it
            names.append(os.readlink(link))
    threads = {thread.ident for thread in threading.enumerate()}
    return {name for name in names if name.startswith("socket:")} | threads


@pytest.fixture(params=["tcp", "unix"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def transport(tmp_path: Path, kind: str) -> Iterator[FlakyTransport]:
    """Yield a transport to an echo server, and check that no thread, socket or file is left."""
    before = sockets_and_threads()
    echo = Echo(tmp_path, kind)
    at = "grpc+tcp://127.0.0.1:0" if kind == "tcp" else f"grpc+unix://{tmp_path}/proxy"
    with FlakyTransport(echo.location, at) as proxy:
        yield proxy
    echo.close()
    # Other threads of this process may have some for a moment.
    await_that(lambda: sockets_and_threads() <= before, "all sockets and threads to be gone")
    assert not (tmp_path / "proxy").exists()


@contextlib.contextmanager
def connected(transport: FlakyTransport) -> Iterator[socket.socket]:
    scheme, _, where = transport.location.partition("://")
    with socket.socket(socket.AF_UNIX if scheme == "grpc+unix" else socket.AF_INET) as client:
        client.settimeout(hang_s())
        host, _, port = where.rpartition(":")
        client.connect((host, int(port)) if host else where)
        yield client


def receive(client: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = client.recv(min(size, 1 << 16))
        assert chunk, "the connection ended early"
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def exchange(client: socket.socket, content: bytes) -> bytes:
    """Send ``content`` in another thread, and return as many bytes of what comes back."""
    sending = threading.Thread(target=client.sendall, args=[content])
    sending.start()
    back = receive(client, len(content))
    await_thread(sending)
    return back


def fails(client: socket.socket) -> bool:
    """Return whether a connection was closed or reset."""
    try:
        client.sendall(b"x")
        return client.recv(1) == b""
    except ConnectionError:
        return True


def is_refused(transport: FlakyTransport) -> bool:
    try:
        with connected(transport) as client:
            return fails(client)
    except ConnectionError:
        return True


def test_all_bytes_are_forwarded_in_order_and_counted(transport: FlakyTransport) -> None:
    content = os.urandom(5_000_000)
    with connected(transport) as one, connected(transport) as two:
        assert exchange(one, content) == content
        assert exchange(two, content[::-1]) == content[::-1]
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""  # the end is forwarded in both directions
        await_that(lambda: transport.open_connections() == 1, "connections to close")
    await_that(lambda: transport.open_connections() == 0, "connections to close")
    assert transport.counts() == TransportCounts(connections=2, forwarded_bytes=20_000_000)


def test_a_reader_that_stops_blocks_the_writer(transport: FlakyTransport) -> None:
    with connected(transport) as client:
        client.settimeout(0.0)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 1 << 30:
                sent += client.send(bytes(1 << 20))
        client.settimeout(hang_s())
        assert sent < 1 << 28
        assert receive(client, sent) == bytes(sent)


def test_a_delay_adds_latency_and_keeps_the_throughput(transport: FlakyTransport) -> None:
    with connected(transport) as client:
        assert exchange(client, b"fast") == b"fast"
        transport.delay(0.2)
        began = time.monotonic()
        assert exchange(client, bytes(200_000)) == bytes(200_000)
        assert time.monotonic() - began >= 0.4  # once in each direction
        assert transport.counts().delayed_bytes == 400_000
        transport.heal()
        assert exchange(client, b"fast again") == b"fast again"
    assert transport.counts().delayed_bytes == 400_000


def test_a_throttle_limits_the_bytes_per_second(transport: FlakyTransport) -> None:
    with connected(transport) as client:
        transport.throttle(100_000)
        began = time.monotonic()
        assert exchange(client, bytes(50_000)) == bytes(50_000)
        assert time.monotonic() - began >= 0.45
        assert transport.counts().throttled_bytes == 100_000


def test_a_stall_holds_all_bytes_until_it_is_healed(transport: FlakyTransport) -> None:
    with connected(transport) as client:
        transport.stall()
        client.sendall(b"held")
        await_that(lambda: transport.counts().stalled_bytes == 4, "4 stalled bytes")
        with connected(transport) as late:
            late.sendall(b"back")
            await_that(lambda: transport.counts().stalled_bytes == 8, "8 stalled bytes")
            assert transport.counts() == TransportCounts(connections=2, stalled_bytes=8)
            transport.heal()
            assert receive(client, 4) == b"held"
            assert receive(late, 4) == b"back"


def test_a_cut_ends_every_connection_and_new_ones_are_accepted(
    transport: FlakyTransport, kind: str
) -> None:
    with connected(transport) as one, connected(transport) as two:
        for client in (one, two):
            exchange(client, b"here")
        assert transport.cut() == 2
        assert transport.open_connections() == 0
        if kind == "tcp":
            with pytest.raises(ConnectionResetError):
                one.recv(1)
        assert all(fails(client) for client in (one, two))
    with connected(transport) as again:
        assert exchange(again, b"again") == b"again"
    assert transport.counts().cut_connections == 2
    assert transport.cut() in (0, 1)  # the last connection may be closing


def test_a_healed_transport_accepts_connections_again(transport: FlakyTransport) -> None:
    with connected(transport) as before:
        exchange(before, b"here")
        transport.refuse()
        exchange(before, b"still here")
        assert is_refused(transport)
        assert transport.cut_off() == 1
        assert fails(before)
        assert transport.counts().refused_connections == 1
    transport.heal()
    with connected(transport) as again:
        assert exchange(again, b"again") == b"again"


@pytest.mark.parametrize("direction", ["to server", "from server"])
@pytest.mark.parametrize("byte", [0, 4, 70_000])
def test_one_bit_of_one_byte_is_flipped(
    transport: FlakyTransport, direction: str, byte: int
) -> None:
    content = bytes(100_000)
    with connected(transport) as client:
        exchange(client, b"before")
        transport.flip_bit(byte, "to server" if direction == "to server" else "from server")
        expected = content[:byte] + b"\1" + content[byte + 1 :]
        assert exchange(client, content) == expected
        assert transport.counts().flipped_bits == 1
        assert exchange(client, content) == content
    assert transport.counts().flipped_bits == 1


def test_one_bit_of_the_first_match_is_flipped(transport: FlakyTransport) -> None:
    with connected(transport) as client:
        transport.flip_bit_of(b"one", "to server")
        assert exchange(client, b"none yet: on, e") == b"none yet: on, e".replace(b"one", b"ooe", 1)
        assert exchange(client, b"one") == b"one"
        transport.flip_bit_of(b"one", "from server")
        transport.heal()
        assert exchange(client, b"one") == b"one"
    assert transport.counts().flipped_bits == 1


def test_an_unreachable_server_is_counted(tmp_path: Path, kind: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # without listening
        tcp = f"grpc+tcp://127.0.0.1:{bound.getsockname()[1]}"
        target = tcp if kind == "tcp" else f"grpc+unix://{tmp_path}/missing"
        with FlakyTransport(target) as proxy:
            assert is_refused(proxy)
            await_that(lambda: proxy.counts().unreachable == 1, "a failed connection")


def test_a_closed_transport_refuses_faults(tmp_path: Path) -> None:
    proxy = FlakyTransport("grpc+tcp://127.0.0.1:1")
    proxy.close()
    proxy.close()
    with pytest.raises(ValueError, match="is closed"):
        proxy.cut()
    with pytest.raises(ValueError, match="neither"):
        FlakyTransport("http://127.0.0.1:1", "127.0.0.1")


def rows_of(shuffle: mrflight.Shuffle) -> list[int]:
    return [n for batch in shuffle.reader(0) for n in batch["n"].to_pylist()]


def test_clients_reach_a_data_server_through_the_proxy_that_it_advertises(tmp_path: Path) -> None:
    large = range(2**40, 2**40 + 300_000)  # small numbers are encoded in fewer bytes
    numbers = pa.record_batch({"n": pa.array(large)})
    with (
        FlakyTransport(f"grpc+unix://{tmp_path}/data") as proxy,
        standing_cluster(data_servers=0) as standing,
        data_server(
            standing.metadata, "--socket", tmp_path / "data", "--advertise", proxy.location
        ) as (server_process, ready),
        mrflight.connect(standing.metadata, transport="flight") as cluster,
    ):
        assert ready == f"mrflight data server ready at {proxy.location}\n"
        (server,) = cluster.status().servers
        assert server.location == proxy.location
        shuffle = cluster.create_shuffle("through", partitions=1)
        assert shuffle.layout()[1][0].locations == (proxy.location,)
        with shuffle.writer(map_id=0, key=["n"]) as out:
            out.write(numbers)
        assert proxy.counts().forwarded_bytes > numbers.nbytes
        assert rows_of(shuffle) == list(large)
        proxy.cut_off()
        with pytest.raises(ServerUnavailableError, match=re.escape(proxy.location)):
            rows_of(shuffle)
        assert proxy.counts().refused_connections > 0
        proxy.heal()
        assert rows_of(shuffle) == list(large)
        shuffle.drop()
    assert server_process.returncode == 0


@pytest.mark.parametrize("location", ["127.0.0.1:5005", "grpc+tcp://host", "grpc+unix://relative"])
def test_an_invalid_location_is_not_advertised(location: str) -> None:
    command = [sys.executable, "-m", "mrflight.servers.metadata", "--advertise", location]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--advertise: '{location}' is not a location such as grpc+tls://" in done.stderr
