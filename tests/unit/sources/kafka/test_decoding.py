"""Tests of what becomes of messages: their rows, their metadata, and those that are bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.text_options import JsonOptions
from mrflight.errors import BadRowError
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats.arrow_format import ArrowFormat
from mrflight.sources.kafka.formats.json_format import JsonFormat
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.sources.kafka.rejected_message import find_rejected
from tests.support.faults.inflating import inflating_stream
from tests.support.suite.messages import refused

SCHEMA = pa.schema([("n", pa.int64())])
JSON = JsonFormat("trips", SCHEMA, frozenset(["n"]), "error", JsonOptions())
BAD = [b"", b"null", b"7", b'{"n": "x"}', b'{"n": 1}{"n": 2}', b'{"n":', b"\xff", b'{"m": 1}']
GOOD = st.integers(0, 99).map(lambda n: json.dumps({"n": n}).encode())


class KeptRows(BadRowLog):
    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.offsets: list[int] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.offsets += [each.line for each in describe()]


def messages(values: list[bytes | None]) -> Messages:
    rows = len(values)
    offsets = pa.array(range(100, 100 + rows), pa.int64())
    keys = pa.nulls(rows, pa.binary())
    times = pa.array([-1] * rows, pa.int64())
    return Messages("trips", 3, offsets, times, keys, pa.array(values, pa.binary()))


@given(values=st.lists(GOOD | st.sampled_from(BAD) | st.none(), max_size=30))
@pytest.mark.parametrize("with_metadata", [False, True])
def test_every_message_is_a_row_or_rejected(
    values: list[bytes | None], with_metadata: bool
) -> None:
    schema = pa.schema([*SCHEMA, *(METADATA if with_metadata else ())])
    log = KeptRows()
    decoder = MessageDecoder("trips", JSON, schema, with_metadata)
    batch = decoder.decode(messages(values), log)
    is_bad = [v in BAD or (v is None and not with_metadata) for v in values]
    assert log.offsets == [100 + i for i, bad in enumerate(is_bad) if bad]
    kept = [(100 + i, v) for i, v in enumerate(values) if not is_bad[i]]
    assert batch.schema == schema
    assert batch.column("n").to_pylist() == [
        None if v is None else json.loads(v)["n"] for _, v in kept
    ]
    if with_metadata:
        assert batch.column("_offset").to_pylist() == [offset for offset, _ in kept]
        assert batch.column("_timestamp").null_count == len(kept)


@pytest.mark.parametrize("value", [*BAD, None])
def test_a_bad_message_is_named(value: bytes | None) -> None:
    decoder = MessageDecoder("trips", JSON, SCHEMA, with_metadata=False)
    with refused(BadRowError):
        decoder.decode(messages([b'{"n": 1}', value, b'{"n": 2}']), None)


def test_messages_of_several_rows_repeat_their_metadata() -> None:
    def stream(rows: int) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.record_batch([pa.array(range(rows), pa.int64())], SCHEMA))
        return sink.getvalue().to_pybytes()

    schema = pa.schema([*SCHEMA, METADATA.field("_offset")])
    decoder = MessageDecoder("trips", ArrowFormat(SCHEMA), schema, with_metadata=True)
    values = [stream(2), stream(0), None, b"junk", stream(1)]
    log = KeptRows()
    batch = decoder.decode(messages(values), log)
    assert batch.to_pylist() == [
        {"n": 0, "_offset": 100},
        {"n": 1, "_offset": 100},
        {"n": None, "_offset": 102},
        {"n": 0, "_offset": 104},
    ]
    assert log.offsets == [103]


def test_a_message_is_refused_before_it_inflates_too_far() -> None:
    decoder = MessageDecoder("trips", ArrowFormat(SCHEMA), SCHEMA, with_metadata=False)
    with refused(BadRowError):
        decoder.decode(messages([inflating_stream(2**25).to_pybytes()]), None)


@given(bad=st.sets(st.integers(0, 63)))
def test_rejected_values_are_found_with_few_reads(bad: set[int]) -> None:
    reads = 0

    def decode(values: pa.BinaryArray) -> None:
        nonlocal reads
        reads += 1
        if found := [each for each in values.to_pylist() if int(each) in bad]:
            raise ValueError(found[0])

    values = pa.array([str(i).encode() for i in range(64)], pa.binary())
    assert set(find_rejected(values, decode)) == bad
    assert reads <= 1 + 2 * 6 * len(bad)
