"""Keepalive calls go over connections in use, and over no others."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import flight

from mrflight.shuffle.wire import connections, idle_connections
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.keepalive import Keepalive
from mrflight.shuffle.wire.protocol import MetadataAction
from tests.support.commands.threads import await_thread
from tests.support.suite.waiting import await_that, hang_s

EVERY_S = 0.01
FORKS = 50
TCP_USER_TIMEOUT = 18
"""The number on Linux; Python has the name only if it was built with it."""


class Counting(flight.FlightServerBase):  # type: ignore[misc]
    """Counts keepalive calls."""

    calls = 0

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        assert action.type == MetadataAction.KEEPALIVE
        self.calls += 1
        return [b"{}"]


@pytest.fixture
def server() -> Iterator[Counting]:
    with Counting("grpc+tcp://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def keepalive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keepalive]:
    """A fast keepalive instead of that of all connections."""
    with Keepalive(EVERY_S) as keepalive:
        monkeypatch.setattr(connections, "_keepalive", keepalive)
        yield keepalive


def location(server: Counting) -> str:
    return f"grpc+tcp://127.0.0.1:{server.port}"


def settles(server: Counting, other: Counting) -> bool:
    """Return whether a server gets no calls while another one gets five."""
    before, goal = server.calls, other.calls + 5
    await_that(lambda: other.calls >= goal, "the other one is called")
    return server.calls == before


def test_a_connection_gets_calls_until_it_is_closed(server: Counting, keepalive: Keepalive) -> None:
    with Counting("grpc+tcp://127.0.0.1:0") as other, Connections() as used, Connections() as ours:
        used.to(location(other))
        for let_go in (ours.close, ours.abandon, lambda: ours.forget(location(server))):
            ours.to(location(server))
            goal = server.calls + 3
            await_that(lambda goal=goal: server.calls >= goal, "calls")  # type: ignore[misc]
            let_go()
            goal = other.calls + 1  # by then a call that was under way has ended
            await_that(lambda goal=goal: other.calls >= goal, "calls")  # type: ignore[misc]
            assert settles(server, other)


def test_an_idle_connection_gets_no_calls(
    server: Counting, keepalive: Keepalive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_connections, "kept", {})
    with Counting("grpc+tcp://127.0.0.1:0") as other, Connections() as used:
        used.to(location(other))
        with Connections() as ours:
            client = ours.to(location(server))
        goal = other.calls + 1
        await_that(lambda: other.calls >= goal, "calls")
        assert settles(server, other)
        with Connections() as ours:
            assert ours.to(location(server)) is client
            goal = server.calls + 3
            await_that(lambda: server.calls >= goal, "calls over it again")


def test_a_silent_server_does_not_delay_calls_to_others(
    server: Counting, keepalive: Keepalive
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Connections() as ours:
        ours.to(f"grpc+tcp://127.0.0.1:{silent.getsockname()[1]}")
        ours.to(location(server))
        await_that(lambda: server.calls >= 2, "calls")


def test_a_collected_connection_gets_no_calls(server: Counting, keepalive: Keepalive) -> None:
    with Counting("grpc+tcp://127.0.0.1:0") as other, Connections() as used:
        used.to(location(other))
        forgotten = Connections()
        forgotten.to(location(server))
        await_that(lambda: server.calls >= 3, "calls")
        del forgotten
        goal = other.calls + 2
        await_that(lambda: other.calls >= goal, "calls")
        assert settles(server, other)


def test_a_unix_socket_needs_no_keepalive(keepalive: Keepalive, tmp_path: Any) -> None:
    before = {thread for thread in threading.enumerate() if thread.name == "keepalive"}
    with Counting(f"grpc+unix://{tmp_path}/s") as server, Connections() as ours:
        client = ours.to(f"grpc+unix://{tmp_path}/s")
        assert len(list(client.do_action(MetadataAction.KEEPALIVE.value))) == 1
        assert server.calls == 1
        assert before == {thread for thread in threading.enumerate() if thread.name == "keepalive"}


@pytest.mark.slow
def test_a_forked_process_has_its_own_keepalive(server: Counting, keepalive: Keepalive) -> None:
    with Connections() as ours:
        ours.to(location(server))
        for number in range(FORKS):  # some of them in the middle of a call
            goal = server.calls + 1
            await_that(lambda goal=goal: server.calls >= goal, "calls")  # type: ignore[misc]
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                gc.freeze()  # what other tests have left of gRPC must not be collected here
                telling = Telling(writing)  # gRPC's own clients do not outlive a fork
                keepalive.add(telling)
                signal.pause()
            os.close(writing)
            try:
                assert select.select([reading], [], [], hang_s())[0], f"no call, fork {number}"
                assert os.read(reading, 1) == b"."
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(reading)


class Telling:
    """Takes the place of a client and reports each call."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def do_action(self, action: object, options: object) -> list[object]:
        os.write(self._descriptor, b".")
        return []


