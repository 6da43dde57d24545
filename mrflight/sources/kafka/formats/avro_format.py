"""Messages that are Avro records: bare ones of one schema, or with the number of theirs.

They are decoded one by one by fastavro, which makes Python objects of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources.kafka.formats.avro_schema import avro_columns, parse_avro_schema
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.kafka.formats.schema_registry import fetch_schema
from mrflight.sources.kafka.messages import Messages

_MAGIC, _FRAME_BYTES = 0, 5
"""What a message of the registry begins with: a zero, and the number of its schema."""


@dataclass(frozen=True)
class AvroFormat:
    """One record a message. Fields that the columns lack are left out, as Avro resolves schemas."""

    input_name: str
    schema: pa.Schema
    writer: str | None
    """The schema of all messages; None if each begins with the number of its own."""
    registry: str | None

    @property
    def reads_nulls(self) -> bool:
        return False

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        rows = [self.record(value) for value in values.to_pylist()]
        if not rows:
            return DecodedRows(empty_batch(self.schema))
        try:
            return DecodedRows(pa.RecordBatch.from_pylist(rows, self.schema))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error

    def explain(self, value: bytes, reason: str) -> str:
        return f"the message is not an Avro record of its schema: {reason}"

    def record(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a message; raises ValueError."""
        from fastavro import schemaless_reader

        if self.writer is not None:
            schema, stream = _parsed(self.writer), io.BytesIO(value)
        else:
            assert self.registry is not None, self.input_name
            text = fetch_schema(self.registry, schema_number(value), f"inputs.{self.input_name}")
            schema, stream = _parsed(text), io.BytesIO(value)
            stream.seek(_FRAME_BYTES)
        try:
            record = schemaless_reader(stream, schema)
        except Exception as error:  # of many kinds, for any bytes
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if not isinstance(record, dict) or stream.tell() != len(value):
            left = len(value) - stream.tell()
            raise ValueError(f"{left:,} bytes are left after the record")
        return record


def schema_number(value: bytes) -> int:
    """Return the number of the schema that a message begins with; raises ValueError."""
    if len(value) < _FRAME_BYTES or value[0] != _MAGIC:
        raise ValueError("it does not begin with a zero and the number of a schema")
    return int.from_bytes(value[1:_FRAME_BYTES], "big")


def open_avro_format(
    name: str,
    spec: InputSpec,
    schema: pa.Schema | None,
    writer: str | None,
    sample: Sequence[Messages],
) -> AvroFormat:
    """Return the format of an input; ``writer`` is the text of its schema file, if it has one.

    Without it, the columns are those of the newest schema among the first messages.
    """
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise JobFileError(
            f"inputs.{name}.format: avro needs the library fastavro: pip install 'mrflight[avro]'"
        ) from error
    if schema is None:
        where = f"inputs.{name}.schema"
        text = writer
        if text is None:
            text, where = _newest(name, spec, sample), f"inputs.{name}.registry: the schema"
        schema = avro_columns(parse_avro_schema(text, where), where)
    for column in spec.columns or ():
        if column not in schema.names:
            where = f"inputs.{name}.columns: the schema of the messages"
            raise ColumnNotFoundError.among(column, list(schema.names), where)
    selected = pa.schema([schema.field(column) for column in spec.columns or schema.names])
    return AvroFormat(name, selected, writer, spec.registry)


def _newest(name: str, spec: InputSpec, sample: Sequence[Messages]) -> str:
    return next(newest_schemas(name, spec, sample))


def newest_schemas(name: str, spec: InputSpec, sample: Sequence[Messages]) -> Iterator[str]:
    """Yield the schemas of the first messages, the newest first; raise InputError without any."""
    assert spec.registry is not None, name
    numbers = set()
    for messages in sample:
        for value in messages.values.drop_null().to_pylist():
            try:
                numbers.add(schema_number(value))
            except ValueError:
                continue
    is_empty = True
    for number in sorted(numbers, reverse=True):
        try:
            yield fetch_schema(spec.registry, number, f"inputs.{name}")
            is_empty = False
        except ValueError:
            continue
    if is_empty:
        raise InputError(
            f"inputs.{name}: there is no message yet with the number of a schema in the registry; "
            f"start once there is one, or set inputs.{name}.schema to a file"
        )


@lru_cache(maxsize=64)
def _parsed(text: str) -> Mapping[str, Any]:
    """Return a schema as fastavro takes it; raises ValueError for one that it cannot read."""
    import json

    from fastavro import parse_schema

    try:
        return parse_schema(json.loads(text))  # type: ignore[no-any-return,unused-ignore]
    except Exception as error:  # of many kinds, for any text
        raise ValueError(f"its schema cannot be read: {error}") from error
