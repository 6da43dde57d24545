"""Channels: who may open one, what comes through it, and what a bad peer can do."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from mrflight.system import segment_channel
from mrflight.system.segment_channel import KEY_BYTES, SegmentChannel, SegmentListener, open_channel
from mrflight.system.shared_memory import Segment, SegmentError
from tests.support.commands.another_user import as_another_user, code_of, needs_root
from tests.support.commands.scripts import Script, running_script
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")


@pytest.fixture
def listener() -> Iterator[SegmentListener]:
    with SegmentListener() as listener:
        yield listener


@pytest.fixture
def ends(listener: SegmentListener) -> Iterator[tuple[SegmentChannel, SegmentChannel]]:
    """The two ends of a channel: the client's and the listener's."""
    key, ours = open_channel(listener.name, listener.proof)
    theirs = listener.take(key)
    assert theirs is not None
    with ours, theirs:
        yield ours, theirs


def segment(text: bytes) -> Segment:
    return Segment.of([memoryview(text)])


def read(channel: SegmentChannel) -> bytes:
    return channel.receive(hang_s()).buffer.to_pybytes()  # type: ignore[no-any-return]


def raw(listener: SegmentListener) -> socket.socket:
    """Return a connection to the listener that has sent nothing yet."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(hang_s())
    connection.connect(f"\0{listener.name}")
    return connection


def open_files() -> set[tuple[str, int]]:
    """Return the number and the inode of each open file of this process.

    Threads of other tests may close theirs meanwhile, so compare what is new and not how many.
    """
    gc.collect()
    files = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the folder itself was open while it was read
            files.add((number, os.stat(f"/proc/self/fd/{number}").st_ino))
    return files


def test_segments_come_in_their_order_in_both_directions(
    ends: tuple[SegmentChannel, SegmentChannel],
) -> None:
    ours, theirs = ends
    for number in range(2):  # the least that a socket holds
        assert ours.send(segment(b"to %d" % number), hang_s())
        assert theirs.send(segment(b"from %d" % number), hang_s())
    assert [read(theirs) for _ in range(2)] == [b"to 0", b"to 1"]
    assert [read(ours) for _ in range(2)] == [b"from 0", b"from 1"]


def test_a_channel_is_taken_once_by_its_key(listener: SegmentListener) -> None:
    key, channel = open_channel(listener.name, listener.proof)
    assert listener.take(bytes(KEY_BYTES)) is None
    taken = listener.take(key)
    assert taken is not None
    assert listener.take(key) is None
    taken.close()
    channel.close()


def test_no_channel_without_a_listener_or_with_another_proof(listener: SegmentListener) -> None:
    with pytest.raises(ConnectionRefusedError):
        open_channel(f"{listener.name}-other", listener.proof)
    with pytest.raises(SegmentError, match="not what it says"):
        open_channel(listener.name, "00" * 32)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        open_channel(listener.name, listener.proof)


@needs_root
def test_a_listener_accepts_no_process_of_another_user(listener: SegmentListener) -> None:
    def knock() -> None:
        connection = raw(listener)
        with suppress(BrokenPipeError):
            connection.send(b"k" * KEY_BYTES)
        with suppress(ConnectionResetError):
            assert connection.recvmsg(100, 100)[:2] == (b"", [])
        with pytest.raises(PermissionError, match="is a process of user 0"):
            open_channel(listener.name, listener.proof)

    assert code_of(as_another_user(knock)) == 0
    assert listener.take(b"k" * KEY_BYTES) is None


@needs_root
def test_a_client_accepts_no_listener_of_another_user() -> None:
    """It may have taken the name of one that has ended."""
    name = f"mrflight-test-{os.getpid()}"
    reading, writing = os.pipe()

    def listen() -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"\0{name}")
        listening.listen()
        os.write(writing, b"!")
        listening.accept()[0].recv(1)

    pid = as_another_user(listen)
    os.read(reading, 1)
    with refused(PermissionError):
        open_channel(name, "00" * 32)
    assert code_of(pid) == 0
    os.close(reading)
    os.close(writing)


@needs_root
def test_more_descriptors_on_their_way_than_a_user_may_have_go_another_way() -> None:
    """Linux limits them to the number of files that the sender may open, but not for root."""

    def send() -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        rows, channel, sent = segment(b"rows"), SegmentChannel(left), 0
        while channel.send(rows, hang_s()):
            sent += 1
        assert 200 <= sent <= 202, sent
        assert read(SegmentChannel(right)) == b"rows"
        assert channel.send(rows, hang_s())

    assert code_of(as_another_user(send, files=200)) == 0


SENDER = """
import sys
from mrflight.system.segment_channel import open_channel
from mrflight.system.shared_memory import Segment
key, channel = open_channel(sys.argv[1], sys.argv[2])
for part in (b"first", b"second"):
    channel.send(Segment.of([memoryview(part)]), 10.0)
print(key.hex(), flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_has_sent_is_received_and_then_its_end(
    listener: SegmentListener,
) -> None:
    before = open_files()
    with running_script(SENDER, listener.name, listener.proof) as script:
        channel = listener.take(bytes.fromhex(script.read_line()))
        assert channel is not None
        assert not channel.is_over()
        script.process.send_signal(signal.SIGKILL)
        script.process.wait()
    assert channel.is_over()
    with channel:
        assert [read(channel), read(channel)] == [b"first", b"second"]
        with refused(ConnectionResetError):
            channel.receive(hang_s())
        with pytest.raises(BrokenPipeError):
            channel.send(segment(b"rows"), hang_s())
    assert not open_files() - before


def test_a_sender_waits_for_its_receiver(ends: tuple[SegmentChannel, SegmentChannel]) -> None:
    """Segments in the socket are in no server's budget yet, so there may be only a few."""
    ours, theirs = ends
    rows = segment(b"rows")
    for channel, most in ((ours, 10), (theirs, 200)):
        sent = 0
        with suppress(TimeoutError):
            while sent <= most and channel.send(rows, 0.05):
                sent += 1
        assert 0 < sent <= most


