"""Every kind of join, in memory and spilled, returns the rows that DuckDB returns."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute import kernel
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError, KeyTypeError
from mrflight.tasks.operators import build_side
from mrflight.tasks.operators.hash_join import How, Join
from mrflight.tasks.operators.join_output import JoinPlan, JoinSide
from mrflight.tasks.operators.spill_partitions import GracePartitioner, SpillPartition
from tests.support.queries.duckdb_joins import by_duckdb, comparable_rows, joined, rows_of
from tests.support.queries.join_tables import HOWS, has_no_common_type, joins
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

MUCH = 2**30


@settings(max_examples=some_of(100))
@given(tables=joins(), batch_rows=st.sampled_from([1, 4, 1000]))
def test_rows_match_duckdb(tables: tuple[Join, pa.Table, pa.Table], batch_rows: int) -> None:
    join, left, right = tables
    join = pickle.loads(pickle.dumps(join))
    if has_no_common_type(join, left, right):
        return
    wanted = comparable_rows(by_duckdb(join, left, right))
    for rows_bytes in (MUCH, 1):
        with tempfile.TemporaryDirectory() as folder:
            found = joined(join, left, right, rows_bytes, Path(folder), batch_rows)
            assert comparable_rows(rows_of(found)) == wanted


class Recorder:
    """Records the spill partitions of a join, and the tables that become build sides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spilled: dict[str, list[SpillPartition]] = {}
        self.held: list[pa.Table] = []
        finish, hold = GracePartitioner.finish, build_side.BuildSide.__init__

        def finished(writer: GracePartitioner) -> list[SpillPartition]:
            partitions = finish(writer)
            self.spilled[writer._name] = [partition for partition in partitions if partition.rows]
            return partitions

        def holds(
            side: build_side.BuildSide, plan: JoinPlan, of: JoinSide, table: pa.Table
        ) -> None:
            self.held.append(table)
            hold(side, plan, of, table)

        monkeypatch.setattr(GracePartitioner, "finish", finished)
        monkeypatch.setattr(build_side.BuildSide, "__init__", holds)

    @property
    def levels(self) -> int:
        """Return how often the rows have been partitioned."""
        return max((name.count("-") for name in self.spilled), default=0)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def numbered(keys: object, name: str) -> pa.Table:
    """Return rows with these keys and their numbers."""
    column = keys if isinstance(keys, pa.Array) else pa.array(keys)
    return pa.table({"k": column, name: np.arange(len(column))})


RANDOM = np.random.default_rng(1)
SPREAD = RANDOM.integers(0, 1000, 2000)
SKEWED = np.where(RANDOM.random(2000) < 0.1, 7, SPREAD)
NULLS = pa.array(SPREAD, mask=RANDOM.random(2000) < 0.7)


@pytest.mark.slow_but(
    "an empty side-anti", "an empty side-semi", "an empty side-inner", "an empty side-right"
)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("left", "right", "fraction", "levels", "largest"),
    [
        (SPREAD, SPREAD[:1000], 1, 0, 1),
        (SPREAD, SPREAD[:1000], 4, 1, 1),
        (SPREAD, SPREAD[:1000], 100, 2, 2),
        (SPREAD, pa.array([], pa.int16()), 10**6, 0, 1),
        (SKEWED, SKEWED[:1000], 100, 2, 2),
        (NULLS, NULLS, 20, 1, 1.1),
    ],
    ids=["in memory", "one level", "two levels", "an empty side", "a skewed key", "nulls"],
)
def test_joins_in_little_memory(
    how: How,
    left: object,
    right: object,
    fraction: int,
    levels: int,
    largest: float,
    recorder: Recorder,
    tmp_path: Path,
) -> None:
    join, tables = Join(how, ("k",), ("k",)), (numbered(left, "l"), numbered(right, "r"))
    rows_bytes = min(table.nbytes for table in tables) // fraction + 16
    found = joined(join, *tables, rows_bytes, tmp_path, batch_rows=40)
    assert comparable_rows(rows_of(found)) == comparable_rows(by_duckdb(join, *tables))
    assert recorder.levels == levels
    assert max(table.nbytes for table in recorder.held) <= largest * rows_bytes + 40 * 17


