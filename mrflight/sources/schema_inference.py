"""One schema out of what the heads of several text files look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa

from mrflight.errors import SchemaMismatchError

_T = TypeVar("_T")

HEAD_BYTES = 1 << 20
_ALL_HEADS_BYTES = 16 << 20
_FILES_LOOKED_AT = 64


class Guess(msgspec.Struct, frozen=True):
    """The columns of one file, as its first lines have them."""

    url: str
    schema: pa.Schema


def files_to_look_at(files: Sequence[_T]) -> list[_T]:
    """At most 64 of the files, evenly spread, the first and the last among them."""
    if len(files) <= _FILES_LOOKED_AT:
        return list(files)
    step = (len(files) - 1) / (_FILES_LOOKED_AT - 1)
    return [files[round(i * step)] for i in range(_FILES_LOOKED_AT)]


def head_bytes(files: int) -> int:
    """How much of each file to look at, so that looking takes no more than a moment (40 ms)."""
    return min(HEAD_BYTES, _ALL_HEADS_BYTES // max(1, files))


def agree(guesses: Iterable[Guess], input_name: str) -> pa.Schema:
    """Every column of the guesses, in order of appearance, with the type that holds all of them.

    Null gives way to any type, int64 to double; a column with nothing but
    nulls is a string. Raises SchemaMismatchError where types do not go together.
    """
    found: dict[str, tuple[str, pa.DataType]] = {}
    for guess in guesses:
        for field in guess.schema:
            url, type = found.get(field.name, (guess.url, pa.null()))
            merged = merge(type, field.type)
            if merged is None:
                raise SchemaMismatchError(
                    f"{guess.url}: column {field.name!r} looks like {field.type}, but like {type} "
                    f"in {url}; set inputs.{input_name}.types.{field.name}"
                )
            found[field.name] = (url if merged == type else guess.url, merged)
    return pa.schema([(name, settle(type)) for name, (_, type) in found.items()])


def merge(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that holds values of both; None where none does."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if {a, b} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b) and a.tz == b.tz:
        return a if a.unit == "ns" else b
    if pa.types.is_list(a) and pa.types.is_list(b):
        inner = merge(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _merge_structs(a, b)
    return None


def _merge_structs(a: pa.StructType, b: pa.StructType) -> pa.StructType | None:
    fields = {field.name: field.type for field in a}
    for field in b:
        merged = merge(fields.get(field.name, pa.null()), field.type)
        if merged is None:
            return None
        fields[field.name] = merged
    return pa.struct(list(fields.items()))


def settle(type: pa.DataType) -> pa.DataType:
    """The type to read with: a string where there were only nulls, as any value fits it."""
    return replace_types(type, lambda leaf: pa.string() if pa.types.is_null(leaf) else leaf)


def replace_types(type: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """``type`` with ``replace`` applied to every type in it that is no list and no struct."""
    if pa.types.is_list(type):
        return pa.list_(replace_types(type.value_type, replace))
    if pa.types.is_struct(type):
        return pa.struct([(field.name, replace_types(field.type, replace)) for field in type])
    return replace(type)
