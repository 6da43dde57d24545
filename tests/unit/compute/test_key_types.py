"""Columns of most types can be a key, and others are refused with a reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.compute import kernel
from mrflight.errors import ColumnNotFoundError, KeyTypeError
from tests.support.queries import key_arrays
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused

NESTED = pa.list_(pa.int64())
NO_KEYS = [
    NESTED,
    pa.large_list(pa.int64()),
    pa.list_view(pa.int64()),
    pa.list_(pa.int64(), 2),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.month_day_nano_interval(),
    pa.dictionary(pa.int32(), NESTED),
    pa.run_end_encoded(pa.int32(), NESTED),
    pa.fixed_shape_tensor(pa.int32(), [2]),
]
ENCODED = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.run_end_encoded(pa.int16(), pa.dictionary(pa.int8(), pa.string())),
    pa.uuid(),
    pa.json_(pa.large_string()),
]


def test_types_that_can_be_keys() -> None:
    with cases() as case:
        for type_ in [*key_arrays.PLAIN_TYPES, *ENCODED]:
            with case(type_):
                kernel.check_key_types(pa.schema([("nested", NESTED), ("key", type_)]), ["key"])


@pytest.mark.parametrize("type_", NO_KEYS, ids=str)
def test_types_that_cannot_be_keys_are_refused(type_: pa.DataType) -> None:
    schema = pa.schema([("good", pa.int64()), ("bad", type_)])
    with refused(KeyTypeError):
        kernel.check_key_types(schema, ["good", "bad"])


def test_deeply_nested_encodings_are_refused() -> None:
    type_ = pa.string()
    for _ in range(5000):
        type_ = pa.dictionary(pa.int8(), type_)
    with pytest.raises(KeyTypeError):
        kernel.check_key_types(pa.schema([("bad", type_)]), ["bad"])


def test_a_missing_column_is_refused() -> None:
    with refused(ColumnNotFoundError):
        kernel.check_key_types(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ["a", "c"])


def test_a_duplicate_column_is_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.string())])
    with refused(ColumnNotFoundError):
        kernel.check_key_types(schema, ["a"])
