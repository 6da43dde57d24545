"""Any descriptor or ticket is decoded to values within their bounds, or raises ProtocolError."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_ATTEMPTS, MAX_MAPS, MAX_PARTITIONS, MapAttempt, ShuffleKey
from mrflight.shuffle.wire.tickets import (
    MAX_SLICES,
    BlockStream,
    PartitionSlice,
    PutTarget,
    ReadTicket,
    decode_block_stream,
    decode_info_path,
    decode_put_path,
    decode_ticket,
)
from tests.support.faults.damaged_bytes import damaged
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(200), derandomize=True)

ID_START = "abzAZ09"

ids = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from(ID_START),
    st.text(ID_START + "._-", max_size=127),
)
partitions = st.integers(0, MAX_PARTITIONS - 1)
epochs = st.integers(0, 10**10 - 1)
generations = st.integers(0, 3) | st.integers(0, 10**10 - 1)
sources = st.builds(
    MapAttempt,
    st.integers(0, MAX_MAPS - 1),
    st.integers(0, MAX_ATTEMPTS - 1),
    st.from_regex(r"[A-Za-z0-9]{0,32}", fullmatch=True),
)
plain_sources = sources.map(lambda source: source._replace(writer=""))
"""Attempts of a plain client, which has no writer id."""


keys = st.builds(ShuffleKey, ids, st.from_regex(r"[A-Za-z0-9]{0,32}", fullmatch=True))
CLICKS = ShuffleKey("clicks")

slices = st.builds(
    lambda of, part: PartitionSlice(int(part * (of - 1)), of),
    st.integers(1, MAX_SLICES),
    st.floats(0, 1),
)


@examples
@given(keys, st.lists(partitions, min_size=1, max_size=16), epochs, st.booleans(), generations)
def test_a_ticket_comes_back(
    shuffle: ShuffleKey, several: list[int], epoch: int, blocks: bool, generation: int
) -> None:
    others = tuple(several[1:]) if blocks else ()
    ticket = ReadTicket(shuffle, several[0], epoch, blocks, others, generation=generation)
    assert decode_ticket(ticket.encode()) == ticket


@examples
@given(keys, partitions, epochs, slices, generations)
def test_a_ticket_for_a_slice_comes_back(
    shuffle: ShuffleKey,
    partition: int,
    epoch: int,
    partition_slice: PartitionSlice,
    generation: int,
) -> None:
    ticket = ReadTicket(
        shuffle,
        partition,
        epoch,
        blocks=True,
        partition_slice=partition_slice,
        generation=generation,
    )
    assert decode_ticket(ticket.encode()) == ticket


def test_tickets_are_those_of_the_wire_contract() -> None:
    assert ReadTicket(CLICKS, 7, 3).encode() == b"clicks/7/3"
    assert ReadTicket(ShuffleKey("clicks", "f0"), 7, 3).encode() == b"clicks:f0/7/3"
    assert ReadTicket(CLICKS, 7, 3, blocks=True).encode() == b"clicks/7/3/blocks"
    assert ReadTicket(CLICKS, 7, 3, True, (8, 11)).encode() == b"clicks/7,8,11/3/blocks"
    assert ReadTicket(CLICKS, 7, 3, True, partition_slice=PartitionSlice(2, 5)).encode() == (
        b"clicks/7/3/blocks/2-of-5"
    )
    assert ReadTicket(CLICKS, 7, 3, generation=2).encode() == b"clicks/7/3.2"
    assert ReadTicket(CLICKS, 7, 3, True, (8,), generation=2).encode() == b"clicks/7,8/3.2/blocks"


tickets = st.one_of(
    st.builds(ReadTicket, keys, partitions, epochs, st.booleans(), generation=generations),
    st.builds(
        ReadTicket,
        keys,
        partitions,
        epochs,
        st.just(True),
        partition_slice=slices,
        generation=generations,
    ),
).map(ReadTicket.encode)


@examples
@given(st.one_of(damaged(tickets), st.binary(max_size=300), st.text().map(str.encode)))
def test_any_bytes_are_a_ticket_within_bounds_or_refused(data: bytes) -> None:
    try:
        ticket = decode_ticket(data)
    except ProtocolError:
        return
    assert 1 <= len(ticket.shuffle) <= 128
    assert "/" not in ticket.shuffle
    assert 0 <= ticket.partition < MAX_PARTITIONS
    assert 0 <= ticket.epoch < 10**10
    assert 0 <= ticket.generation < 10**10
    assert (
        ticket.partition_slice is None
        or 0 <= ticket.partition_slice.number < ticket.partition_slice.of <= MAX_SLICES
    )


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"clicks",
        b"clicks/1",
        b"clicks/1/2/3",
        b"clicks/1/2.",
        b"clicks/1/.2",
        b"clicks/1/2.3.4",
        b"clicks/1/2.-3",
        b"clicks/1/2.12345678901",
        b"clicks/1.2/3",
        b"clicks/1/2/blocks/4",
        b"clicks/1/2/4-of-5",
        b"clicks/1/2/blocks/5-of-5",
        b"clicks/1/2/blocks/-1-of-5",
        b"clicks/1/2/blocks/0-of-0",
        b"clicks/1/2/blocks/0-of-65537",
        b"clicks/1/2/blocks/0-of-1-of-2",
        b"clicks/1/2/blocks/0-of-",
        b"clicks/1/2/blocks/0-of-5/",
        b"clicks/1,2/2/blocks/0-of-5",
        b"clicks/1,2/2",
        b"clicks/1,/2/blocks",
        b"clicks/1,100000/2/blocks",
        b"clicks/-1/2",
        b"clicks/+1/2",
        b"clicks/1_0/2",
        b"clicks/ 1/2",
        b"clicks/1/12345678901",
        b"clicks/100000/2",
        "clicks/\u0661/2".encode(),
        b"/1/2",
        b"../1/2",
        b".hidden/1/2",
        b"a b/1/2",
        b"clicks\n/1/2",
        b"c" * 129 + b"/1/2",
        b"clicks/1/" + b"0" * 300,
    ],
    ids=str,
)
def test_a_malformed_ticket_is_refused(ticket: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_ticket(ticket)


# Descriptors


@examples
@given(ids, partitions, plain_sources)
def test_a_put_path_may_be_in_one_part_or_several(
    shuffle: str, partition: int, source: MapAttempt
) -> None:
    parts = [shuffle, str(partition), *map(str, source[:2])]
    target = PutTarget(shuffle, source, partition)
    assert decode_put_path([part.encode() for part in parts]) == target
    assert decode_put_path(["/".join(parts).encode()]) == target


@examples
@given(ids, sources)
def test_a_block_stream_comes_back(shuffle: str, source: MapAttempt) -> None:
    command = BlockStream(shuffle, *source).encode()
    assert decode_block_stream(command) == PutTarget(shuffle, source, None)


@examples
@given(keys, st.none() | partitions)
def test_an_info_path_comes_back(shuffle: ShuffleKey, partition: int | None) -> None:
    name = str(shuffle).encode()
    path = [name] if partition is None else [name, b"%d" % partition]
    assert decode_info_path(path) == (shuffle, partition)


def assert_within_bounds(target: PutTarget) -> None:
    assert 1 <= len(target.shuffle) <= 128
    assert len(target.token) <= 32
    assert 0 <= target.source.map_id < MAX_MAPS
    assert 0 <= target.source.attempt < MAX_ATTEMPTS
    assert len(target.source.writer) <= 32
    assert target.partition is None or 0 <= target.partition < MAX_PARTITIONS


paths = st.builds(
    lambda shuffle, partition, source: b"/".join(
        [shuffle.encode(), b"%d" % partition, *(b"%d" % number for number in source[:2])]
    ),
    ids,
    partitions,
    sources,
)


@examples
@given(st.lists(st.one_of(damaged(paths), st.binary(max_size=20)), max_size=4))
def test_any_path_is_a_put_within_bounds_or_refused(path: list[bytes]) -> None:
    try:
        target = decode_put_path(path)
    except ProtocolError:
        return
    assert_within_bounds(target)


@examples
@given(st.lists(st.one_of(damaged(ids.map(str.encode)), st.binary(max_size=20)), max_size=3))
def test_any_path_is_an_info_within_bounds_or_refused(path: list[bytes]) -> None:
    try:
        shuffle, partition = decode_info_path(path)
    except ProtocolError:
        return
    assert 1 <= len(shuffle.id) <= 128
    assert len(shuffle.token) <= 32
    assert partition is None or 0 <= partition < MAX_PARTITIONS


streams = st.builds(
    BlockStream, ids, st.integers(-5, MAX_MAPS + 5), st.integers(-5, MAX_ATTEMPTS + 5)
).map(BlockStream.encode)


@examples
@given(st.one_of(streams, damaged(streams), st.binary(max_size=40)))
def test_any_command_is_a_stream_within_bounds_or_refused(command: bytes) -> None:
    try:
        target = decode_block_stream(command)
    except ProtocolError:
        return
    assert target.partition is None
    assert_within_bounds(target)


@pytest.mark.parametrize(
    "command",
    [
        b"{}",
        b'{"shuffle": "a/b", "map_id": 0, "attempt": 0}',
        b'{"shuffle": "a", "map_id": -1, "attempt": 0}',
        b'{"shuffle": "a", "map_id": 0, "attempt": 1000}',
        b'{"shuffle": "a", "map_id": 10000000, "attempt": 0}',
        b'{"shuffle": "a", "map_id": 1.5, "attempt": 0}',
        b'{"shuffle": "a", "map_id": true, "attempt": 0}',
    ],
)
def test_a_stream_out_of_bounds_is_refused(command: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_block_stream(command)
