"""Sends hand-made gRPC frames that no Flight client would send.

Each call has a connection of its own, so that everything that comes back answers this call.
"""

from __future__ import annotations

import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pytest

from mrflight.shuffle.wire.block import BlockTag, encode_block, ipc_options, to_wire
from mrflight.shuffle.wire.tickets import BlockStream
from tests.support.clusters.hostile_servers import BATCH, SHUFFLE, Servers
from tests.support.faults.hostile_bytes import damaged, random_bytes
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.slow

CALLS = 1_000
GARBAGE = 300
MAX_BODY_BYTES = 60_000
"""Below what HTTP/2 lets us send before we have to read."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, GO_AWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1

OK, INTERNAL = "0", "13"
"""Statuses of gRPC; the second is for what is no protocol buffer of its kind."""


# HTTP/2 and protocol buffers, as little of them as it takes


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def varint(number: int) -> bytes:
    low = bytearray()
    while number > 127:
        low.append(number % 128 + 128)
        number //= 128
    return bytes([*low, number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def headers(method: str) -> bytes:
    """POST by http, then names of the static table or our own, and values as they are."""
    path = b"/arrow.flight.protocol.FlightService/" + method.encode()
    named = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    texts = [b"\x04", path, b"\x01", b"localhost"]
    block = b"\x83\x86" + b"".join(
        text if len(text) == 1 else bytes([len(text)]) + text for text in texts
    )
    for name, value in named:
        block += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return block


def framed(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


def call(port: int, method: str, body: bytes) -> tuple[str, str]:
    """The gRPC status of a call's answer and the message in it; no status: it was cut off."""
    body = body[:MAX_BODY_BYTES]
    pieces = [body[at : at + 16_000] for at in range(0, len(body), 16_000)] or [b""]
    with socket.create_connection(("127.0.0.1", port), hang_s()) as connection:
        connection.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, b"")
            + frame(HEADERS, END_HEADERS, 1, headers(method))
            + b"".join(frame(DATA, 0, 1, piece) for piece in pieces[:-1])
            + frame(DATA, END_STREAM, 1, pieces[-1])
        )
        answered = b"".join(answer(connection))
    status = re.search(rb"grpc-status.(\d+)", answered, re.DOTALL)
    message = re.search(rb"grpc-message[\x00-\xff]{1,3}?([ -~]*)", answered)
    reason = unquote_to_bytes(message[1]).decode(errors="replace") if message else ""
    return status[1].decode() if status else "", reason


def answer(connection: socket.socket) -> Iterator[bytes]:
    """The headers and trailers of the one answer, up to its end, or the connection's."""
    with connection.makefile("rb") as stream:
        while len(start := stream.read(9)) == 9:
            size, kind, flags = int.from_bytes(start[:3], "big"), start[3], start[4]
            payload = stream.read(size)
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0, b""))
            if kind == HEADERS:
                yield payload
            if kind in (RESET, GO_AWAY) or (kind == HEADERS and flags & END_STREAM):
                return


def port_of(location: str) -> int:
    return int(location.rpartition(":")[2])


# Requests that are valid but for the damage


def a_path(*parts: bytes) -> bytes:
    return b"\x08\x01" + b"".join(field(3, part) for part in parts)


def a_command(command: bytes) -> bytes:
    return b"\x08\x02" + field(2, command)


