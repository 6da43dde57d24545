"""Whether a stream gets a channel is found out once for each connection, and can be forced."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import pytest
from mrflight.servers.actions import Actions, Handler, answer_keepalive
from mrflight.servers.listening import Listening
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.config.transport import Transport
from mrflight.errors import DeadlineExceededError, JobError, ServerUnavailableError
from mrflight.ids import MapAttempt
from mrflight.security.principal import ALL
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import answer_errors
from mrflight.shuffle.wire.protocol import DataAction, Done, Message, SharedMemoryOffer
from mrflight.shuffle.wire.tickets import BlockStream, PutTarget, decode_block_stream
from mrflight.shuffle.wire.transport import channel_to
from mrflight.system.deadlines import Timeouts
from mrflight.system.segment_channel import SegmentListener
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")


class Server(flight.FlightServerBase):
    """Says what shared memory there is; None if it is of a version that knows of none."""

    def __init__(self, offer: SharedMemoryOffer | None) -> None:
        self.listening = Listening("grpc+tcp://127.0.0.1:0")
        super().__init__(self.listening.location, **self.listening.options)
        self.location = f"grpc+tcp://127.0.0.1:{self.port}"
        self.offer = offer
        self.asked = 0

    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        known: dict[Any, Any] = {DataAction.KEEPALIVE: Handler(Done, answer_keepalive, ALL)}
        if self.offer is not None:
            known[DataAction.SHARED_MEMORY] = Handler(Done, self._say, ALL)
        return Actions(known).answer(action, self.listening.guard, context)

    def _say(self, _: Done) -> Message:
        self.asked += 1
        assert self.offer is not None
        return self.offer


@contextmanager
def serving(offer: SharedMemoryOffer | None) -> Iterator[Server]:
    with Server(offer) as server:
        yield server


def offer_of(listener: SegmentListener) -> SharedMemoryOffer:
    return SharedMemoryOffer(listener.name, listener.proof)


def connections(transport: Transport, timeouts: Timeouts | None = None) -> Connections:
    return Connections(ClientOptions(timeouts or Timeouts(call_s=hang_s()), transport))


def opens(listener: SegmentListener, using: Connections, server: Server) -> bool:
    """Return whether there is a channel for a stream."""
    found = channel_to(using, server.location)
    if found is None:
        return False
    taken = listener.take(bytes.fromhex(found.key))
    assert taken is not None
    taken.close()
    found.segments.close()
    return True


@pytest.mark.parametrize("transport", ["auto", "shared"])
def test_a_connection_asks_once_and_each_stream_has_its_channel(transport: Transport) -> None:
    with (
        SegmentListener() as listener,
        serving(offer_of(listener)) as server,
        connections(transport) as using,
    ):
        assert [opens(listener, using, server) for _ in range(3)] == [True] * 3
        assert server.asked == 1


def test_over_flight_nobody_asks() -> None:
    with (
        SegmentListener() as listener,
        serving(offer_of(listener)) as server,
        connections("flight") as using,
    ):
        assert not opens(listener, using, server)
        assert server.asked == 0


NOBODY_THERE = SharedMemoryOffer("mrflight-nobody", "00" * 32)


@pytest.mark.parametrize("offer", [NOBODY_THERE, SharedMemoryOffer(), None], ids=str)
def test_without_shared_memory_a_connection_tries_once(offer: SharedMemoryOffer | None) -> None:
    """The server offers what is not here, as one in another network; nothing; or knows of none."""
    with serving(offer) as server, connections("auto") as using:
        assert channel_to(using, server.location) is None
        asked = server.asked
        assert asked <= 2
        assert channel_to(using, server.location) is None
        assert server.asked == asked


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (
            NOBODY_THERE,
            "its socket is not in this network, which is that of another machine or container",
        ),
        (SharedMemoryOffer(), "the server offers none"),
        (None, "the server offers none"),
    ],
    ids=str,
)
def test_without_shared_memory_the_transport_shared_says_why_and_what_to_do(
    offer: SharedMemoryOffer | None, reason: str
) -> None:
    with serving(offer) as server, connections("shared") as using:
        for _ in range(2):
            with refused(JobError) as failed:
                channel_to(using, server.location)
            assert not failed.value.retryable


def test_memory_that_does_not_hold_the_proof_is_not_shared() -> None:
    with SegmentListener() as listener:
        lie = SharedMemoryOffer(listener.name, "00" * 32)
        with serving(lie) as server, connections("auto") as using:
            assert channel_to(using, server.location) is None
        with (
            serving(lie) as server,
            connections("shared") as using,
            pytest.raises(JobError, match="is not what it says"),
        ):
            channel_to(using, server.location)


@pytest.mark.parametrize("transport", ["auto", "shared"])
def test_a_server_that_took_the_place_of_another_shares_its_own_memory(
    transport: Transport,
) -> None:
    with (
        SegmentListener() as before,
        SegmentListener() as listener,
        serving(offer_of(before)) as server,
        connections(transport) as using,
    ):
        assert opens(before, using, server)
        before.close()
        server.offer = offer_of(listener)
        assert opens(listener, using, server)
        assert opens(listener, using, server)
        assert server.asked == 2


@pytest.mark.parametrize("transport", ["auto", "shared"])
def test_a_server_that_has_ended_is_unavailable(transport: Transport) -> None:
    """Which a job recovers from, also if it insists on shared memory."""
    with (
        SegmentListener() as listener,
        serving(offer_of(listener)) as server,
        connections(transport) as using,
    ):
        assert opens(listener, using, server)
        listener.close()
        server.shutdown()
        with pytest.raises(ServerUnavailableError) as failed:
            channel_to(using, server.location)
    assert failed.value.location == server.location
    assert failed.value.retryable


def test_a_server_that_is_silent_is_left_to_flight_or_late() -> None:
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.bind("\0mrflight-silent")
    silent.listen()
    offer = SharedMemoryOffer("mrflight-silent", "00" * 32)
    hasty = Timeouts(call_s=hang_s(), stream_s=0.2)
    with closing(silent), serving(offer) as server:
        with connections("auto", hasty) as using:
            assert channel_to(using, server.location) is None
        using = connections("shared", hasty)
        with using, refused(DeadlineExceededError) as late:
            channel_to(using, server.location)
    assert late.value.location == server.location
    assert late.value.retryable


def hang_up(listening: socket.socket, times: int) -> None:
    for _ in range(times):
        listening.accept()[0].close()


def test_a_server_that_shares_no_memory_for_now_is_left_to_flight_or_unavailable() -> None:
    """It is tried again for the next stream."""
    busy = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    busy.bind("\0mrflight-busy")
    busy.listen()
    offer = SharedMemoryOffer("mrflight-busy", "00" * 32)
    with closing(busy), serving(offer) as server, ThreadPoolExecutor(1) as thread:
        hanging_up = thread.submit(hang_up, busy, 3)
        with connections("auto") as using:
            assert [channel_to(using, server.location) for _ in range(2)] == [None, None]
        using = connections("shared")
        with using, pytest.raises(ServerUnavailableError, match="cannot be reached") as failed:
            channel_to(using, server.location)
        hanging_up.result(hang_s())
    assert failed.value.location == server.location


def test_a_stream_without_a_channel_is_as_servers_before_it_take_it() -> None:
    stream = BlockStream("clicks", 3, 1, "w1")
    assert "channel" not in msgspec.json.decode(stream.encode())
    assert decode_block_stream(stream.encode()) == PutTarget("clicks", MapAttempt(3, 1, "w1"), None)
