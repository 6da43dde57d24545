"""Hash tables in Rust and in the reference find the same pairs of rows."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute import kernel
from mrflight.compute.kernel import reference as kernel_reference
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

Slices = list[tuple[list[int], list[int]]]

HASHES = st.lists(st.none() | st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]) | st.integers(0, 5))


@pytest.fixture(params=["rust", "python"], scope="module")
def module(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "python":
        return kernel_reference
    request.getfixturevalue("needs_kernel")
    from mrflight.compute.kernel import native as kernel_native

    return kernel_native


def slices(
    module: ModuleType, table: pa.Array, hashes: pa.Array, max_pairs: int, only_first: bool = False
) -> Slices:
    pairs = module.HashTable(table).pairs(hashes, max_pairs, only_first=only_first)
    return [(probes.to_pylist(), rows.to_pylist()) for probes, rows in pairs]


@settings(max_examples=some_of(200))
@given(
    table=HASHES,
    hashes=HASHES,
    max_pairs=st.sampled_from([1, 2, 3, 7, 1000]),
    only_first=st.booleans(),
)
def test_pairs_match_a_nested_loop(
    module: ModuleType,
    table: list[int | None],
    hashes: list[int | None],
    max_pairs: int,
    only_first: bool,
) -> None:
    wanted = [
        (probe, row)
        for (probe, a), (row, b) in product(enumerate(hashes), enumerate(table))
        if a == b and a is not None
    ]
    if only_first:
        wanted = [pair for pair in wanted if pair == min(w for w in wanted if w[0] == pair[0])]
    # The arrays begin anywhere in their buffers.
    arrays = [pa.array([7, *values], pa.uint64()).slice(1) for values in (table, hashes)]
    found = slices(module, *arrays, max_pairs, only_first)
    assert [pair for probes, rows in found for pair in zip(probes, rows, strict=True)] == wanted
    assert all(len(rows) == max_pairs for _, rows in found[:-1])
    assert all(rows for _, rows in found)


@pytest.mark.parametrize("rows", [255, 256, 257, 3000])
@pytest.mark.parametrize("max_pairs", [100, 2**16])
def test_rust_and_the_reference_give_the_same_slices(
    needs_kernel: None, rows: int, max_pairs: int
) -> None:
    from mrflight.compute.kernel import native as kernel_native

    random = np.random.default_rng(rows)
    keys = [pa.array(random.integers(0, rows, count)) for count in (rows, 2 * rows)]
    table, hashes = (
        pa.array(np.asarray(kernel.hash_rows([key])), mask=random.random(len(key)) < 0.1)
        for key in keys
    )
    found = slices(kernel_native, table, hashes, max_pairs)
    assert found == slices(kernel_reference, table, hashes, max_pairs)
    assert sum(len(probes) for probes, _ in found) > rows // 2


def test_all_rows_may_have_the_same_hash(module: ModuleType) -> None:
    found = slices(module, pa.array([5] * 300, pa.uint64()), pa.array([5] * 400, pa.uint64()), 7000)
    assert [len(probes) for probes, _ in found] == [7000] * 17 + [1000]
    assert found[0][1] == [row % 300 for row in range(7000)]


def test_invalid_hashes_are_refused(needs_kernel: None) -> None:
    from mrflight.compute.kernel import native as kernel_native

    with refused(ValueError):
        kernel_native.HashTable(pa.array([1], pa.int32()))
