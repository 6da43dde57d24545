"""Edits encoded protobuf messages without their schema.

DataFusion encodes a plan as nested messages, and the bytes of a child lie unchanged in those of its
parent. So a part of a plan is replaced by replacing its bytes, and the lengths of the messages
around it (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The types of fields on the wire."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """A field of a message: its number and type, and where its value and the whole field lie."""

    number: int
    kind: int
    start: int
    value: int
    """Where its value starts: behind the tag, and behind the length if it has one."""
    end: int


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message. Raises ValueError if it is none."""
    at, size = 0, len(message)
    while at < size:
        start = at
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value = at
        if kind == VARINT:
            _, end = _varint(message, at)
        elif kind == LENGTH:
            length, value = _varint(message, at)
            end = value + length
        elif kind in _FIXED_BYTES:
            end = at + _FIXED_BYTES[kind]
        else:
            raise ValueError(f"byte {start} has no field of a known type")
        if end > size or number == 0:
            raise ValueError(f"the field at byte {start} ends beyond the message")
        yield Field(number, kind, start, value, end)
        at = end


def encode_varint(value: int) -> bytes:
    """Return a number of 0 or more as a varint: seven bits in each byte, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def encode_field(number: int, value: bytes | int) -> bytes:
    """Return a field with bytes, which may be a message, or with a number."""
    if isinstance(value, int):
        return encode_varint(number << 3 | VARINT) + encode_varint(value)
    return encode_varint(number << 3 | LENGTH) + encode_varint(len(value)) + value


def values_of(message: bytes, number: int) -> list[bytes]:
    """Return the values of the fields of a number that have bytes."""
    return [
        message[each.value : each.end]
        for each in fields(message)
        if each.number == number and each.kind == LENGTH
    ]


def number_of(message: bytes, number: int) -> int:
    """Return the number in a field; 0 if it is not there, as protobuf has it."""
    for each in fields(message):
        if each.number == number and each.kind == VARINT:
            return _varint(message, each.value)[0]
    return 0


def numbers_of(message: bytes, number: int) -> list[int]:
    """Return the numbers in a repeated field, which are packed."""
    found = []
    for packed in values_of(message, number):
        at = 0
        while at < len(packed):
            value, at = _varint(packed, at)
            found.append(value)
    return found


def with_values(message: bytes, number: int, values: list[bytes]) -> bytes:
    """Return the message with these values in place of those of a repeated field."""
    kept = (message[each.start : each.end] for each in fields(message) if each.number != number)
    return b"".join([*kept, *(encode_field(number, value) for value in values)])


def with_number(message: bytes, number: int, value: int) -> bytes:
    """Return the message with a number in place of that of a field."""
    kept = (message[each.start : each.end] for each in fields(message) if each.number != number)
    return b"".join([*kept, encode_field(number, value)])


def only_field(message: bytes) -> tuple[int, bytes]:
    """Return the number and the value of the only field of a message. Raises ValueError."""
    found = list(fields(message))
    if len(found) != 1 or found[0].kind != LENGTH:
        raise ValueError(f"the message has {len(found)} fields, not one message in it")
    return found[0].number, message[found[0].value : found[0].end]


def with_children(node: bytes, old: Sequence[bytes], new: Sequence[bytes]) -> bytes:
    """Return a message in a message with other values of those of its fields that are ``old``.

    These are in the order of the fields. Equal ones may be replaced by different values.
    Raises ValueError if one is not there.
    """
    number, message = only_field(node)
    out, last, waiting = [], 0, list(zip(old, new, strict=True))
    for each in fields(message):
        if each.kind == LENGTH and waiting and message[each.value : each.end] == waiting[0][0]:
            out += [message[last : each.start], encode_field(each.number, waiting.pop(0)[1])]
            last = each.end
    if waiting:
        raise ValueError(f"the message has not {len(waiting)} of the {len(old)} messages in it")
    return encode_field(number, b"".join([*out, message[last:]]))


def replaced(message: bytes, old: bytes, new: bytes) -> bytes:
    """Return the message with every message in it that equals ``old`` replaced by ``new``.

    Raises ValueError if there is none.
    """
    if (found := _replaced(message, old, new)) is None:
        raise ValueError("the message has no such message in it")
    return found


def _replaced(message: bytes, old: bytes, new: bytes) -> bytes | None:
    """Return the message with ``old`` replaced, wherever it is; None if it is nowhere."""
    if message == old:
        return new
    try:
        found = list(fields(message))
    except (ValueError, IndexError):
        return None  # bytes that are no message, such as a text
    out, last = [], 0
    for each in found:
        if each.kind != LENGTH or each.end - each.value < len(old):
            continue
        value = message[each.value : each.end]
        if old in value and (inner := _replaced(value, old, new)) is not None:
            out += [message[last : each.start], encode_field(each.number, inner)]
            last = each.end
    return b"".join([*out, message[last:]]) if out else None


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a place, and the place behind it."""
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"the number before byte {at} has more than ten bytes")
