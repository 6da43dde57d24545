"""Runtime filters keep all rows with the keys that were noted, and few others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from mrflight.tasks.runtime_filter import KeyFilter, NotedKeys, RuntimeFilter, filter_bits

KEYS = {
    "numbers": lambda n: pa.table({"a": pa.array(n, pa.int64())}),
    "texts and nulls": lambda n: pa.table(
        {"a": pa.array([f"k{v // 7}" for v in n]), "b": pa.array([v if v % 7 else None for v in n])}
    ),
    "dictionaries": lambda n: pa.table({"a": pa.array([f"k{v}" for v in n]).dictionary_encode()}),
}


def noted(table: pa.Table, bits: int) -> KeyFilter:
    """The filter of two maps, each of which sends half of a table."""
    half = len(table) // 2
    made = []
    for part in (table.slice(0, half), table.slice(half)):
        keys = NotedKeys(bits)
        sent = list(RuntimeFilter(tuple(table.column_names), bits).keep(part.to_batches(), keys))
        assert pa.Table.from_batches(sent, table.schema).equals(part)
        made.append(keys.filter())
    united = KeyFilter.united([each for each in made if each is not None])
    assert united is not None
    return united


def kept(table: pa.Table, keys: KeyFilter) -> pa.Table:
    none = NotedKeys(0)
    filter_ = RuntimeFilter(tuple(table.column_names), tested=keys)
    rows = pa.Table.from_batches(filter_.keep(table.to_batches(max_chunksize=999), none))
    assert none.filter() is None
    return rows


@pytest.mark.parametrize("kind", KEYS)
def test_all_rows_with_noted_keys_are_kept_and_few_others(kind: str) -> None:
    keys = noted(KEYS[kind](range(5_000)), filter_bits(5_000))
    same = KEYS[kind](range(5_000))
    assert kept(same, keys).to_pylist() == same.to_pylist()
    others = kept(KEYS[kind](range(100_000, 150_000)), keys)
    # Two bits in twelve or more for each key: at most (1 - exp(-2 / 12))^2, which is 2.4 %.
    assert len(others) < 0.03 * 50_000


def test_a_filter_of_more_keys_than_expected_is_not_used() -> None:
    keys = NotedKeys(filter_bits(10))
    filter_ = RuntimeFilter(("a",), filter_bits(10))
    many: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]
    many = KEYS["numbers"](range(200_000)).to_batches()
    assert sum(each.num_rows for each in filter_.keep(many, keys)) == 200_000
    made = keys.filter()
    assert made is not None
    assert KeyFilter.united([made]) is None
    assert KeyFilter.united([]) is None


def test_a_map_without_batches_notes_nothing() -> None:
    some = noted(KEYS["numbers"](range(10)), 2**16)
    nothing = NotedKeys(2**16).filter()
    assert nothing is not None
    assert KeyFilter.united([nothing, some]) == some
    assert KeyFilter.united([nothing]) == nothing


@pytest.mark.parametrize(
    ("maps", "bits"), [(1, 2**25), (16, 2**25), (17, 2**24), (1_000, 2**19), (10**9, 8)]
)
def test_the_filters_of_all_maps_fit_into_the_driver(maps: int, bits: int) -> None:
    planned = RuntimeFilter(("a",), 2**25).noted_by(maps)
    assert planned.noted_bits == bits
    assert RuntimeFilter(("a",)).noted_by(maps).noted_bits == 0


@pytest.mark.parametrize(
    ("rows", "bits"),
    [(0, 2**16), (5_461, 2**16), (5_462, 2**17), (10**9, 2**25), (None, 2**22)],
)
def test_a_filter_has_twelve_bits_for_each_expected_key(rows: int | None, bits: int) -> None:
    assert filter_bits(rows) == bits
