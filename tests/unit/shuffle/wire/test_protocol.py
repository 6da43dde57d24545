"""Any bytes are decoded to a message within its bounds, or raise ProtocolError."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import ProtocolError
from mrflight.shuffle.wire.cluster_status import Heartbeat
from mrflight.shuffle.wire.lease_protocol import LeaseCommits
from mrflight.shuffle.wire.log_protocol import CreateLog
from mrflight.shuffle.wire.move_protocol import PlanMove
from mrflight.shuffle.wire.protocol import (
    MAX_BODY_BYTES,
    CommitMap,
    JobName,
    Message,
    PutShuffle,
    ShuffleName,
    decode,
)
from mrflight.shuffle.wire.tickets import BlockStream
from tests.support.faults.damaged_bytes import damaged
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

few_examples = settings(max_examples=some_of(40), derandomize=True)

MESSAGES = sorted({*Message.__subclasses__(), BlockStream}, key=lambda message: message.__name__)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Draw values of a message's field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint == JobName:
        return st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
    if origin is typing.Annotated:
        bounds = arguments[1]
        if bounds.pattern:
            longest = 10**6 if bounds.max_length is None else bounds.max_length
            return st.from_regex(bounds.pattern).filter(lambda text: len(text) <= longest)
        if bounds.ge is not None:
            return st.integers(bounds.ge, bounds.le)
        return values_of(arguments[0])
    if origin is types.UnionType:
        return st.one_of(*map(values_of, arguments))
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if isinstance(hint, type) and issubclass(hint, Message):
        return messages_of(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        int: st.integers(-(2**63), 2**63 - 1),
        bytes: st.binary(max_size=8),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        types.NoneType: st.none(),
    }
    return plain[hint]


def test_messages_of_all_modules_are_known() -> None:
    assert {CreateLog, Heartbeat, LeaseCommits, PlanMove} <= set(MESSAGES)


def messages_of(message: type[Message]) -> st.SearchStrategy[Message]:
    hints = typing.get_type_hints(message, include_extras=True)
    return st.builds(message, **{name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("message", MESSAGES)
@few_examples
@given(data=st.data())
def test_every_message_comes_back(message: type[Message], data: st.DataObject) -> None:
    sent = data.draw(messages_of(message))
    assert decode(msgspec.json.encode(sent), message) == sent
    assert decode(memoryview(msgspec.json.encode(sent)), message) == sent


@pytest.mark.parametrize("message", MESSAGES)
@few_examples
@given(data=st.data())
def test_any_bytes_are_a_message_or_refused(message: type[Message], data: st.DataObject) -> None:
    valid = messages_of(message).map(msgspec.json.encode)
    body = data.draw(st.one_of(damaged(valid), st.binary(max_size=30)))
    try:
        decoded = decode(body, message)
    except ProtocolError as error:
        assert str(error).startswith(f"{message.__name__}: ")  # noqa: PT017 - or it is none
        return
    assert type(decoded) is message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"id":' * 50_000,
        b'{"id": "\xff"}',
        b'{"id": "\\ud800"}',
        b'{"no_such_field": 1}',
        b'{"reducers": 1' + b"0" * 5_000 + b"}",
        b'{"reducers": 1e400}',
        b'{"reducers": NaN}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
    ],
    ids=lambda body: body[:12],
)
def test_hostile_bodies_are_refused(body: bytes) -> None:
    for message in MESSAGES:
        with pytest.raises(ProtocolError):
            decode(body, message)


def test_a_number_of_many_digits_is_refused() -> None:
    body = b'{"id": "a", "reducers": 1' + b"0" * 5_000 + b"}"
    with pytest.raises(ProtocolError):
        decode(body, PutShuffle)


def test_a_body_above_the_limit_is_refused_without_decoding() -> None:
    body = memoryview(bytes(MAX_BODY_BYTES + 1))
    with refused(ProtocolError):
        decode(body, ShuffleName)


def test_a_refusal_says_where() -> None:
    body = (
        b'{"id": "a", "map_id": 1, "attempt": 0, "schema": "", "rows": [1, "x"], "size_bytes": []}'
    )
    with refused(ProtocolError):
        decode(body, CommitMap)
