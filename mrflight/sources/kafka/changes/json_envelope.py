"""Change events that are json, with the schema of Kafka Connect around them or without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from mrflight.sources.kafka.changes.change import DELETE, Change, check_operation, no_row
from mrflight.sources.kafka.changes.encoded_columns import decode_columns
from mrflight.sources.kafka.formats.json_format import JsonFormat

_NULL = b"null"
Fields = dict[str, msgspec.Raw]


class _Payload(msgspec.Struct):
    op: Any = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()
    ts_ms: Any = None
    status: Any = None
    id: Any = None
    source: msgspec.Raw = msgspec.Raw()

    @property
    def is_about_the_stream(self) -> bool:
        """True for a heartbeat, and for the begin or the end of a transaction."""
        if self.op == "m":  # a message that an application wrote into PostgreSQL's log
            return True
        if self.op is not None or self.before or self.after or self.source:
            return False
        return self.ts_ms is not None and (self.status in ("BEGIN", "END") or self.id is None)


class _Message(_Payload):
    payload: _Payload | msgspec.UnsetType | None = msgspec.UNSET
    schema: msgspec.Raw = msgspec.Raw()


class _Key(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()


_message = msgspec.json.Decoder(_Message)
_key = msgspec.json.Decoder(_Key)
_fields = msgspec.json.Decoder(Fields)


@dataclass(frozen=True)
class JsonEnvelope:
    """The objects in ``after`` and ``before``, whose columns are of ``schema``."""

    rows: JsonFormat
    """Decodes the objects to columns as json has them."""
    schema: pa.Schema

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.schema.names)

    def unpack(self, value: bytes, key: bytes | None) -> Change[bytes] | None:
        return unpack_json(value, key, self._names)

    def decode(self, rows: Sequence[bytes]) -> pa.RecordBatch:
        decoded = self.rows.decode(pa.array(rows, pa.binary())).batch
        return decode_columns(decoded, self.schema)

    def explain(self, row: bytes, reason: str) -> str:
        if reason.startswith("the column "):
            return reason
        return self.rows.explain(row, reason)

    def __reduce__(self) -> tuple[type[JsonEnvelope], tuple[object, ...]]:
        return type(self), (self.rows, self.schema)


def unpack_json(value: bytes, key: bytes | None, names: frozenset[str]) -> Change[bytes] | None:
    """Return the change in a message; None for one that only is about the stream.

    A row that was deleted gets those of ``names`` that it lacks from the message's key.
    """
    payload = payload_of(value)
    if payload is None or payload.is_about_the_stream:
        return None
    operation = check_operation(payload.op)
    row = bytes(payload.before if operation == DELETE else payload.after)
    if operation == DELETE and key is not None:
        row = _with_key(row, key, names)
    if row in (b"", _NULL):
        raise no_row(operation)
    return Change(operation, row)


def payload_of(value: bytes) -> _Payload | None:
    """Return the envelope, which may lie in another with its schema; None for a null.

    Raises ValueError.
    """
    message = _decoded(value)
    return message if message.payload is msgspec.UNSET else message.payload


def schema_of(value: bytes) -> Mapping[str, Any] | None:
    """Return the schema of Connect in a message, if it has one; raises ValueError."""
    text = _decoded(value).schema
    found = msgspec.json.decode(text) if text else None
    return found if isinstance(found, dict) else None


def _decoded(value: bytes) -> _Message:
    try:
        return _message.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the message is no change event of Debezium: {error}") from error


def _with_key(row: bytes, key: bytes, names: frozenset[str]) -> bytes:
    """Return a row with the columns that it lacks, or that are null in it, from the key."""
    try:
        payload = _key.decode(key).payload
        given = _fields.decode(payload or key)
        known: Fields = {} if row in (b"", _NULL) else _fields.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return row
    missing = {
        name: value
        for name, value in given.items()
        if name in names and bytes(known.get(name, _NULL)) == _NULL
    }
    return msgspec.json.encode(known | missing) if missing else row
