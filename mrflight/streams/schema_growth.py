"""New fields of the events of a stream, which become columns if ``output.schema`` is ``evolve``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from mrflight.sources.bad_rows import BadRow
from mrflight.sources.kafka.rejected_message import RejectedMessage


def with_new_fields(schema: pa.Schema, rejected: Sequence[BadRow]) -> pa.Schema | None:
    """Return the schema with the fields of rejected json events that it lacks.

    Their types are inferred from these events; a field that is null in all of them is a string.
    None if the events have no other fields, so that they are bad for another reason.
    """
    found = [
        {name: value for name, value in event.items() if name not in schema.names}
        for each in rejected
        if isinstance(each, RejectedMessage)
        for event in [_parsed(each.value)]
    ]
    others = [each for each in found if each]
    if not others:
        return None
    import pyarrow.json as pa_json

    lines = b"\n".join(map(msgspec.json.encode, others))
    inferred = pa_json.read_json(pa.BufferReader(lines)).schema
    return pa.schema([*schema, *(_with_type(field) for field in inferred)])


def _parsed(value: bytes | None) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(value or b"")
    except msgspec.DecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _with_type(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string()) if pa.types.is_null(field.type) else field
