"""New fields of the events of a stream, which become columns if ``output.schema`` is ``evolve``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from mrflight.sources.bad_rows import BadRow
from mrflight.sources.json_source import inferred_type
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.sources.schema_inference import replace_types


def with_new_fields(
    schema: pa.Schema, rejected: Sequence[BadRow], reserved: Collection[str] = ()
) -> pa.Schema | None:
    """Return the schema with the fields of rejected json events that it lacks.

    Their types are inferred from these events as those of the first events are; a field that is
    null in all of them is a string. A field becomes no column if its values contradict each other,
    if it is an object without fields, or if its name is ``reserved``: its events stay rejected, and
    the stream goes on. None if there is no other field, so that the events are bad for another
    reason.
    """
    values: dict[str, list[Any]] = {}
    known = {*schema.names, *reserved}
    for each in rejected:
        if isinstance(each, RejectedMessage):
            for name, value in _parsed(each.value).items():
                if name not in known:
                    values.setdefault(name, []).append(value)
    inferred = [(name, _inferred(found)) for name, found in values.items()]
    new = [pa.field(name, type) for name, type in inferred if type is not None]
    return pa.schema([*schema, *new]) if new else None


def _parsed(value: bytes | None) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(value or b"")
    except msgspec.DecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _inferred(values: Sequence[Any]) -> pa.DataType | None:
    """Return the type of the values of a field; None if they have no type that can be stored."""
    import pyarrow.json as pa_json

    lines = b"\n".join(msgspec.json.encode({"value": each}) for each in values)
    try:
        options = pa_json.ReadOptions(block_size=len(lines) + 1)  # an object must lie in one
        (field,) = pa_json.read_json(pa.BufferReader(lines), options).schema
    except pa.ArrowInvalid:
        return None
    return None if _has_empty_struct(field.type) else _storable(field.type)


def _storable(type: pa.DataType) -> pa.DataType:
    return replace_types(
        inferred_type(type), lambda leaf: pa.string() if pa.types.is_null(leaf) else leaf
    )


def _has_empty_struct(type: pa.DataType) -> bool:
    if pa.types.is_struct(type) and type.num_fields == 0:
        return True
    return any(_has_empty_struct(type.field(i).type) for i in range(type.num_fields))
