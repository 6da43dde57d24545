"""Thousands of hostile Flight requests each get a typed error, and the servers stay alive.

The servers also keep nothing of them: threads, files, memory and blocks are as before, and a
shuffle still returns its rows.
"""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.errors import (
    DeadlineExceededError,
    MrflightError,
    ServerUnavailableError,
    ShuffleError,
)
from mrflight.ids import ShuffleKey
from mrflight.shuffle import wire
from mrflight.shuffle.wire.block import BlockTag, encode_block, ipc_options, to_wire
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import DataAction, Message, MetadataAction
from mrflight.shuffle.wire.shared_blocks import NO_ROWS, SharedTag, encode_tags
from mrflight.shuffle.wire.tail_protocol import TailAction
from mrflight.shuffle.wire.tickets import BlockStream, ReadTicket
from mrflight.shuffle.wire.transport import StreamChannel, channel_to
from mrflight.system.segment_channel import SegmentChannel
from mrflight.system.shared_memory import IS_SUPPORTED, Segment
from tests.support.clusters.hostile_servers import (
    BATCH,
    SHUFFLE,
    Put,
    Servers,
    act,
    tidy_up,
)
from tests.support.faults.hostile_bytes import damaged, example_of, hostile_json, random_bytes
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.slow

ACTIONS = 2_500
"""The number of requests that each server gets."""
READS = 1_000
PUTS = 1_000
SHARED_PUTS = 500
LOG_ACTIONS = {each for each in DataAction if "LOG" in each.name.split("_")}
"""What only a server with event logs has: see test_hostile_logs.py."""
UNTYPED = (ServerUnavailableError, DeadlineExceededError)
"""The errors of a client whose server died or hangs."""


def outcome(request: Callable[[], object], what: str) -> str:
    """Return the kind of the answer to a request, which must be one of our errors."""
    try:
        request()
    except UNTYPED as error:
        raise AssertionError(f"{what}: {error}") from error
    except MrflightError as error:
        answer = error
    else:
        return "done"
    assert isinstance(answer, ShuffleError), f"{what}: {answer}"
    assert " answered: " not in str(answer), f"{what}: {answer}"
    return type(answer).__name__


def try_all(requests: Iterator[tuple[str, Callable[[], object]]], seed: str) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for number, (what, request) in enumerate(requests):
        kinds[outcome(request, f"seed {seed}, request {number}, {what[:500]}")] += 1
    return kinds


# Actions


def messages_by_meaning() -> dict[str, type[Message]]:
    """The messages of all modules, by the first lines of their docstrings."""
    for module in iter_modules(wire.__path__, f"{wire.__name__}."):
        import_module(module.name)
    return {(each.__doc__ or "").partition("\n")[0]: each for each in Message.__subclasses__()}


@pytest.mark.parametrize("server", ["metadata", "data"])
def test_actions(server: str, servers: Servers) -> None:
    with flight.FlightClient(getattr(servers, server)) as client:
        meanings = messages_by_meaning()
        actions = {each.type: meanings[each.description] for each in client.list_actions()}
        data = {*DataAction, *TailAction} - LOG_ACTIONS
        names = set(MetadataAction) if server == "metadata" else data
        assert set(actions) == {name.value for name in names}
        rng = random.Random(server)

        def requests() -> Iterator[tuple[str, Callable[[], object]]]:
            for number in range(ACTIONS):
                if number % 50 == 0:
                    make_the_shuffle(servers)
                action = rng.choice(list(actions))
                valid = msgspec.json.encode(example_of(actions[action], rng))
                body = valid if rng.random() < 0.2 else hostile_json(valid, rng)
                name = action if rng.random() < 0.95 else unknown_name(action, rng)
                yield f"{name} {body!r}", partial(act, client, name, body)

        kinds = try_all(requests(), server)
        assert kinds["ProtocolError"] > ACTIONS / 4
        assert kinds["done"] > ACTIONS / 20


def unknown_name(action: str, rng: random.Random) -> str:
    return damaged(action.encode(), rng).decode(errors="replace")


