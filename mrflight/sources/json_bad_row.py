"""Explain why a line of a json file cannot be read, and what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.text_options import JsonOptions
from mrflight.sources.bad_row_search import shorten
from mrflight.sources.chunk import Chunk
from mrflight.sources.json_decoder import JsonDecoder, OtherFields, encoding_of
from mrflight.sources.text_encoding import BYTE_ORDER_MARK

_CHANGED_TYPE = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")


class JsonExpectation(msgspec.Struct, frozen=True):
    """The expected fields and types of a file, and which of the types the job file sets."""

    format: ClassVar[str] = "json"

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose type the job file sets; other types are inferred."""
    others: OtherFields
    options: JsonOptions

    def decoder(self) -> JsonDecoder:
        return JsonDecoder(self.schema, self.others, self.options)

    def explain(self, record: bytes, reason: str) -> str:
        """Explain why the line ``record`` cannot be read; ``reason`` is pyarrow's message."""
        encoding = encoding_of(self.options)
        shown = repr(shorten(encoding.decode(record, "replace")))
        try:
            decoded = encoding.decode(record).removeprefix(BYTE_ORDER_MARK)
            value = json.loads(decoded, object_pairs_hook=_unique)
        except UnicodeDecodeError:
            key = f"inputs.{self.input_name}.json.encoding"
            return f"{shown} is not {encoding.codec.upper()}; correct it, or set {key}"
        except json.JSONDecodeError as error:
            return (
                f"{shown} is not one json object ({error.msg} at column {error.colno}); write one "
                "object per line"
            )
        except _DuplicateFieldError as error:
            return f"{shown} has the field {str(error)!r} twice; rename one"
        if not isinstance(value, dict):
            return f"{shown} is not a json object; write one object per line, and no list"
        explained = self._explain_value(value) or self._explain_change(reason)
        return explained or f"{shown} cannot be read: {reason}"

    def _explain_value(self, value: dict[str, Any]) -> str | None:
        if self.others == "error":
            unknown = next(_unknown_fields(value, self.schema), None)
            if unknown is not None:
                top = unknown[0]
                return (
                    f"field {'.'.join(unknown)!r} is not in the first lines of the input; set "
                    f"inputs.{self.input_name}.types.{top}, or select the columns to read in "
                    f"inputs.{self.input_name}.columns"
                )
        for field in self.schema:
            if field.name in value and not self._converts(value[field.name], field):
                return self._wrong_type(field, value[field.name])
        return None

    def _wrong_type(self, field: pa.Field, value: Any) -> str:
        key = f"inputs.{self.input_name}.types.{field.name}"
        type, shown = field.type, shorten(json.dumps(value, ensure_ascii=False))
        if field.name in self.declared:
            return f"column {field.name!r} has {shown}, but {key} is {type}; correct one of them"
        return (
            f"column {field.name!r} has {shown}, but its type was inferred as {type} from the "
            f"first lines of the input; correct the value, or set {key}"
        )

    def _converts(self, value: Any, field: pa.Field) -> bool:
        options = replace(self.options, encoding="utf-8")
        decoder = JsonDecoder(pa.schema([field]), "ignore", options)
        line = json.dumps({field.name: value}).encode() + b"\n"
        try:
            decoder.decode(Chunk.of(line))
        except ValueError:
            return False
        return True

    def _explain_change(self, reason: str) -> str | None:
        """Explain a field whose type, as pyarrow inferred it, changes on this line; else None."""
        match = _CHANGED_TYPE.search(reason)
        if match is None:
            return None
        path, before, now = match.groups()
        return (
            f"field {path.replace('/', '.')!r} has the type {now}, but {before} on the lines "
            "before; give it one type, or select the columns to read, without it, in "
            f"inputs.{self.input_name}.columns"
        )


class _DuplicateFieldError(Exception):
    pass


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateFieldError(next(name for name in names if names.count(name) > 1))
    return named


def _unknown_fields(
    value: dict[str, Any], fields: Iterable[pa.Field], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all fields in ``value`` that ``fields`` lack."""
    known = {field.name: field.type for field in fields}
    for name, inner in value.items():
        if name not in known:
            yield (*path, name)
        else:
            yield from _unknown_inside(inner, known[name], (*path, name))


def _unknown_inside(
    value: Any, type: pa.DataType, path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and pa.types.is_struct(type):
        yield from _unknown_fields(value, type, path)
    elif isinstance(value, list) and pa.types.is_list(type):
        for inner in value:
            yield from _unknown_inside(inner, type.value_type, path)