def ipc_messages(batch: pa.RecordBatch, compression: str) -> list[tuple[bytes, bytes]]:
    """The headers and bodies of the Arrow messages that a stream of ``batch`` has."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=ipc_options(compression)) as stream:
        stream.write_batch(batch)
    return [
        (message.metadata.to_pybytes(), message.body.to_pybytes() if message.body else b"")
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]


def put_messages(rng: random.Random) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """A descriptor, the tags, and the Arrow messages of a valid put of blocks or batches."""
    compression = rng.choice(("none", "lz4", "zstd"))
    if rng.random() < 0.5:
        words = BATCH.append_column("word", pa.array(["x", "y", "x"]).dictionary_encode())
        return a_path(SHUFFLE.encode(), b"1/0", b"0"), b"", ipc_messages(words, compression)
    block = encode_block([BATCH], ipc_options("none"))
    tag = BlockTag(0, block.rows, block.xxh3).encode()
    command = a_command(BlockStream(SHUFFLE, 0, 0).encode())
    return command, tag, ipc_messages(to_wire(block), compression)


def hostile_put(rng: random.Random) -> bytes:
    """A put with damage in one Arrow header, a body, a tag, the descriptor, or the order."""
    descriptor, tag, messages = put_messages(rng)
    at = rng.randrange(len(messages))
    header, body = messages[at]
    match rng.choice(("header", "header", "header", "body", "body", "tag", "name", "order")):
        case "header":
            messages[at] = (damaged(header, rng), body)
        case "body":
            messages[at] = (header, damaged(body, rng))
        case "tag":
            tag = damaged(tag, rng)
        case "name":
            descriptor = damaged(descriptor, rng)
        case "order":
            rng.shuffle(messages)
    parts = [
        (field(1, descriptor) if number == 0 else field(3, tag))
        + field(2, header)
        + field(1000, body)
        for number, (header, body) in enumerate(messages)
    ]
    if rng.random() < 0.1:
        parts[at] = damaged(parts[at], rng)
    return b"".join(map(framed, parts))


REQUESTS: dict[str, dict[str, list[bytes]]] = {
    "metadata": {
        "DoAction": [
            field(1, b"status") + field(2, b"{}"),
            field(1, b"describe_shuffle") + field(2, b'{"id": "clicks-1"}'),
        ],
        "GetFlightInfo": [a_path(SHUFFLE.encode()), a_path(SHUFFLE.encode(), b"1")],
    },
    "data": {
        "DoAction": [field(1, b"stats") + field(2, b"{}")],
        "DoGet": [field(1, b"clicks-1/1/0"), field(1, b"clicks-1/0,1/0/blocks")],
    },
}


def hostile_request(valid: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.8:
        return framed(damaged(valid, rng))
    return damaged(framed(valid), rng)


def assert_answered(port: int, method: str, body: bytes, what: str) -> str:
    """The status of an answer, which shows nobody where our code is."""
    status, reason = call(port, method, body)
    assert "Traceback" not in reason, f"{what}, {method}: {reason} {body!r}"
    return status


@pytest.mark.parametrize("server", REQUESTS)
def test_requests(server: str, servers: Servers) -> None:
    rng = random.Random(server)
    found: Counter[str] = Counter()
    servers.cluster.create_shuffle(SHUFFLE, partitions=3)
    port = port_of(getattr(servers, server))
    for number in range(CALLS):
        method = rng.choice(list(REQUESTS[server]))
        body = hostile_request(rng.choice(REQUESTS[server][method]), rng)
        found[assert_answered(port, method, body, f"seed {server}, call {number}")] += 1
    assert found[OK] > 0
    assert found[INTERNAL] > CALLS / 10


def test_puts(servers: Servers) -> None:
    rng = random.Random("puts")
    found: Counter[str] = Counter()
    servers.cluster.create_shuffle(SHUFFLE, partitions=3)
    for number in range(CALLS):
        body = hostile_put(rng)
        what = f"seed puts, call {number}"
        found[assert_answered(port_of(servers.data), "DoPut", body, what)] += 1
    assert found[OK] > CALLS / 10
    assert sum(found.values()) - found[OK] > CALLS / 10


@pytest.mark.parametrize("server", ["metadata", "data"])
def test_garbage_on_the_port(server: str, servers: Servers) -> None:
    rng = random.Random(f"garbage {server}")
    for _ in range(GARBAGE):
        address = ("127.0.0.1", port_of(getattr(servers, server)))
        with socket.create_connection(address, hang_s()) as connection:
            start = rng.choice((b"", PREFACE, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"))
            connection.sendall(start + random_bytes(rng))
