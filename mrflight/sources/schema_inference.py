"""Infer one schema from the first lines of several text files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa

from mrflight.errors import SchemaMismatchError
from mrflight.sources.common_type import common_type

_T = TypeVar("_T")

_MAX_HEAD_BYTES = 1 << 20
_MAX_ALL_HEADS_BYTES = 16 << 20
_MAX_SAMPLED_FILES = 64


class InferredSchema(msgspec.Struct, frozen=True):
    """The columns of one file, with the types inferred from its first lines."""

    url: str
    schema: pa.Schema


def sample_files(files: Sequence[_T], schema: str) -> list[_T]:
    """Return at most 64 of the files, evenly spread, including the first and the last.

    If the ``schema`` is a union, which any file may change, these are all files.
    """
    if len(files) <= _MAX_SAMPLED_FILES or schema == "union":
        return list(files)
    step = (len(files) - 1) / (_MAX_SAMPLED_FILES - 1)
    return [files[round(i * step)] for i in range(_MAX_SAMPLED_FILES)]


def head_bytes(files: int) -> int:
    """Return how much of each sampled file to read, so that the inference takes about 40 ms."""
    return min(_MAX_HEAD_BYTES, _MAX_ALL_HEADS_BYTES // max(1, files))


def unify_schemas(inferred: Iterable[InferredSchema], input_name: str) -> pa.Schema:
    """Return the columns of all files, in order of appearance, each with a type for all its values.

    See `common_type` for columns of several types. A column with only nulls is a string. Raises
    SchemaMismatchError if the types of a column have no common type.
    """
    found: dict[str, tuple[str, pa.DataType]] = {}
    for file in inferred:
        for field in file.schema:
            url, type = found.get(field.name, (file.url, pa.null()))
            unified = common_type(type, field.type)
            if unified is None:
                raise SchemaMismatchError(
                    f"{file.url}: column {field.name!r} looks like {field.type}, but like {type} "
                    f"in {url}; set inputs.{input_name}.types.{field.name}"
                )
            found[field.name] = (url if unified == type else file.url, unified)
    return pa.schema([(name, _nulls_to_strings(type)) for name, (_, type) in found.items()])


def _nulls_to_strings(type: pa.DataType) -> pa.DataType:
    """Return the type with strings for nulls, because a later value of any kind fits a string."""
    return replace_types(type, lambda leaf: pa.string() if pa.types.is_null(leaf) else leaf)


def replace_types(type: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return ``type`` with ``replace`` applied to every type in it that is no list or struct."""
    if pa.types.is_list(type):
        return pa.list_(replace_types(type.value_type, replace))
    if pa.types.is_struct(type):
        return pa.struct([(field.name, replace_types(field.type, replace)) for field in type])
    return replace(type)
