"""The kernel in Rust returns the same results as the reference, for any bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.kernel import reference
from tests.support.queries import key_arrays
from tests.support.suite.cases import cases
from tests.support.suite.examples import some_of

ROWS = st.integers(0, 40)
PARTITIONS = st.sampled_from([1, 2, 3, 7, 20, 1000, 2**16 + 1])

Encode = Callable[..., st.SearchStrategy[pa.Array]]
Check = Callable[[pa.DataType, st.DataObject], None]


@pytest.fixture(scope="module")
def native(needs_kernel: None) -> ModuleType:
    """Return the module that calls the kernel in Rust."""
    from mrflight.compute.kernel import native as kernel_native

    return kernel_native


def of_each_type(examples: int, types: Sequence[pa.DataType], check: Check) -> None:
    """Check columns of each type, which are examples of Hypothesis."""
    with cases() as case:
        for type_ in types:
            with case(type_):
                _of_type(examples, type_, check)


def _of_type(examples: int, type_: pa.DataType, check: Check) -> None:
    @settings(max_examples=some_of(examples))
    @given(data=st.data())
    def checked(data: st.DataObject) -> None:
        check(type_, data)

    checked()


def test_hashes_of_every_type(native: ModuleType) -> None:
    def check(type_: pa.DataType, data: st.DataObject) -> None:
        column = data.draw(key_arrays.plain_arrays(type_, data.draw(ROWS)))
        assert native.hash_rows([column]).equals(reference.hash_rows([column]))

    of_each_type(60, key_arrays.PLAIN_TYPES, check)


@pytest.mark.slow_but("run_ends")
@pytest.mark.parametrize("encode", [key_arrays.dictionaries, key_arrays.run_ends])
def test_hashes_of_encoded_columns(native: ModuleType, encode: Encode) -> None:
    def check(type_: pa.DataType, data: st.DataObject) -> None:
        plain = partial(key_arrays.plain_arrays, type_)
        column = data.draw(encode(plain, data.draw(ROWS)))
        assert native.hash_rows([column]).equals(reference.hash_rows([column]))

    of_each_type(25, key_arrays.PLAIN_TYPES, check)


@settings(max_examples=some_of(300))
@given(data=st.data(), columns=st.integers(1, 5), partitions=PARTITIONS)
def test_hashes_of_several_columns(
    native: ModuleType, data: st.DataObject, columns: int, partitions: int
) -> None:
    rows = data.draw(ROWS)
    key = [data.draw(key_arrays.key_arrays(rows)) for _ in range(columns)]
    assert native.hash_rows(key).equals(reference.hash_rows(key))
    assert native.partition_ids(key, partitions).equals(reference.partition_ids(key, partitions))
    ids = reference.partition_ids(key, partitions)
    assert_same(
        native.order_by_partition(ids, partitions), reference.order_by_partition(ids, partitions)
    )


@settings(max_examples=some_of(100))
@given(ids=st.lists(st.none() | st.integers(-2, 12), max_size=40), partitions=st.integers(1, 12))
def test_any_ids_are_ordered(native: ModuleType, ids: list[int | None], partitions: int) -> None:
    array = pa.array([0, *ids], pa.int32()).slice(1)

    def order(kernel: ModuleType) -> Sequence[pa.Array] | str:
        try:
            return kernel.order_by_partition(array, partitions)
        except ValueError as error:
            return str(error)

    assert_same(order(native), order(reference))


def test_a_large_batch_is_partitioned_alike(native: ModuleType) -> None:
    random = np.random.default_rng(7)
    key = [
        pa.array(random.integers(0, 1000, 200_000)),
        pa.array(random.random(200_000), mask=random.random(200_000) < 0.1),
    ]
    ids = native.partition_ids(key, 4096)
    assert ids.equals(reference.partition_ids(key, 4096))
    assert_same(native.order_by_partition(ids, 4096), reference.order_by_partition(ids, 4096))


RANKED_TYPES = [*key_arrays.BINARY_TYPES, pa.binary(0), pa.binary(1), pa.binary(16)]


def test_ranks_of_any_bytes(native: ModuleType) -> None:
    def check(type_: pa.DataType, data: st.DataObject) -> None:
        column = data.draw(key_arrays.plain_arrays(type_, data.draw(ROWS)))
        assert native.rank_bytes(column).equals(reference.rank_bytes(column))

    of_each_type(40, RANKED_TYPES, check)


@settings(max_examples=some_of(100))
@given(st.text("a\0b", max_size=12), st.lists(st.none() | st.text("a\0b", max_size=12)))
def test_ranks_of_strings_that_begin_alike(
    native: ModuleType, shared: str, values: list[str | None]
) -> None:
    texts = [None if value is None else shared + value for value in values]
    places = sorted({text for text in texts if text is not None})
    ranks = [0 if text is None else places.index(text) for text in texts]
    assert native.rank_bytes(pa.array(texts, pa.string())).to_pylist() == ranks
    assert reference.rank_bytes(pa.array(texts, pa.string())).to_pylist() == ranks


KEYS = ("n", "s", "ns", "dn", "rd", "nsd", "srn")
"""Columns of numbers, strings, a dictionary and runs, by their letters."""


@pytest.mark.parametrize("rows", [1023, 1024, 1025, 2 * 1024 + 7])
def test_hashes_across_blocks(native: ModuleType, rows: int) -> None:
    """The kernel hashes 1,024 rows at a time. Nulls and encodings are in every block."""
    random = np.random.default_rng(rows)
    null = random.random(rows + 3) < 0.1
    number = pa.array(random.integers(-(2**63), 2**63 - 1, rows + 3), mask=null)
    text = pa.array([f"{n:x}" * (n % 5) for n in range(rows + 3)], mask=null)
    columns = {
        "n": number,
        "s": text,
        "d": pa.array(random.integers(0, 50, rows + 3)).cast(pa.string()).dictionary_encode(),
        "r": pc.run_end_encode(pa.array(np.arange(rows + 3) // 300)),
    }
    with cases() as case:
        for names in KEYS:
            with case(names):
                key = [columns[name].slice(3) for name in names]
                assert native.hash_rows(key).equals(reference.hash_rows(key))
                ids = native.partition_ids(key, 1000)
                assert ids.equals(reference.partition_ids(key, 1000))


@pytest.mark.parametrize("partitions", [1, 3, 2**16 + 1, 2**24])
def test_partitions_are_the_high_word_of_the_product(native: ModuleType, partitions: int) -> None:
    """The kernel multiplies the two halves of the hash. Python multiplies integers of any size."""
    random = np.random.default_rng(partitions)
    key = [pa.array(random.integers(-(2**63), 2**63 - 1, 50_000))]
    hashes = native.hash_rows(key).to_pylist()
    expected = [h * partitions >> 64 for h in hashes]
    assert native.partition_ids(key, partitions).to_pylist() == expected


@pytest.mark.parametrize("lengths", [[3000, 0, 201, 200], [1, 262, 5000]])
def test_centroids_are_merged_alike(native: ModuleType, lengths: list[int]) -> None:
    """Sums are added in the same order, so that they are rounded alike."""
    random = np.random.default_rng(len(lengths))
    means = random.lognormal(0, 3, sum(lengths))
    means[random.integers(0, len(means), 60)] = np.repeat([np.nan, np.inf, -np.inf], 20)
    weights = random.integers(1, 1000, len(means)).astype(np.float64)
    bounds = np.cumsum([0, *lengths])
    cuts = np.linspace(0.001, 0.999, 150).tolist()
    columns = (pa.array(means, from_pandas=False), pa.array(weights), pa.array(bounds))
    found, wanted = (each.merge_centroids(*columns, cuts, 200) for each in (native, reference))
    assert found[1].equals(wanted[1])
    assert np.array_equal(found[0].to_numpy(), wanted[0].to_numpy(), equal_nan=True)


LEAKED = """
import pyarrow as pa
from mrflight.compute.kernel import native
key = [pa.array(["a", None, "b" * 50]).dictionary_encode(), pa.array([1, 2, 3])]
native.order_by_partition(native.partition_ids(key, 20), 20)
before = pa.total_allocated_bytes()
for _ in range(10):
    native.order_by_partition(native.partition_ids(key, 20), 20)
    native.hash_rows(key)
print(pa.total_allocated_bytes() - before)
"""


@pytest.mark.usefixtures("needs_kernel")
def test_no_memory_is_leaked() -> None:
    """A process of its own: threads of other tests may hold and free memory of this one."""
    done = subprocess.run([sys.executable, "-c", LEAKED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def assert_same(native: Sequence[pa.Array] | str, reference: Sequence[pa.Array] | str) -> None:
    assert list(native) == list(reference)
