"""Any bytes in place of a message are either a valid message or refused with a typed error.

The tests decode in this process, as servers and clients do. A decoded message equals what its
encoding decodes to. New messages and decoders are found without a change here.
"""

from __future__ import annotations

import inspect
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from mrflight import errors
from mrflight.errors import CorruptBlockError, MrflightError, ProtocolError
from mrflight.ids import MAX_ATTEMPTS, MAX_MAPS, MAX_PARTITIONS, ShuffleKey, check_shuffle_id
from mrflight.shuffle.wire import cluster_status, move_protocol, tickets
from mrflight.shuffle.wire import lease_protocol as table_protocol
from mrflight.shuffle.wire.block import Block, BlockTag, decode_block, encode_block, ipc_options
from mrflight.shuffle.wire.flight_errors import from_flight, to_flight
from mrflight.shuffle.wire.protocol import Message, decode
from mrflight.shuffle.wire.tickets import BlockStream, PartitionSlice, PutTarget, ReadTicket
from tests.support.faults.hostile_bytes import damaged, example_of, hostile_json, random_bytes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MAX_REFUSAL = 4_000
"""Bytes of a message that a server may answer with: gRPC refuses headers above some 8,000."""

MESSAGE_INPUTS = 62_000
NAME_INPUTS = 8_000
"""The inputs of each decoder of tickets and descriptors."""
TAG_INPUTS = 5_000
ERROR_INPUTS = 5_000
BLOCK_INPUTS = 400
"""The inputs of each compression. A block takes a hundred times as long as a message."""

COMPRESSIONS = ("none", "lz4", "zstd")


def every(kind: type[Message]) -> Iterator[type[Message]]:
    for message in kind.__subclasses__():
        yield message
        yield from every(message)


MESSAGES = sorted(set(every(Message)), key=lambda message: message.__name__)
INPUTS_OF_A_MESSAGE = -(-MESSAGE_INPUTS // len(MESSAGES))

NAMES: dict[str, list[bytes]] = {
    "decode_block_stream": [
        BlockStream("clicks", 3, 1, "w1").encode(),
        BlockStream("a.b-c", 0, 0).encode(),
    ],
    "decode_put_path": [b"clicks/7/3/1", b"clicks:f00/7/3/1", b"a.b-c/0/0/0"],
    "decode_ticket": [
        b"clicks/7/3",
        ReadTicket(ShuffleKey("clicks"), 7, 3, blocks=True, others=(8, 11)).encode(),
        ReadTicket(
            ShuffleKey("clicks"), 7, 3, blocks=True, partition_slice=PartitionSlice(2, 5)
        ).encode(),
        b"clicks/7/3.1/blocks",
    ],
    "decode_info_path": [b"clicks", b"clicks/7"],
}
"""The names that each decoder of a ticket or a descriptor accepts."""


def test_messages_of_all_modules_are_known() -> None:
    of_modules = {table_protocol.LeaseCommits, cluster_status.Heartbeat, move_protocol.PlanMove}
    assert of_modules <= set(MESSAGES)


def test_every_decoder_is_fed() -> None:
    decoders = {name for name in vars(tickets) if name.startswith("decode_")}
    assert set(NAMES) == decoders


def test_it_is_as_many_inputs_as_were_asked_for() -> None:
    messages = INPUTS_OF_A_MESSAGE * len(MESSAGES)
    blocks = BLOCK_INPUTS * len(COMPRESSIONS)
    assert messages + NAME_INPUTS * len(NAMES) + TAG_INPUTS + ERROR_INPUTS + blocks >= 100_000


def feed(
    decoder: Callable[[bytes], Any], make: Callable[[random.Random], bytes], name: str, inputs: int
) -> list[Any]:
    """Return what was decoded. A refusal is a ProtocolError that fits into an answer."""
    rng = random.Random(f"{name} 1")
    accepted = []
    longest = 0
    for number in range(inputs):
        body = make(rng)
        try:
            accepted.append(decoder(body))
        except (ProtocolError, CorruptBlockError) as refusal:
            longest = max(longest, len(str(refusal).encode()))
        except BaseException as error:
            error.add_note(f"{name}, input {number}: {body[:500]!r} ({len(body)} bytes)")
            raise
    assert 0 < len(accepted) < inputs
    assert 0 < longest <= MAX_REFUSAL
    return accepted


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_body_is_a_message_or_refused(message: type[Message]) -> None:
    def make(rng: random.Random) -> bytes:
        return hostile_json(msgspec.json.encode(example_of(message, rng)), rng)

    def there_and_back(body: bytes) -> None:
        decoded = decode(body, message)
        assert type(decoded) is message
        assert decode(msgspec.json.encode(decoded), message) == decoded

    feed(there_and_back, make, message.__name__, INPUTS_OF_A_MESSAGE)


@pytest.mark.parametrize("name", NAMES)
def test_a_ticket_or_descriptor_is_within_bounds_or_refused(name: str) -> None:
    decoder = getattr(tickets, name)
    takes_parts = "list[bytes]" in str(inspect.signature(decoder))

    def make(rng: random.Random) -> bytes:
        return random_bytes(rng) if rng.random() < 0.05 else damaged(rng.choice(NAMES[name]), rng)

    def decoded(body: bytes) -> Any:
        return decoder(body.split(b"/") if takes_parts else body)

    for accepted in feed(decoded, make, name, NAME_INPUTS):
        assert_within_bounds(accepted)


def assert_within_bounds(accepted: Any) -> None:
    partitions: tuple[int | None, ...]
    match accepted:
        case PutTarget(shuffle, source, partition):
            assert 0 <= source.map_id < MAX_MAPS
            assert 0 <= source.attempt < MAX_ATTEMPTS
            assert re.fullmatch("[A-Za-z0-9]{0,32}", source.writer)
            partitions = (partition,)
        case ReadTicket(ShuffleKey(shuffle), partition):
            assert tickets.decode_ticket(accepted.encode()) == accepted
            partitions = (partition, *accepted.others)
        case (ShuffleKey(shuffle), partition):
            partitions = (partition,)
        case _:
            raise AssertionError(f"nobody checks the bounds of {accepted!r}")
    assert check_shuffle_id(shuffle) == shuffle
    assert all(each is None or 0 <= each < MAX_PARTITIONS for each in partitions)


def test_a_tag_comes_back_or_is_refused() -> None:
    def make(rng: random.Random) -> bytes:
        tag = BlockTag(*(rng.choice((0, 1, 99_999, 2**31)) for _ in BlockTag._fields)).encode()
        return damaged(tag, rng) if rng.random() < 0.7 else tag

    def there_and_back(body: bytes) -> None:
        tag = BlockTag.decode(pa.py_buffer(body))
        assert 0 <= tag.partition < MAX_PARTITIONS
        assert BlockTag.decode(pa.py_buffer(tag.encode())) == tag

    feed(there_and_back, make, "BlockTag", TAG_INPUTS)


# Errors, as a client decodes them


ERRORS = sorted(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, MrflightError)
)