class Stopping(Counting):
    """Cancels its calls, as a server that stops does."""

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        self.calls += 1
        raise flight.FlightCancelledError("stopping")

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        self.calls += 1
        raise flight.FlightCancelledError("stopping")


def test_a_server_that_stops_does_not_interrupt_the_client(keepalive: Keepalive) -> None:
    with Stopping("grpc+tcp://127.0.0.1:0") as stopping, Connections() as ours:
        ours.to(location(stopping))
        await_that(
            lambda: stopping.calls >= 5, "calls"
        )  # it would raise KeyboardInterrupt otherwise


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux's /proc")
def test_a_connection_without_acknowledgements_times_out(server: Counting) -> None:
    with Connections() as ours:
        list(ours.to(location(server)).do_action(MetadataAction.KEEPALIVE.value))
        assert timeouts_of_sockets_to(server.port) == {15_000}


def timeouts_of_sockets_to(port: int) -> set[int]:
    """Return TCP_USER_TIMEOUT of this process's connections to a port, in milliseconds."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(descriptor))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.getpeername()[1] == port:
                    found.add(one.getsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT))
        except OSError:
            continue
    return found


class Held:
    """Takes the place of a client, whose calls and whose end take as long as a test likes."""

    def __init__(self) -> None:
        self.called, self.closing = threading.Event(), threading.Event()
        self.answers, self.ends = threading.Event(), threading.Event()
        self.calls, self.closed = 0, 0

    def do_action(self, action: object, options: object) -> list[object]:
        self.calls += 1
        self.called.set()
        assert self.answers.wait(hang_s())
        return []

    def close(self) -> None:
        self.closed += 1
        self.closing.set()
        assert self.ends.wait(hang_s())


def test_a_client_is_not_closed_during_a_call_and_not_called_while_it_is_closed(
    server: Counting, keepalive: Keepalive
) -> None:
    called, closed = Held(), Held()
    keepalive.add(called)
    assert called.called.wait(hang_s())
    keepalive.close_client(called)
    assert called.closed == 0  # its last reference closes it
    called.answers.set()
    closed.answers.set()
    keepalive.add(closed)
    assert closed.called.wait(hang_s())
    before = []

    def close() -> None:
        while not closed.closed:  # but during a call
            keepalive.close_client(closed)
        before.append(closed.calls)

    closer = threading.Thread(target=close)
    closer.start()
    assert closed.closing.wait(hang_s())
    calls = closed.calls
    with Connections() as ours:  # to which the thread cannot get before the client is closed
        ours.to(location(server))
        closed.ends.set()
        await_that(lambda: server.calls >= 3, "calls to others")
    await_thread(closer)
    assert (called.calls, closed.calls, before) == (1, calls, [calls])


CLOSING = """
import sys
import time
from mrflight.shuffle.wire import connections, idle_connections
from mrflight.shuffle.wire.keepalive import Keepalive

connections._keepalive = Keepalive(0.0)  # calls without a pause
for number in range(500):
    with connections.Connections() as connected:
        connected.to(sys.argv[1])
        time.sleep(number % 20 / 10_000)  # so that it is closed at any moment of a call
connections._keepalive.close()
"""


@pytest.mark.slow
def test_connections_can_be_closed_during_a_keepalive_call(server: Counting) -> None:
    """To close a client while a call over it begins would end the process."""
    command = [sys.executable, "-c", CLOSING, location(server)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=hang_s())
    assert done.returncode == 0, done.stderr
    assert server.calls
