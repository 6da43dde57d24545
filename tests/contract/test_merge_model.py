"""Merges against a model: a dict by key, to which the same is done row by row."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.support.suite.examples import some_of
from tests.support.tables.merges import merge, read, unnamed_parts

DAY = datetime.date(2026, 11, 20)
MOMENT = datetime.datetime(2026, 11, 20, 9, 30, 0, 123456, tzinfo=datetime.UTC)
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**53) - 1, -1, 0, 1, 2, 2**62]),
    (pa.int8(), [-128, 0, 127]),
    (pa.string(), ["a", "a b", "ü/%=", "b" * 40, "b" * 41]),
    (pa.date32(), [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [MOMENT, MOMENT + datetime.timedelta(microseconds=1)]),
    (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), datetime.datetime(1970, 1, 1)]),
    (pa.bool_(), [False, True]),
    (pa.decimal128(20, 3), [Decimal("0.001"), Decimal("12345678901234567.890"), Decimal(0)]),
    (pa.float64(), [0.0, -0.0, math.nan, 1.5]),
    (pa.binary(), [b"", b"\xff\x00", b"a"]),
]
ORDER = ["D", "I", None]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Table], list[str], list[str]]:
    """Some sources one after the other, the keys' names, and what the table is partitioned by."""
    kinds = draw(st.lists(st.sampled_from(range(len(KEYS))), min_size=1, max_size=2))
    names = [f"k{number}" for number in range(len(kinds))]
    values = [st.sampled_from(KEYS[kind][1]) for kind in kinds]
    row = st.tuples(
        *values,
        st.sampled_from([None, "x", "y", "z"]),
        st.integers(0, 2),
        st.sampled_from(ORDER),
    )
    fields = [(name, KEYS[kind][0]) for name, kind in zip(names, kinds, strict=True)]
    schema = pa.schema([*fields, ("v", pa.string()), ("p", pa.int64()), ("op", pa.string())])
    sources = []
    for start in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(row, max_size=12))
        at = draw(st.permutations(range(len(rows))))  # no two are the same
        columns = list(zip(*rows, strict=True)) or [[] for _ in schema]
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
        arrays.append(pa.array([100 * start + number for number in at], pa.int32()))
        sources.append(pa.table(arrays, schema=schema.append(pa.field("at", pa.int32()))))
    able = [f.name for f in schema if f.name in (*names, "p") and can_be_folder(f.type)]
    by = draw(st.lists(st.sampled_from(able), max_size=2, unique=True)) if able else []
    return sources, names, by


def can_be_folder(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_floating(kind))


def canonical(value: Any) -> Any:
    """Equal for values that are one key."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def model(sources: list[pa.Table], names: list[str]) -> dict[Any, dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for source in sources:
        for row in sorted(source.to_pylist(), key=lambda row: row["at"]):
            key = tuple(canonical(row[name]) for name in names)
            if row.pop("op") == "D":
                found.pop(key, None)
            else:
                found[key] = row
    return found


def by_key(rows: list[dict[str, Any]], names: list[str]) -> dict[Any, dict[str, Any]]:
    found = {tuple(canonical(row[name]) for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


@given(tables())
@settings(max_examples=some_of(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_table_is_what_its_merges_come_to(
    given: tuple[list[pa.Table], list[str], list[str]],
) -> None:
    sources, names, by = given
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, source in enumerate(sources):
            merge(
                folder,
                source,
                names,
                order_by="at",
                delete_when="op = 'D'",
                partition_by=by,
                job_id=f"job{number}",
            )
            expected = model(sources[: number + 1], names)
            found = by_key(read(folder).to_pylist(), names)
            note(f"{number}: {found}")
            assert repr(sorted(found.items(), key=repr)) == repr(sorted(expected.items(), key=repr))
        assert unnamed_parts(folder) == set()
