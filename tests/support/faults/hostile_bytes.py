"""Makes hostile bytes: something valid, damaged in the ways that decoders break on.

All is drawn from a `random.Random` that the caller seeds, so that a seed is a whole run.
"""

from __future__ import annotations

import json
import random
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

DEEP = 100_000
"""The depth of a value that is nested too deeply: no decoder may recurse so far."""

TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b"\r\n"),
    *(b'"', b"'", b"\\", b"\\ud800", b"\\u0000", b"{", b"}", b"[", b"]", b":", b",", b"="),
    *(b"/", b"//", b"../", b"-", b".", b"-of-", b"blocks", b"%00", b"#", b" "),
    *(b"9", b"-1", b"9" * 19, b"9" * 400, b"9" * 5_000, b"1e999", b"0x", b"NaN", b"null", b"true"),
    "\u0661\u200b\U0001f4a3".encode(),
)
"""Texts that are hard for text formats."""

NUMBERS: tuple[bytes, ...] = tuple(
    (value % 2**64).to_bytes(8, "little")[:width]
    for width in (1, 2, 4, 8)
    for value in (0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63)
)
"""Numbers that are hard for binary formats, as lengths and offsets."""

_DEEP_MARK = "<nested too deeply>"

_ODD_TEXTS = ("", "\0", "\ud800", "x" * 300, "x" * 100_000, "../../x", "a/b", "\U0001f4a3" * 200)
_ODD_NUMBERS = (0, -1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**4_000)
_ODD_FLOATS = (0.5, -0.0, 1e308, float("inf"), float("nan"))
_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, [], {}, [[]], [None], {"": 0}, {"id": {}}, "2026-11-20", _DEEP_MARK),
    *_ODD_TEXTS,
    *_ODD_NUMBERS,
    *_ODD_FLOATS,
)


def random_bytes(rng: random.Random) -> bytes:
    """Bytes of nothing at all, up to some thousand."""
    return rng.randbytes(rng.choice((0, 1, 2, 8, 40, 300, 4_000)))


def damaged(valid: bytes, rng: random.Random, tokens: Sequence[bytes] = TOKENS) -> bytes:
    """``valid`` with one to four of: a bit turned, a cut, a loss, a repeat, something put in."""
    data = bytearray(valid)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        rng.choice(_HURTS)(data, at, rng, tokens)
    return bytes(data)


def hostile_json(valid: bytes, rng: random.Random) -> bytes:
    """A JSON object with a value of a wrong kind, a field too many or too few, or damaged bytes."""
    if rng.random() < 0.4:
        return damaged(valid, rng)
    if rng.random() < 0.05:
        return random_bytes(rng)
    document = json.loads(valid)
    for _ in range(rng.choice((1, 1, 2))):
        document = _damaged_document(document, rng)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    encoded = text.encode("utf-8", errors="surrogatepass")
    encoded = encoded.replace(f'"{_DEEP_MARK}"'.encode(), rng.choice((b"[", b'{"a":')) * DEEP)
    return _with_a_field_twice(encoded, document, rng) if rng.random() < 0.1 else encoded


def hostile_lines(valid: str, rng: random.Random, values: Sequence[str]) -> bytes:
    """Lines ``key = value`` with one of ``values`` in a wrong place, lost, doubled or damaged."""
    if rng.random() < 0.4:
        return damaged(valid.encode(), rng)
    lines = valid.splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        key, equals, value = lines[at].partition("=")
        odd = rng.choice(values)
        lines[at : at + 1] = rng.choice(
            (
                [f"{key}= {odd}"],
                [f"{odd} ={value}"],
                [f"{key.rstrip()}.{odd} {equals}{value}"],
                [],
                [lines[at], rng.choice(lines)],
                [rng.choice(lines), lines[at]],
                [f"[{odd}]", lines[at]],
            )
        )
        lines = lines or [odd]
    return "\n".join(lines).encode("utf-8", errors="surrogatepass")


def example_of(kind: Any, rng: random.Random) -> Any:
    """A value of a type hint that a message may have; TypeError for one that is not known here."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return example_of(arguments[0], rng)
    if origin in (typing.Union, types.UnionType):
        return example_of(rng.choice(arguments), rng)
    if origin is typing.Literal:
        return rng.choice(arguments)
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return origin(example_of(arguments[0], rng) for _ in range(rng.randrange(4)))
    if origin is tuple:
        return tuple(example_of(argument, rng) for argument in arguments)
    if origin is dict:
        return {example_of(arguments[0], rng): example_of(arguments[1], rng) for _ in range(2)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: example_of(hint, rng) for name, hint in hints.items()})
    if kind not in _PLAIN:
        raise TypeError(f"no example of {kind!r} is known; add it to this module")
    return _PLAIN[kind](rng)


_PLAIN: dict[Any, Callable[[random.Random], Any]] = {
    type(None): lambda rng: None,
    bool: lambda rng: rng.random() < 0.5,
    int: lambda rng: rng.choice((0, 1, 7, 1_000, 2**40)),
    float: lambda rng: rng.choice((0.0, 0.5, 30.0)),
    str: lambda rng: rng.choice(("", "a", "clicks-1", "grpc+tcp://127.0.0.1:5005", "\u00e4")),
    bytes: lambda rng: rng.randbytes(rng.randrange(9)),
}


def _damaged_document(document: Any, rng: random.Random) -> Any:
    """A JSON value with one place in it changed, however deep it lies."""
    inner = len(document) if isinstance(document, dict | list) else 0
    if not inner or rng.random() < 0.1:
        return rng.choice(_ODD_VALUES)
    changed = document.copy()
    place = rng.choice(list(document)) if isinstance(document, dict) else rng.randrange(inner)
    match rng.choice(("change", "change", "change", "lose", "more")):
        case "change":
            changed[place] = _damaged_document(changed[place], rng)
        case "lose":
            del changed[place]
        case "more" if isinstance(changed, dict):
            changed[rng.choice(("no_such_field", *_ODD_TEXTS))] = rng.choice(_ODD_VALUES)
        case "more":
            changed.extend([changed[place]] * rng.choice((1, 1_000)))
    return changed


def _with_a_field_twice(encoded: bytes, document: Any, rng: random.Random) -> bytes:
    if not isinstance(document, dict) or not document:
        return encoded
    again = json.dumps({rng.choice(list(document)): rng.choice(_ODD_NUMBERS)})
    return encoded[:-1] + b"," + again[1:].encode("utf-8", errors="surrogatepass")


def _turn_a_bit(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    for place in range(at, min(at + 1, len(data))):
        data[place] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    del data[at:]


def _lose(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    del data[at : at + rng.randrange(1, 16)]


def _repeat(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    data[at:at] = data[at : at + rng.randrange(1, 64)] * rng.choice((1, 2, 50))


def _move(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    piece = data[at : at + rng.randrange(1, 32)]
    there = rng.randrange(len(data) + 1)
    data[there : there + len(piece)] = piece


def _put_in(data: bytearray, at: int, rng: random.Random, tokens: Sequence[bytes]) -> None:
    data[at : at + rng.randrange(2)] = rng.choice(tokens)


def _put_in_a_number(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    number = rng.choice(NUMBERS)
    data[at : at + len(number)] = number


def _put_in_noise(data: bytearray, at: int, rng: random.Random, _: Sequence[bytes]) -> None:
    data[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(1, 8))


_HURTS = (_turn_a_bit, _cut, _lose, _repeat, _move, _put_in, _put_in_a_number, _put_in_noise)
