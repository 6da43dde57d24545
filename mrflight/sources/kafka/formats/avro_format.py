"""Messages that are Avro records: bare ones of one schema, or with the number of theirs.

The kernel decodes them to columns. fastavro, which makes Python objects of each, decodes what the
kernel does not: it alone says that a message is no record, and why.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources.kafka.formats.avro_decoder import RecordDecoder, record_decoder
from mrflight.sources.kafka.formats.avro_parsed import parsed_schema
from mrflight.sources.kafka.formats.avro_schema import avro_columns, parse_avro_schema
from mrflight.sources.kafka.formats.message_format import BadValuesError, DecodedRows
from mrflight.sources.kafka.formats.schema_registry import fetch_schema
from mrflight.sources.kafka.messages import Messages, value_bytes
from mrflight.sources.kafka.rejected_message import find_rejected

_MAGIC, _FRAME_BYTES = 0, 5
"""What a message of the registry begins with: a zero, and the number of its schema."""

_NO_SCHEMA = -1

_STREAM = re.compile(r" from <_io\.BytesIO [^>]*>")
"""What fastavro says of where it read, which is nothing that a user knows."""


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
        if not len(values):
            return DecodedRows(empty_batch(self.schema))
        found: list[_Part] = []
        reasons: dict[int, str] = {}
        for group in self._by_schema(values):
            try:
                found += self._parts(values, group)
            except BadValuesError as error:
                reasons |= {int(group.places[at]): why for at, why in error.reasons.items()}
        if reasons:
            raise BadValuesError(dict(sorted(reasons.items())))
        if len(found) == 1:
            return DecodedRows(found[0].batch)
        order = np.argsort(np.concatenate([each.places for each in found]))
        joined = pa.Table.from_batches([each.batch for each in found]).take(order).combine_chunks()
        return DecodedRows(joined.to_batches()[0])

    def _by_schema(self, values: pa.BinaryArray) -> Iterator[_Group]:
        """Yield the places of the values of each schema."""
        if self.writer is not None:
            yield _Group(None, np.arange(len(values)))
            return
        numbers = schema_numbers(values)
        for number in np.unique(numbers):
            yield _Group(int(number), np.flatnonzero(numbers == number))

    def _parts(self, values: pa.BinaryArray, group: _Group) -> Iterator[_Part]:
        """Yield the rows of values of one schema; raises BadValuesError."""
        places = group.places
        mine = values if len(places) == len(values) else values.take(pa.array(places))
        try:
            decoder = self._decoder(group.number)
        except ValueError as error:
            raise BadValuesError(dict.fromkeys(range(len(mine)), str(error))) from error
        if decoder is None:
            yield _Part(self._checked_records(mine, np.arange(len(mine))), places)
            return
        read = decoder.decode(mine, 0 if group.number is None else _FRAME_BYTES)
        if len(read.others):
            yield _Part(self._checked_records(mine, read.others), places[read.others])
        yield _Part(read.batch, np.delete(places, read.others))

    def _decoder(self, number: int | None) -> RecordDecoder | None:
        """Return what decodes records of a schema in the kernel; raises ValueError."""
        if number == _NO_SCHEMA:
            return None
        writer = self.writer if number is None else self._fetched(number)
        assert writer is not None, self.input_name
        return record_decoder(writer, self.schema)

    def _checked_records(
        self, values: pa.BinaryArray, places: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Return the rows of the values at some places; raises ValueError."""
        some = values.take(pa.array(places))
        try:
            return self._decode_records(some)
        except ValueError as error:
            bad = find_rejected(some, self._decode_records)
            if not bad:  # records of which each can be read contradict each other
                raise
            raise BadValuesError({int(places[at]): why for at, why in bad.items()}) from error

    def _decode_records(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return the rows of values by way of Python objects; raises ValueError if one is bad."""
        rows = [self.record(value) for value in values.to_pylist()]
        try:
            return pa.RecordBatch.from_pylist(rows, self.schema)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error

    def explain(self, value: bytes, reason: str) -> str:
        return f"the message is not an Avro record of its schema: {reason}"

    def record(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a message; raises ValueError."""
        from fastavro import schemaless_reader

        if self.writer is not None:
            schema, stream = parsed_schema(self.writer), io.BytesIO(value)
        else:
            schema = parsed_schema(self._fetched(schema_number(value)))
            stream = io.BytesIO(value)
            stream.seek(_FRAME_BYTES)
        try:
            record = schemaless_reader(stream, schema)
        except Exception as error:  # of many kinds, for any bytes
            reason = _STREAM.sub("", str(error))
            raise ValueError(f"{type(error).__name__}: {reason}") from error
        if not isinstance(record, dict) or stream.tell() != len(value):
            left = len(value) - stream.tell()
            raise ValueError(f"{left:,} bytes are left after the record")
        return record

    def _fetched(self, number: int) -> str:
        assert self.registry is not None, self.input_name
        return fetch_schema(self.registry, number, f"inputs.{self.input_name}")


class _Group(NamedTuple):
    """The places of the values of one schema."""

    number: int | None
    """None if all values have the same one."""
    places: npt.NDArray[np.int64]


class _Part(NamedTuple):
    """The rows of the values at some places."""

    batch: pa.RecordBatch
    places: npt.NDArray[np.int64]


def schema_numbers(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the number of the schema that each value begins with; -1 for others."""
    data, offsets = value_bytes(values)
    found, starts = np.frombuffer(data, np.uint8), offsets[:-1]
    is_framed = np.diff(offsets) >= _FRAME_BYTES
    is_framed[is_framed] = found[starts[is_framed]] == _MAGIC
    numbers = np.full(len(values), _NO_SCHEMA, np.int64)
    digits = starts[is_framed, np.newaxis] + np.arange(1, _FRAME_BYTES)
    numbers[is_framed] = found[digits].view(">u4")[:, 0]
    return numbers


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
