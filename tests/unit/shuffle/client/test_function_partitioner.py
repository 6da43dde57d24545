"""A user's partitioner places rows; an error names it if its result is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.errors import UserFunctionError
from mrflight.shuffle.client.partitioners import FunctionPartitioner
from tests.support.queries.partitioning import batch_of, examples, placed
from tests.support.suite.messages import refused


def users(answer: object) -> FunctionPartitioner:
    return FunctionPartitioner(lambda batch, key, partitions: answer, "m:place", ("k",), 3)


def test_a_users_partitioner_places_the_rows() -> None:
    def place(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Array:
        assert (tuple(key), partitions) == (("k",), 3)
        return pa.array([value % partitions for value in batch.column("k").to_pylist()])

    batch = batch_of(k=pa.array([5, 4, 3, 2]))
    assert placed(FunctionPartitioner(place, "m:place", ("k",), 3), batch, 3) == [2, 1, 0, 2]


@examples
@given(st.lists(st.integers(0, 2)), st.sampled_from(["int8", "int32", "int64", "uint64"]))
def test_a_users_partitioner_may_return_any_integer_type(ids: list[int], type_: str) -> None:
    batch = batch_of(k=pa.nulls(len(ids)))
    assert placed(users(pa.array(ids, type_)), batch, 3) == ids


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [0, 1],
        np.array([0, 1]),
        pa.chunked_array([[0, 1]]),
        pa.array([0]),
        pa.array([0, 1, 2]),
        pa.array([0, 3]),
        pa.array([-1, 0]),
        pa.array([0, 2**40]),
        pa.array([0, None]),
        pa.nulls(2),
        pa.array([0.5, 1.0]),
        pa.array(["a", "b"]),
        pa.array([[0], [1]]),
    ],
    ids=str,
)
def test_an_error_names_a_users_partitioner_with_a_wrong_result(answer: object) -> None:
    with refused(UserFunctionError):
        users(answer).ids(batch_of(k=pa.array([1, 2])))


@pytest.mark.parametrize("answer", [pa.array(["0", "1"]), pa.array([b"0", b"1"])], ids=str)
def test_a_users_partitioner_must_return_integers(answer: pa.Array) -> None:
    with pytest.raises(UserFunctionError, match="m:place"):
        users(answer).ids(batch_of(k=pa.array([1, 2])))


@pytest.mark.parametrize("error", [KeyError("no such site"), SystemExit("no such site")], ids=repr)
def test_an_error_names_a_users_partitioner_that_raises(error: BaseException) -> None:
    def place(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Array:
        raise error

    with refused(UserFunctionError):
        FunctionPartitioner(place, "m:place", ("k",), 3).ids(batch_of(k=pa.array([1])))