def test_a_servers_error_is_one_of_ours_whatever_it_carries() -> None:
    rng = random.Random(2)
    kinds = set()
    for number in range(ERROR_INPUTS):
        valid = to_flight(getattr(errors, rng.choice(ERRORS))("it is \u00e4gainst the rules"))
        carried = hostile_json(valid.extra_info, rng) if rng.random() < 0.9 else valid.extra_info
        with pytest.raises(MrflightError) as raised, from_flight("grpc+tcp://x:1", "asking"):
            raise flight.FlightServerError(f"answer {number}", extra_info=carried)
        kinds.add(type(raised.value).__name__)
    assert kinds == set(ERRORS)


# Blocks, in a process of their own, which they may crash


BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "text": ["a", None, "a longer text"],
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "list": [[1], [], None],
        "struct": [{"a": 1, "b": ["z"]}, None, {"a": None, "b": []}],
        "view": pa.array(["a text that is longer than a view", "", None], pa.string_view()),
    }
)


def feed_blocks(compression: str) -> None:
    """Decode damaged blocks, each with the hash of its damaged bytes, so that the hash is right."""
    body = encode_block([BATCH], ipc_options(compression)).body.to_pybytes()
    made: Callable[[random.Random], bytes] = lambda rng: damaged(body, rng, (b"\xff" * 4,))  # noqa: E731
    whole: Callable[[bytes], Any] = lambda data: decode_block(Block.of(3, pa.py_buffer(data)))  # noqa: E731
    for batch in feed(whole, made, f"blocks {compression}", BLOCK_INPUTS):
        assert batch.num_rows == 3
        batch.validate(full=True)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_block_is_valid_or_refused(compression: str) -> None:
    code = (
        f"from tests.fault.test_hostile_messages import feed_blocks; feed_blocks({compression!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, f"{code}: {done.stderr.decode()[-2000:]}"