@pytest.mark.slow_but("semi", "anti")
@pytest.mark.parametrize("how", HOWS)
def test_a_key_that_is_too_large_on_both_sides(
    how: How, recorder: Recorder, tmp_path: Path
) -> None:
    """The build side is held in parts, and only after the last one it is known which rows match."""
    left, right = numbered([5] * 300 + [1, 2], "l"), numbered([5] * 400 + [2, 3], "r")
    join = Join(how, ("k",), ("k",))
    found = joined(join, left, right, 1000, tmp_path)
    assert comparable_rows(rows_of(found)) == comparable_rows(by_duckdb(join, left, right))
    assert sum(set(table["k"].to_pylist()) == {5} for table in recorder.held) == (
        4 if how in ("semi", "anti") else 5
    )
    assert recorder.levels == 1


@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("on", [("k",), ("k", "l")])
def test_all_rows_of_a_matched_key_are_matched(
    how: How, on: tuple[str, ...], recorder: Recorder, tmp_path: Path
) -> None:
    """Probes only find the first held row of each key, and the other rows are marked later."""
    left = pa.table({"k": [1, 2, 2, None, 3, 2], "l": [1, 2, 2, 2, 3, None]})
    right = pa.table({"k": [2, 9] * 100, "l": [2, 9] * 100})
    join = Join(how, on, on)
    found = joined(join, left, right, MUCH, tmp_path)
    assert comparable_rows(rows_of(found)) == comparable_rows(by_duckdb(join, left, right))
    assert [len(table) for table in recorder.held] == [6 if how == "anti" else 6 - len(on)]


def test_the_same_batches_give_the_same_rows_in_their_order(tmp_path: Path) -> None:
    tables = numbered(SKEWED, "l"), numbered(SPREAD, "r")
    for rows_bytes in (MUCH, 10_000):
        one, two = (
            pa.concat_tables(joined(Join("full", ("k",), ("k",)), *tables, rows_bytes, tmp_path))
            for _ in range(2)
        )
        assert one.equals(two)


def test_the_smaller_side_is_the_build_side(recorder: Recorder, tmp_path: Path) -> None:
    small, large = numbered(range(10), "s"), numbered(SPREAD, "l")
    for left, right in ((small, large), (large, small)):
        left = left.rename_columns(["k", "a"])
        joined(Join("inner", ("k",), ("k",)), left, right, 200, tmp_path, batch_rows=5)
        assert [len(table) for table in recorder.held] == [10]
        recorder.held.clear()
    assert recorder.spilled == {}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("rows_bytes", [MUCH, 1])
