"""Functions that queries of tests call: right ones, and some that go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

import mrflight

HERE = "tests.support.queries.functions"


def plus_one(number: pa.Int64Array) -> pa.Int64Array:
    return pc.add(number, 1)


def label(number: pa.Int64Array, text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(number.cast(pa.string()), text, "-")


def missing(text: pa.StringArray) -> pa.BooleanArray:
    return pc.is_null(text)


@mrflight.udf([pa.decimal128(10, 2)], pa.decimal128(10, 2), volatility="volatile")
def negative(number: pa.Array) -> pa.Array:
    return pc.negate(number)


class Spread:
    """The difference between the largest and the smallest value; null without values."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def update(self, values: pa.Int64Array) -> None:
        found = pc.min_max(values).as_py()
        self._add([found["min"], found["max"]])

    def merge(self, states: list[pa.Array]) -> None:
        self._add([value for state in states for value in state.to_pylist()])

    def _add(self, values: list[int | None]) -> None:
        known = [*self.ends, *(value for value in values if value is not None)]
        self.ends = [min(known), max(known)] if known else []

    def state(self) -> tuple[int | None, int | None]:
        return (self.ends[0], self.ends[1]) if self.ends else (None, None)

    def evaluate(self) -> int | None:
        return self.ends[1] - self.ends[0] if self.ends else None


class Kinds:
    """How many distinct texts there are, with all of them as its state."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def update(self, texts: pa.StringArray) -> None:
        self.texts.update(texts.drop_null().to_pylist())

    def merge(self, states: list[pa.Array]) -> None:
        for texts in states[0].to_pylist():
            self.texts.update(texts)

    def state(self) -> tuple[Annotated[list[str], pa.list_(pa.string())]]:
        return (sorted(self.texts),)

    def evaluate(self) -> pa.Int64Scalar:
        return pa.scalar(len(self.texts))


@mrflight.udaf([pa.int64(), pa.float64()], pa.float64(), [pa.float64()])
class Weighted:
    """The sum of products; 0 without values. Its methods have no hints that tell its types."""

    def __init__(self) -> None:
        self.sum = 0.0

    def update(self, numbers: pa.Array, weights: pa.Array) -> None:
        self.sum += pc.sum(pc.multiply(numbers, weights)).as_py() or 0.0

    def merge(self, states: list[pa.Array]) -> None:
        self.sum += pc.sum(states[0]).as_py()

    def state(self) -> list[float]:
        return [self.sum]

    def evaluate(self) -> float:
        return self.sum


NAMES: Mapping[str, str] = {
    name.lower(): f"{HERE}:{name}"
    for name in ("plus_one", "label", "missing", "negative", "Spread", "Kinds", "Weighted")
}
"""What a job calls the functions, and where they are."""


def shorter(text: pa.StringArray) -> pa.StringArray:
    return text.slice(1)


def other_type(text: pa.StringArray) -> pa.Int32Array:
    return pc.utf8_length(text).cast(pa.int64())


def nothing(text: pa.StringArray) -> pa.Int32Array:
    pc.utf8_length(text)


def raising(text: pa.StringArray) -> pa.StringArray:
    raise ValueError(f"no text of {len(text)} is good")


class BadState(Spread):
    def state(self) -> tuple[int, int]:
        return (1,)  # type: ignore[return-value]


class NoList(Spread):
    def evaluate(self) -> Annotated[list[int] | None, pa.list_(pa.int64())]:  # type: ignore
        return None


class BadResult(Spread):
    def evaluate(self) -> int:
        return "many"  # type: ignore[return-value]


class RaisingMerge(Spread):
    def merge(self, states: list[pa.Array]) -> None:
        raise KeyError("lost")
