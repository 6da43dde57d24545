"""Tests that a seed gives the same bytes each time, with every kind of damage among them."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
import pytest

from tests.support.faults.hostile_bytes import (
    DEEP,
    damaged,
    example_of,
    hostile_json,
    hostile_lines,
    random_bytes,
)

VALID = b'{"id": "clicks", "rows": [1, 2], "inner": {"a": null}}'
LINES = '[job]\nname = "a"\nattempts = 4\n'
ROUNDS = 2_000

MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "damaged": lambda rng: damaged(VALID, rng),
    "hostile_json": lambda rng: hostile_json(VALID, rng),
    "hostile_lines": lambda rng: hostile_lines(LINES, rng, ("1", '"x"', "[[]]")),
    "random_bytes": random_bytes,
}


def generate(make: Callable[[random.Random], bytes], seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [make(rng) for _ in range(ROUNDS)]


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_determines_all_bytes(name: str) -> None:
    first = generate(MAKERS[name], 1)
    assert first == generate(MAKERS[name], 1)
    assert first != generate(MAKERS[name], 2)


def test_valid_bytes_are_damaged_in_many_ways() -> None:
    generated = generate(MAKERS["damaged"], 3)
    assert generated.count(VALID) < ROUNDS / 20
    assert len(set(generated)) > ROUNDS * 0.6
    assert any(data and VALID.startswith(data) for data in generated)
    assert any(len(data) > 4_000 for data in generated)
    assert any(b"\xff\xfe" in data for data in generated)


def test_empty_bytes_can_be_damaged() -> None:
    rng = random.Random(4)
    assert len({damaged(b"", rng) for _ in range(ROUNDS)}) > 50


def fields_of(body: bytes) -> list[tuple[str, object]] | None:
    try:
        pairs: object = json.loads(body, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError):
        return None
    is_object = isinstance(pairs, list) and all(isinstance(pair, tuple) for pair in pairs)
    return pairs if is_object and isinstance(pairs, list) else None


def test_json_is_hostile_in_syntax_and_values() -> None:
    generated = generate(MAKERS["hostile_json"], 5)
    parsed = [fields for body in generated if (fields := fields_of(body)) is not None]
    assert ROUNDS * 0.3 < len(parsed) < ROUNDS * 0.9
    names = [[name for name, _ in fields] for fields in parsed]
    assert any("no_such_field" in each for each in names)
    assert any(len(each) > len(set(each)) for each in names)
    assert any("id" not in each for each in names)
    assert any(isinstance(value, int) and value > 2**64 for each in parsed for _, value in each)
    assert any(body.count(b"[") >= DEEP or body.count(b"{") >= DEEP for body in generated)


def test_some_lines_are_valid_toml() -> None:
    parsed = 0
    for text in generate(MAKERS["hostile_lines"], 6):
        try:
            parsed += tomllib.loads(text.decode()) != tomllib.loads(LINES)
        except ValueError:
            continue
    assert ROUNDS * 0.1 < parsed < ROUNDS * 0.9


class Inner(msgspec.Struct, frozen=True):
    name: str


class Outer(msgspec.Struct, frozen=True):
    inner: list[Inner]
    numbers: tuple[int, ...]
    pair: tuple[int, str]
    maybe: int | None
    kind: Literal["a", "b"]
    body: bytes
    by_name: dict[str, float]
    bounded: Annotated[int, msgspec.Meta(ge=0)]


def test_an_example_is_a_value_of_its_type() -> None:
    rng = random.Random(7)
    for _ in range(ROUNDS):
        example = example_of(Outer, rng)
        assert msgspec.json.decode(msgspec.json.encode(example), type=Outer) == example


def test_a_type_without_an_example_is_an_error() -> None:
    with pytest.raises(TypeError, match="complex"):
        example_of(complex, random.Random(8))