def test_different_keys_with_the_same_hash(
    how: How, rows_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The hash has three values here, so the keys themselves must be compared."""
    hash_rows = kernel.hash_rows

    def coarse(columns: list[pa.Array]) -> pa.UInt64Array:
        return pa.array(np.asarray(hash_rows(columns)) % np.uint64(3))

    monkeypatch.setattr(kernel, "hash_rows", coarse)
    texts = [f"key {number}" for number in range(12)]
    left = pa.table({"k": texts * 2, "n": [*range(12)] * 2, "l": range(24)})
    right = pa.table({"k": texts[4:] * 3, "n": [*range(3, 11)] + [*range(4, 12)] * 2})
    for on in (("k",), ("k", "n")):
        join = Join(how, on, on)
        rights = right.select(on)
        found = joined(join, left, rights, rows_bytes, tmp_path)
        assert comparable_rows(rows_of(found)) == comparable_rows(by_duckdb(join, left, rights))


def invert_hash(value: int) -> int:
    """Return the number whose 8 bytes have this XXH3, by inverting each step of it."""
    mask = 2**64 - 1
    inverse = pow(0x9FB21C651E98DF25, -1, 2**64)
    value ^= value >> 28 ^ value >> 56
    value = value * inverse & mask
    value ^= (value >> 35) + 8
    value = value * inverse & mask
    found = value  # the order of the map x ^ rot(x, 49) ^ rot(x, 24) is a power of two
    for _ in range(63):
        found = found ^ _rotate(found, 49) ^ _rotate(found, 24)
    return _rotate(found ^ 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE, 32)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & (2**64 - 1)


@given(value=st.integers(0, 2**64 - 1))
def test_hashes_of_eight_bytes_are_unique(value: int) -> None:
    (hashed,) = kernel.hash_rows([pa.array([value], pa.uint64())]).to_pylist()
    assert invert_hash(hashed) == value


def test_integers_with_the_same_bits_are_not_equal(tmp_path: Path) -> None:
    left = pa.table({"k": pa.array([-1, 5], pa.int64())})
    right = pa.table({"r": pa.array([2**64 - 1, 5], pa.uint64())})
    for how, count in (("inner", 1), ("left", 2), ("full", 3), ("anti", 1)):
        found = joined(Join(how, ("k",), ("r",)), left, right, MUCH, tmp_path)
        assert sum(map(len, found)) == count
    found = joined(Join("inner", ("r",), ("r",)), right, right, MUCH, tmp_path)
    assert sum(map(len, found)) == 2


def test_a_long_row_with_many_matches_is_returned_in_slices(tmp_path: Path) -> None:
    long = pa.table({"k": [1, 2], "text": ["x" * 2**20, "short"]})
    many = numbered([1] * 40 + [2] * 100_000, "n")
    for sides in ((long, many), (many, long)):
        found = joined(Join("inner", ("k",), ("k",)), *sides, MUCH, tmp_path, batch_rows=100_000)
        assert sum(map(len, found)) == 100_040
        assert max(table.nbytes for table in found) <= build_side.SLICE_BYTES
        assert max(map(len, found)) <= build_side.SLICE_ROWS
        assert len(found) == 5


LEFT = pa.schema({"k": pa.int64(), "t": pa.timestamp("us"), "d": pa.decimal128(9, 2), "x": "str"})
RIGHT = pa.schema(
    {"k": pa.uint64(), "ms": pa.timestamp("ms"), "e": pa.decimal128(9, 3), "s": "str", "x": "str"}
)


@pytest.mark.parametrize(
    ("how", "left_on", "right_on", "kind"),
    [
        (
            "inner",
            "k",
            "k",
            JobFileError,
        ),
        ("inner", "q", "k", ColumnNotFoundError),
        ("semi", "k", "q", ColumnNotFoundError),
        ("inner", "k t", "k", JobFileError),
        ("inner", "", "", JobFileError),
        ("inner", "t", "ms", KeyTypeError),
        ("inner", "d", "e", KeyTypeError),
        ("inner", "k", "s", KeyTypeError),
        ("full", "k", "k", KeyTypeError),
    ],
)
def test_invalid_joins_are_refused(
    how: How, left_on: str, right_on: str, kind: type[JobError]
) -> None:
    join = Join(how, tuple(left_on.split()), tuple(right_on.split()))
    with refused(kind, "reduce.join"):
        join.result_schema(LEFT, RIGHT)


def test_columns_of_the_result_and_their_types() -> None:
    left = pa.schema({"a": pa.string(), "k": pa.dictionary(pa.int8(), pa.string()), "n": pa.int8()})
    right = pa.schema({"n": pa.uint8(), "k": pa.large_string(), "b": pa.string_view()})
    shared = {"a": pa.string(), "k": pa.string()}
    kinds = {"inner": pa.int8(), "left": pa.int8(), "right": pa.uint8(), "full": pa.int16()}
    for how, kind in kinds.items():
        result = Join(how, ("k", "n"), ("k", "n")).result_schema(left, right)
        assert result == pa.schema({**shared, "n": kind, "b": pa.string()})
    apart = Join("full", ("a",), ("k",)).result_schema(left.remove(1), right.remove(0))
    assert apart.names == ["a", "n", "k", "b"]
    for how in ("semi", "anti"):
        kept = Join(how, ("a",), ("k",)).result_schema(left, right)
        assert kept == pa.schema({**shared, "n": pa.int8()})