def make_the_shuffle(servers: Servers) -> None:
    if SHUFFLE not in {shuffle.id for shuffle in servers.cluster.status().shuffles}:
        tidy_up(servers)
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)


# Reads


def test_tickets_and_infos(servers: Servers) -> None:
    with (
        flight.FlightClient(servers.data) as data,
        flight.FlightClient(servers.metadata) as metadata,
    ):
        shuffle = servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        with shuffle.writer(map_id=0, key=["n"]) as out:
            out.write(BATCH)
        rng = random.Random("reads")
        tickets = [
            ReadTicket(ShuffleKey(SHUFFLE), 1, 1).encode(),
            ReadTicket(ShuffleKey(SHUFFLE), 0, 1, blocks=True, others=(1, 2)).encode(),
        ]

        def requests() -> Iterator[tuple[str, Callable[[], object]]]:
            for _ in range(READS):
                ticket = rng.choice(tickets)
                ticket = damaged(ticket, rng) if rng.random() < 0.9 else random_bytes(rng)
                yield f"ticket {ticket!r}", partial(read, data, ticket)
                descriptor = any_descriptor([SHUFFLE, "1"], rng)
                yield f"info {descriptor}", partial(info, metadata, descriptor)

        kinds = try_all(requests(), "reads")
        assert kinds["ProtocolError"] > READS / 2
        assert kinds["ShuffleNotFoundError"] > 0
        assert kinds["done"] > 0


def read(client: flight.FlightClient, ticket: bytes) -> None:
    with from_flight("the server", "get"):
        options = flight.FlightCallOptions(timeout=hang_s())
        client.do_get(flight.Ticket(ticket), options).read_all()


def info(client: flight.FlightClient, descriptor: flight.FlightDescriptor) -> None:
    with from_flight("the server", "info"):
        client.get_flight_info(descriptor, flight.FlightCallOptions(timeout=hang_s()))


def any_descriptor(path: list[str], rng: random.Random) -> flight.FlightDescriptor:
    """A path in one part or several, damaged but UTF-8, or a command."""
    whole = "/".join(path) if rng.random() < 0.5 else "\0".join(path)
    hurt = damaged(whole.encode(), rng)
    if rng.random() < 0.2:
        return flight.FlightDescriptor.for_command(hurt)
    parts = hurt.decode(errors="replace").split("/" if rng.random() < 0.2 else "\0")
    return flight.FlightDescriptor.for_path(*parts)


# Puts


def block_put(rng: random.Random) -> Put:
    """Blocks of which the command, a tag, a body or the schema is wrong, or none."""
    block = encode_block([BATCH], ipc_options("none"))
    tag = tag_of(block, rng.choice((0, 1, 2, 3, 99_999)))
    command = BlockStream(SHUFFLE, rng.choice((0, 7)), 0).encode()
    message = to_wire(block)
    match rng.choice(("command", "tag", "body", "schema", "no body", "no tag", "nothing")):
        case "command":
            command = hostile_json(command, rng)[:10_000]
        case "tag":
            tag = damaged(tag, rng)
        case "body":
            hurt = damaged(block.body.to_pybytes(), rng) or b"\0"
            message = to_wire(block._replace(body=pa.py_buffer(hurt)))
        case "schema":
            message = BATCH
        case "no body":
            message = message.slice(0, 0)
        case "no tag":
            tag = b""
    descriptor = flight.FlightDescriptor.for_command(command)
    return Put(descriptor, message.schema, [(message, tag)] * rng.choice((1, 3)))


def tag_of(block: Any, partition: int) -> bytes:
    return BlockTag(partition, block.rows, block.xxh3).encode()


FALLING_OFFSETS = pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x7f\1\0\0\0")
ONE_LETTER = pa.py_buffer(b"\0\0\0\0\1\0\0\0")
ODD_COLUMNS: list[pa.Array] = [
    pa.nulls(2),
    pa.array([[1], None], pa.list_view(pa.int8())),
    pa.array([{"a": 1}, None]),
    pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int16()), pa.array(["a", None])),
    pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 2, pa.binary(16))),
    pa.Array.from_buffers(pa.string(), 2, [None, FALLING_OFFSETS, pa.py_buffer(bytes(8))]),
    pa.Array.from_buffers(pa.string(), 1, [None, ONE_LETTER, pa.py_buffer(b"\xff")]),
]


