"""Keys of hash repartitions in the bytes of a plan, some of which are no columns."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    number_of,
    only_field,
    values_of,
)


def hash_keys(repartition: bytes) -> list[bytes]:
    """Return the expressions by whose hash a repartition distributes rows."""
    _, node = only_field(repartition)
    (partitioning,) = values_of(node, of.PARTITIONING)
    (by_hash,) = values_of(partitioning, of.HASH)
    return values_of(by_hash, of.HASH_KEYS)


def column_of(expression: bytes) -> int | None:
    """Return the position of the column that an expression is; None if it is computed."""
    kind, value = only_field(expression)
    return number_of(value, of.COLUMN_POSITION) if kind == of.COLUMN else None


def with_computed(plan: bytes, names: Sequence[str], computed: Sequence[bytes]) -> bytes:
    """Return a plan, whose columns have these names, with the values of expressions after them."""
    columns = [
        encode_field(
            of.COLUMN,
            encode_field(of.COLUMN_NAME, name.encode()) + encode_field(of.COLUMN_POSITION, number),
        )
        for number, name in enumerate(names)
    ]
    all_names = [*names, *(f"key {number}" for number in range(len(computed)))]
    projection = [encode_field(1, plan)]
    projection += [encode_field(of.PROJECTION_EXPRESSIONS, each) for each in (*columns, *computed)]
    projection += [encode_field(of.EXPRESSION_NAMES, name.encode()) for name in all_names]
    return encode_field(of.PROJECTION_NODE, b"".join(projection))