@pytest.mark.parametrize(
    "message", [b"s", b"a longer message" * 1_000], ids=["as ours", "oversized"]
)
def test_a_message_without_a_segment_is_refused(
    ends: tuple[SegmentChannel, SegmentChannel], message: bytes
) -> None:
    ours, theirs = ends
    ours._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    ours._connection.send(message)
    with pytest.raises(SegmentError, match="has no segment"):
        theirs.receive(hang_s())
    with pytest.raises(TimeoutError):
        theirs.receive(0.01)


def test_of_many_descriptors_one_is_taken_and_none_stays_open(
    ends: tuple[SegmentChannel, SegmentChannel],
) -> None:
    ours, theirs = ends
    sent = [segment(b"%d" % number) for number in range(20)]
    before = open_files()
    socket.send_fds(ours._connection, [b"s" * 200], [each.file for each in sent])
    received = theirs.receive(hang_s())
    assert received.buffer.to_pybytes() == b"0"
    assert len(open_files() - before) == 1
    with open(os.devnull, "rb") as other:
        socket.send_fds(ours._connection, [b"s"], [other.fileno()])
        with pytest.raises(SegmentError, match="is not shared memory"):
            theirs.receive(hang_s())
    assert len(open_files() - before) == 1


def test_a_listener_outlives_clients_that_do_not_greet_as_they_should(
    listener: SegmentListener,
) -> None:
    raw(listener).close()
    bad = [raw(listener) for _ in range(3)]
    bad[0].send(b"short")
    bad[1].send(b"k" * KEY_BYTES)
    assert bad[1].recv(100) == b"s"
    bad[2].send(b"k" * KEY_BYTES)  # another's
    assert bad[0].recv(100) == b""
    assert bad[2].recv(100) == b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_channel, "_GREETING_S", 0.5)
        silent = raw(listener)
        assert silent.recv(100) == b""
    key, channel = open_channel(listener.name, listener.proof, hang_s())
    taken = listener.take(key)
    assert taken is not None
    for each in (taken, channel, silent, *bad):
        each.close()


def test_channels_of_clients_that_are_gone_do_not_stay(listener: SegmentListener) -> None:
    """A stream may fail before it takes its channel, as one of a dropped shuffle does."""
    before = open_files()
    for _ in range(20):
        open_channel(listener.name, listener.proof)[1].close()
    key, last = open_channel(listener.name, listener.proof)
    assert len(open_files() - before) <= 2
    taken = listener.take(key)
    assert taken is not None
    taken.close()
    last.close()


def test_of_too_many_channels_that_nobody_takes_the_oldest_are_closed(
    listener: SegmentListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_channel, "_WAITING_CHANNELS", 3)
    opened = [open_channel(listener.name, listener.proof) for _ in range(5)]
    taken = [listener.take(key) for key, _ in opened]
    assert [each is not None for each in taken] == [False, False, True, True, True]
    channels = [channel for _, channel in opened]
    assert [channel.is_over() for channel in channels] == [True, True, False, False, False]
    for each in (*taken, *channels):
        if each is not None:
            each.close()
    assert all(channel.is_over() for channel in channels)


def test_a_channel_that_ends_as_others_are_opened_does_not_end_its_listener(
    listener: SegmentListener,
) -> None:
    """The listener may look at one that has been taken and closed in between."""
    key, channel = open_channel(listener.name, listener.proof)
    taken = listener.take(key)
    assert taken is not None
    taken.close()
    channel.close()
    listener._waiting[key] = taken
    again, other = open_channel(listener.name, listener.proof, hang_s())
    last = listener.take(again)
    assert last is not None
    last.close()
    other.close()


FULL = """
import logging, os, resource, sys
from mrflight.system.segment_channel import SegmentListener
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
listener = SegmentListener()
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
hogs = []
try:
    while True:
        hogs.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    sys.stdout.write(f"listens at {listener.name} {listener.proof}\\n")  # whole, beside the log
    sys.stdout.flush()
sys.stdin.readline()
for file in hogs:
    os.close(file)
sys.stdin.read()
"""


def lines_until(script: Script, text: str, lines: list[str]) -> str:
    """Return the first line with this text, of those that were read and those that come."""
    while not any(text in line for line in lines):
        lines.append(script.read_line())
        assert lines[-1], "the process has ended"
    return next(line for line in lines if text in line)


def test_a_listener_goes_on_once_there_are_fewer_open_files() -> None:
    with running_script(FULL) as script, ThreadPoolExecutor(1) as thread:
        lines: list[str] = []
        name, proof = lines_until(script, "listens at ", lines).split()[2:]
        opening = thread.submit(open_channel, name, proof, 4 * hang_s())
        lines_until(script, "Too many open files", lines)
        assert script.process.stdin is not None
        script.process.stdin.write("\n")
        script.process.stdin.flush()
        opening.result(hang_s())[1].close()
