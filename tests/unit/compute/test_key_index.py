"""A key index finds exactly the rows that have one of its keys, whatever their hashes are."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from mrflight.compute import kernel, key_index
from mrflight.compute.key_index import KeyIndex

SEED = 5


def index(columns: dict[str, pa.Array], pieces: int = 3) -> KeyIndex:
    table = pa.table(columns)
    step = max(1, table.num_rows // pieces)
    return KeyIndex(pa.concat_tables(table.slice(n, step) for n in range(0, len(table), step)))


def check_against_sets(count: int) -> None:
    random.seed(SEED)
    keys = [(random.randrange(count), random.choice("abc")) for _ in range(count)]
    rows = [
        (random.choice([None, random.randrange(count)]), random.choice(["a", "b", "c", None]))
        for _ in range(4 * count)
    ]
    known = index({"n": pa.array([n for n, _ in keys]), "s": pa.array([s for _, s in keys])})
    batch = pa.record_batch({"n": [n for n, _ in rows], "s": [s for _, s in rows]})
    expected = [number for number, row in enumerate(rows) if row in set(keys)]
    assert known.matches(batch).tolist() == expected, f"seed {SEED}"
    assert known.matches(batch.slice(7, 50)).tolist() == [n - 7 for n in expected if 7 <= n < 57]
    assert 0 < len(expected) < len(rows)


def test_rows_are_found_by_all_key_columns() -> None:
    check_against_sets(500)


@pytest.mark.parametrize("hashes", [1, 2, 16])
def test_keys_with_equal_hashes_are_distinguished(
    hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two keys with equal hashes of 64 bits are known, so the test reduces the hashes."""
    hash_rows = kernel.hash_rows
    top = np.uint64(2**63)

    def reduced_hashes(columns: list[pa.Array]) -> pa.UInt64Array:
        found = hash_rows(columns).to_numpy() % np.uint64(hashes)
        return pa.array(found * (top // np.uint64(hashes)) * np.uint64(2) + found)

    monkeypatch.setattr(key_index.kernel, "hash_rows", reduced_hashes)
    check_against_sets(60)


def test_floats_with_equal_canonical_bytes_match_and_nulls_do_not() -> None:
    known = index({"f": pa.array([0.0, math.nan])})
    batch = pa.record_batch({"f": [-0.0, 0.0, -math.nan, None, 1.0]})
    assert known.matches(batch).tolist() == [0, 1, 2]


def test_a_batch_without_rows_has_no_matches() -> None:
    assert index({"k": pa.array([1])}).matches(pa.record_batch({"k": [1]}).slice(0, 0)).size == 0
