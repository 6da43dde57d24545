"""Columns of every type that a shuffle carries, with values that are hard on aggregates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from mrflight.config.aggregates import FUNCTIONS, Aggregate
from mrflight.errors import JobFileError
from mrflight.tasks.operators.aggregates import check_aggregates

EXACT = Context(prec=200)


@dataclass(frozen=True)
class Kind:
    """A column type and its values as Python has them: times are their numbers."""

    type: pa.DataType
    values: st.SearchStrategy[Any]

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self._is_time():
            return pa.array(values, self._number()).view(self.type)
        return pa.array(values, self.type, from_pandas=False)

    def list(self, column: pa.ChunkedArray) -> list[Any]:
        array = column.combine_chunks()
        values = (array.view(self._number()) if self._is_time() else array).to_pylist()
        # NumPy's halves are no floats of Python.
        return [float(v) if pa.types.is_float16(self.type) and v is not None else v for v in values]

    def _is_time(self) -> bool:
        return bool(pa.types.is_temporal(self.type))

    def _number(self) -> pa.DataType:
        return pa.int32() if self.type.bit_width == 32 else pa.int64()


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    """Few distinct values, and none so large that a sum of some leaves 53 bits."""
    most = min(2 ** (bits - signed) - 1, 2**40)
    return st.sampled_from([0, 1, 2, most] + ([-1, -most] if signed else []))


def _decimals(precision: int) -> st.SearchStrategy[Decimal]:
    largest = Decimal("9" * (precision - 4)).scaleb(-2, EXACT)
    return st.sampled_from([Decimal("0.00"), Decimal("-1.25"), Decimal("0.01"), largest, -largest])


_numbers = st.sampled_from([0, 1, 2, 3600, 86_000])
_floats = st.sampled_from([0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf])

KINDS = [
    Kind(pa.null(), st.none()),
    Kind(pa.bool_(), st.booleans()),
    *(Kind(getattr(pa, f"int{bits}")(), _integers(bits, True)) for bits in (8, 16, 32, 64)),
    *(Kind(getattr(pa, f"uint{bits}")(), _integers(bits, False)) for bits in (8, 16, 32, 64)),
    *(Kind(getattr(pa, f"float{bits}")(), _floats) for bits in (16, 32, 64)),
    Kind(pa.string(), st.sampled_from(["", "a", "ab", "ä", "a\0"])),
    Kind(pa.binary(), st.sampled_from([b"", b"\x00", b"\xff", b"ab"])),
    Kind(pa.binary(2), st.sampled_from([b"ab", b"\x00\xff"])),
    Kind(pa.date32(), _numbers),
    Kind(pa.date64(), _numbers.map(lambda day: day * 86_400_000)),
    *(Kind(pa.time32(unit), _numbers) for unit in ("s", "ms")),
    *(Kind(pa.time64(unit), _numbers) for unit in ("us", "ns")),
    *(Kind(pa.timestamp(unit), _numbers) for unit in ("s", "ms", "us", "ns")),
    Kind(pa.timestamp("us", "Europe/Rome"), _numbers),
    *(
        Kind(pa.duration(unit), st.sampled_from([0, 1, -5, 86_000]))
        for unit in ("s", "ms", "us", "ns")
    ),
    Kind(pa.decimal32(9, 2), _decimals(9)),
    Kind(pa.decimal64(18, 2), _decimals(18)),
    Kind(pa.decimal128(38, 2), _decimals(38)),
    Kind(pa.decimal256(76, 2), _decimals(76)),
]


def same(value: Any) -> Any:
    """Return a value that equal values have in common: all NaNs are one, and both zeros are."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def aggregate(function: str, column: str = "v") -> Aggregate:
    return Aggregate(function, function, column)  # type: ignore[arg-type]


@st.composite
def chunked(draw: st.DrawFn, array: pa.Array) -> pa.ChunkedArray:
    """An array in chunks, some of them empty, or in none at all where it is."""
    cuts = sorted(draw(st.lists(st.integers(0, len(array)), max_size=3)))
    bounds = [0, *cuts, len(array)]
    chunks = [array.slice(a, b - a) for a, b in pairwise(bounds)]
    none = len(array) == 0 and draw(st.booleans())
    return pa.chunked_array([] if none else chunks, array.type)


def with_nulls(kind: Kind) -> st.SearchStrategy[Any]:
    return st.none() | kind.values


def admitted(type_: pa.DataType) -> list[str]:
    """The functions that a column of this type may be given to."""

    def takes(function: str) -> bool:
        schema = pa.schema({"k": pa.int64(), "v": type_})
        try:
            check_aggregates(schema, ("k",), (aggregate(function),))
        except JobFileError:
            return False
        return True

    return [function for function in FUNCTIONS if takes(function)]
