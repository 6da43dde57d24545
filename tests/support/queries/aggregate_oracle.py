"""What an aggregate of a group must be, in exact numbers of Python."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa

from mrflight.compute.quantiles import quantile_type
from mrflight.compute.t_digest import estimate_type
from mrflight.config.aggregates import APPROXIMATIONS, QUANTILES, VARIANCES
from tests.support.queries.column_kinds import same


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def expected(function: str, type_: pa.DataType, values: list[Any]) -> Any:
    """Return an aggregate of a group's values in their order, exactly if numbers allow it."""
    found = [value for value in values if value is not None]
    if function == "count":
        return len(found)
    if function == "count_distinct":
        return len({same(value) for value in found})
    if not found:
        return None
    if function in ("first", "last"):
        return found[0 if function == "first" else -1]
    if function in ("min", "max"):
        # What the greatest is where there is a NaN among numbers, is not said anywhere.
        numbers = [value for value in found if not is_nan(value)] or found
        return min(numbers) if function == "min" else max(numbers)
    if function == "bool_and":
        return all(found)
    if function == "bool_or":
        return any(found)
    if function in VARIANCES:
        return variance(function, found)
    if function in (*QUANTILES, *APPROXIMATIONS):
        return median(type_, found)
    if pa.types.is_floating(type_):
        total = math.nan if {math.inf, -math.inf} <= set(found) else sum(found)
        return total if function == "sum" else total / len(found)
    exact = sum(Fraction(value) for value in found)
    return exact if function == "sum" else exact / len(found)


def variance(function: str, found: list[Any]) -> float | None:
    divisor = len(found) - (not function.endswith("_pop"))
    if not divisor:
        return None
    if not all(map(math.isfinite, found)):
        return math.nan
    exact = list(map(Fraction, found))
    mean = sum(exact) / len(exact)
    found_variance = float(sum((value - mean) ** 2 for value in exact) / divisor)
    return math.sqrt(found_variance) if function.startswith("stddev") else found_variance


def median(type_: pa.DataType, found: list[Any]) -> Any:
    ordered = sorted(found, key=lambda value: (is_nan(value), value))
    low, high = ordered[(len(found) - 1) // 2], ordered[len(found) // 2]
    if pa.types.is_floating(type_):
        return low if low == high else (low + high) / 2
    middle = (Fraction(low) + Fraction(high)) / 2
    return middle * 86_400 // 1 if pa.types.is_date32(type_) else middle


def result_type(function: str, type_: pa.DataType) -> pa.DataType:
    if function.startswith("count"):
        return pa.int64()
    if function in ("min", "max", "first", "last", "bool_and", "bool_or"):
        return type_
    if function in VARIANCES:
        return pa.float64()
    if function in QUANTILES:
        return quantile_type(type_)
    if function in APPROXIMATIONS:
        return estimate_type(type_)
    if pa.types.is_decimal(type_):
        if function == "mean":
            return type_
        wide = pa.types.is_decimal256(type_)
        return pa.decimal256(76, type_.scale) if wide else pa.decimal128(38, type_.scale)
    if pa.types.is_duration(type_):
        return type_
    if function == "mean" or pa.types.is_floating(type_):
        return pa.float64()
    return pa.uint64() if pa.types.is_uint64(type_) else pa.int64()


def agrees(result: Any, wanted: Any, function: str, type_: pa.DataType) -> bool:
    if wanted is None or result is None:
        return result is wanted
    if is_nan(wanted):
        return is_nan(result)
    if function == "mean" and pa.types.is_decimal(type_):
        return bool(abs(Fraction(result) - wanted) <= Fraction(1, 10**type_.scale))
    if function in QUANTILES and pa.types.is_decimal(type_):
        return bool(Fraction(result) * 10**type_.scale == nearest(wanted * 10**type_.scale))
    if function in ("mean", *QUANTILES) and pa.types.is_temporal(type_):
        return bool(result == nearest(wanted))
    if function in APPROXIMATIONS and pa.types.is_temporal(type_):
        return bool(abs(result - wanted) <= Fraction(1, 2))
    if function in VARIANCES:
        return math.isclose(result, wanted, rel_tol=1e-12)
    if isinstance(wanted, Fraction) and isinstance(result, float):
        return math.isclose(result, wanted, rel_tol=1e-15)
    return bool(result == wanted)


def nearest(value: Fraction) -> int:
    """Return the nearest integer; halves are rounded away from zero."""
    rounded = math.floor(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def groups_of(keys: list[Any]) -> dict[Any, list[int]]:
    """Return the rows of each key. Keys are in the order of their first rows."""
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows
