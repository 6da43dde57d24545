"""Messages about blocks in shared memory: what goes in comes out, and what lies is refused."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.shuffle.wire.block import MAX_ROWS, PACKED_BYTES, Block, BlockTag, SharedBlock
from mrflight.shuffle.wire.shared_blocks import (
    MAX_TAGS,
    NO_ROWS,
    SharedTag,
    blocks_of,
    check_put,
    decode_tags,
    encode_tags,
    messages,
)
from mrflight.system.deadlines import DEFAULT_TIMEOUTS
from mrflight.system.segment_channel import SegmentChannel
from mrflight.system.shared_memory import Segment
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

MAX_REFUSAL = 200

uint64 = st.integers(0, 2**64 - 1)
tags = st.builds(SharedTag, st.integers(0, 2**32 - 1), uint64, uint64, uint64, uint64)


class Message(NamedTuple):
    """A message as Flight gives it."""

    data: pa.RecordBatch
    app_metadata: pa.Buffer


@pytest.fixture
def ends() -> Iterator[tuple[SegmentChannel, SegmentChannel]]:
    with channel() as (left, right):
        yield left, right


class channel:  # noqa: N801 - Hypothesis wants one for each example
    """Two ends of a channel."""

    def __enter__(self) -> tuple[SegmentChannel, SegmentChannel]:
        self._ends = [
            SegmentChannel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ]
        return self._ends[0], self._ends[1]

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()


def passed(
    blocks: list[tuple[int, Block]], left: SegmentChannel | None, right: SegmentChannel | None
) -> list[tuple[BlockTag, Block]]:
    """Return what is received of blocks that are sent."""
    return [
        each
        for data, metadata in messages(iter(blocks), left)
        for each in blocks_of(Message(data, pa.py_buffer(metadata)), right)
    ]


def received(tags: list[SharedTag], segment: Segment) -> list[tuple[BlockTag, Block]]:
    """Return the blocks of a message with these tags, whatever they say."""
    with channel() as (left, right):
        left.send(segment, hang_s())
        return list(blocks_of(Message(NO_ROWS, pa.py_buffer(encode_tags(tags))), right))


@given(st.lists(tags, min_size=1, max_size=5))
def test_tags_come_out_as_they_went_in(tags: list[SharedTag]) -> None:
    assert decode_tags(pa.py_buffer(encode_tags(tags))) == tags


@given(
    st.lists(
        st.tuples(
            st.integers(0, MAX_PARTITIONS - 1),
            st.integers(0, MAX_ROWS),
            st.binary(min_size=1, max_size=50),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_blocks_of_both_kinds_come_out_in_their_order(
    blocks: list[tuple[int, int, bytes, int]], has_channel: bool
) -> None:
    """Each lies in one of three segments, or in none."""
    segments = [Segment.reserve(2**16) for _ in range(3)]
    ends = [0, 0, 0]
    sent: list[tuple[int, Block]] = []
    for partition, rows, body, where in blocks:
        block = Block.of(rows, pa.py_buffer(body))
        if where < 3:
            written = segments[where].write(ends[where], memoryview(body))
            block = SharedBlock.at(segments[where], ends[where], block._replace(body=written))
            ends[where] += len(body)
        sent.append((partition, block))
    with channel() as (left, right):
        found = passed(sent, left, right) if has_channel else passed(sent, None, None)
    assert [(tag.partition, block) for tag, block in found] == sent
    assert all((tag.rows, tag.xxh3) == (block.rows, block.xxh3) for tag, block in found)
    shared = [has_channel and where < 3 for *_, where in blocks]
    assert [isinstance(block, SharedBlock) for _, block in found] == shared


def test_many_blocks_of_one_segment_are_in_messages_of_their_own(
    ends: tuple[SegmentChannel, SegmentChannel],
) -> None:
    segment = Segment.of([memoryview(bytes(10 * MAX_TAGS))])
    blocks = [
        (0, SharedBlock.at(segment, at, Block(1, segment.read(at, 1), 0)))
        for at in range(2 * MAX_TAGS + 1)
    ]
    sent = list(messages(iter(blocks), ends[0]))
    assert [len(decode_tags(pa.py_buffer(metadata))) for _, metadata in sent] == [1024, 1024, 1]


class FullChannel(SegmentChannel):
    """One over which Linux lets nothing go: `test_segment_channel` shows when."""

    def send(self, segment: Segment, timeout_s: float) -> bool:
        return False


def test_blocks_are_in_the_messages_while_too_many_segments_are_on_their_way() -> None:
    segment = Segment.of([memoryview(b"some rows")])
    block = SharedBlock.at(segment, 5, Block.of(4, segment.read(5, 4)))
    with FullChannel(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as full:
        ((tag, found),) = passed([(7, block)], full, None)
    assert (tag, found) == (BlockTag(7, 4, block.xxh3), Block(*block))
    assert not isinstance(found, SharedBlock)


class PatientChannel(SegmentChannel):
    """Records how long a send may take."""

    timeout_s = 0.0

    def send(self, segment: Segment, timeout_s: float) -> bool:
        self.timeout_s = timeout_s
        return super().send(segment, timeout_s)


def test_a_server_waits_for_a_slow_reader_as_long_as_a_stream_may_take(
    ends: tuple[SegmentChannel, SegmentChannel],
) -> None:
    segment = Segment.of([memoryview(b"some rows")])
    block = SharedBlock.at(segment, 5, Block.of(4, segment.read(5, 4)))
    patient = PatientChannel(ends[0]._connection)
    assert len(list(messages(iter([(0, block)]), patient))) == 1
    assert patient.timeout_s == DEFAULT_TIMEOUTS.stream_s


@given(st.binary(max_size=100))
def test_any_bytes_are_tags_or_refused(metadata: bytes) -> None:
    refusal = None
    try:
        decode_tags(pa.py_buffer(metadata))
    except ProtocolError as error:
        refusal = str(error)
    assert refusal is None or len(refusal) <= MAX_REFUSAL


ONE = encode_tags([SharedTag(0, 1, 2, 3, 4)])


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        ONE[:8],
        ONE[:-1],
        ONE + b"x",
        ONE + ONE[8:],
        struct.pack("<BxxxI", 4, 0),
        struct.pack("<BxxxI", 4, 2**32 - 1) + ONE[8:],
        struct.pack("<BxxxI", 4, MAX_TAGS + 1) + ONE[8:] * (MAX_TAGS + 1),
    ],
    ids=["empty", "no tag", "cut", "too long", "more", "none", "claims more", "too many"],
)
def test_a_count_that_lies_is_refused(metadata: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"names \d+ blocks"):
        decode_tags(pa.py_buffer(metadata))


TEN = b"0123456789"


@pytest.mark.parametrize(
    "tag",
    [
        SharedTag(MAX_PARTITIONS, 1, 0, 0, 1),
        SharedTag(0, MAX_ROWS + 1, 0, 0, 1),
        SharedTag(0, 1, 0, 0, 0),
        SharedTag(0, 1, 0, 10, 1),
        SharedTag(0, 1, 0, 1, 10),
        SharedTag(0, 1, 0, 2**64 - 1, 1),  # -1 as it is signed
        SharedTag(0, 1, 0, 2**64 - 5, 10),  # 5, if it wrapped around
        SharedTag(0, 1, 0, 0, 2**64 - 1),
    ],
    ids=str,
)
def test_a_tag_that_leaves_its_segment_is_refused(tag: SharedTag) -> None:
    good = SharedTag(0, 1, 0, 0, 0 if tag.size > 9 else 1)
    with refused(ProtocolError) as caught:
        received([tag], Segment.of([memoryview(TEN)]))
    assert len(str(caught.value)) <= MAX_REFUSAL
    with pytest.raises(ProtocolError):
        received([good, tag], Segment.of([memoryview(TEN)]))


def test_more_bytes_than_a_segment_has_are_refused() -> None:
    """Or a message of 40 KiB could have a server hash a thousand times the memory."""
    with refused(ProtocolError):
        received(
            [SharedTag(0, 1, 0, 0, 6), SharedTag(0, 1, 0, 4, 6)], Segment.of([memoryview(TEN)])
        )


def test_a_message_without_its_segment_is_refused(
    ends: tuple[SegmentChannel, SegmentChannel],
) -> None:
    left, right = ends
    message = Message(NO_ROWS, pa.py_buffer(ONE))
    with refused(ProtocolError):
        list(blocks_of(message, None))
    left._connection.send(b"s")
    with pytest.raises(ProtocolError, match="has no segment"):
        list(blocks_of(message, right))
    left.close()
    with pytest.raises(ConnectionResetError):
        list(blocks_of(message, right))


def growing() -> Segment:
    """Memory whose size is fixed, and whose bytes are not."""
    file = os.memfd_create("mrflight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, TEN)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return Segment.received(file)


def whole(size: int) -> Callable[[], Segment]:
    return lambda: Segment.of([memoryview(bytes(size))])


LARGE = PACKED_BYTES + 1


@pytest.mark.parametrize(
    ("make", "size", "says"),
    [
        (whole(LARGE), LARGE, ""),
        (whole(LARGE + 4_000), LARGE, ""),
        (whole(LARGE + 5_000), LARGE, "must have a segment of its own"),
        (whole(2**24), LARGE, "must have a segment of its own"),
        (whole(2**24), PACKED_BYTES, ""),
        (growing, 10, "can still be changed"),
    ],
)
def test_a_put_is_held_where_it_lies_or_refused(
    make: Callable[[], Segment], size: int, says: str
) -> None:
    """A server would hold 16 MiB for a block that counts for less."""
    ((_, block),) = received([SharedTag(0, 1, 0, 0, size)], make())
    if not says:
        check_put(block)
        return
    with pytest.raises(ProtocolError, match=says):
        check_put(block)