def plain_put(rng: random.Random) -> Put:
    """Batches under a damaged path, or of columns that nobody expects."""
    parts = [SHUFFLE, rng.choice(("0", "2", "3")), "0", "0"]
    batch = BATCH
    if rng.random() < 0.5:
        return Put(any_descriptor(parts, rng), batch.schema, [(batch, None)])
    column = rng.choice(ODD_COLUMNS)
    batch = pa.RecordBatch.from_arrays([column], [rng.choice(("n", "", "\0", "x" * 5_000))])
    return Put(flight.FlightDescriptor.for_path(*parts), batch.schema, [(batch, b"unasked")])


@pytest.mark.parametrize("make", [block_put, plain_put], ids=["blocks", "batches"])
def test_puts(make: Callable[[random.Random], Put], servers: Servers) -> None:
    with flight.FlightClient(servers.data) as client:
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        rng = random.Random(make.__name__)

        def requests() -> Iterator[tuple[str, Callable[[], object]]]:
            for _ in range(PUTS):
                put = make(rng)
                yield f"{put.descriptor} {put.schema}", partial(put.send, client)

        kinds = try_all(requests(), make.__name__)
        assert kinds["ProtocolError"] > PUTS / 4
        assert kinds["done"] > 0


def shared_put(channel: StreamChannel, client: flight.FlightClient, rng: random.Random) -> None:
    """Put a block in shared memory of which the key, the tags or the segment is wrong, or none."""
    key, instead = channel.key, None
    body = encode_block([BATCH], ipc_options("none"))
    whole = body.body.to_pybytes()
    metadata = encode_tags([SharedTag(rng.choice((0, 2, 3)), body.rows, body.xxh3, 0, len(whole))])
    match rng.choice(("key", "tags", "body", "segment", "no segment", "too large", "nothing")):
        case "key":
            key = "0" * 32
        case "tags":
            metadata = damaged(metadata, rng)
        case "body":
            whole = damaged(whole, rng) or b"\0"
        case "segment":
            instead = [os.open(os.devnull, os.O_RDWR), os.memfd_create("mrflight")]
            rng.shuffle(instead)
        case "no segment":
            instead = []
        case "too large":
            whole += bytes(2**20)
            metadata = encode_tags([SharedTag(0, body.rows, body.xxh3, 0, 2**19)])
    command = BlockStream(SHUFFLE, 0, 0, channel=key).encode()
    put = Put(flight.FlightDescriptor.for_command(command), NO_ROWS.schema, [(NO_ROWS, metadata)])
    with channel.segments as segments:
        if instead is None:
            segments.send(Segment.of([memoryview(whole)]), hang_s())
        else:
            send_files(segments, instead)
        put.send(client)


def send_files(channel: SegmentChannel, files: list[int]) -> None:
    """Pass files in place of a segment, and close them here."""
    socket.send_fds(channel._connection, [b"s"], files)
    for file in files:
        os.close(file)


@pytest.mark.skipif(not IS_SUPPORTED, reason="memfd is Linux's")
def test_puts_in_shared_memory(servers: Servers) -> None:
    with (
        flight.FlightClient(servers.data) as client,
        Connections(ClientOptions(transport="shared")) as connections,
    ):
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        rng = random.Random("shared puts")

        def requests() -> Iterator[tuple[str, Callable[[], object]]]:
            for _ in range(SHARED_PUTS):
                channel = channel_to(connections, servers.data)
                assert channel is not None
                yield "in shared memory", partial(shared_put, channel, client, rng)

        kinds = try_all(requests(), "shared puts")
        assert kinds["ProtocolError"] > SHARED_PUTS / 4
        assert kinds["CorruptBlockError"] > 0
        assert kinds["done"] > 0
