"""Opens the format of an input of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.errors import JobFileError
from mrflight.sources.kafka.formats.avro_schema import (
    avro_columns,
    parse_avro_schema,
    read_schema_file,
)
from mrflight.sources.kafka.formats.message_format import MessageFormat
from mrflight.sources.kafka.formats.text_types import check_types
from mrflight.sources.kafka.messages import Messages

Sample = Callable[[], Sequence[Messages]]
"""Fetches the first messages, if the format needs them."""


def open_format(
    name: str, spec: InputSpec, folder: Path, schema: pa.Schema | None, sample: Sample
) -> MessageFormat:
    """Return the format of an input, with the columns of ``schema`` if that is given.

    ``folder`` is the job file's, from which ``spec.schema`` starts. Raises JobFileError,
    ColumnNotFoundError and InputError.
    """
    if spec.envelope == "debezium":
        from mrflight.sources.kafka.changes.opening import open_changes

        return open_changes(name, spec, folder, schema, sample)
    if spec.format == "raw":
        from mrflight.sources.kafka.formats.raw_format import RawFormat

        return RawFormat()
    if spec.format == "json":
        from mrflight.sources.kafka.formats.json_columns import needs_sample, open_json_format

        if schema is None and spec.schema != "strict":
            schema = schema_of_file(name, spec, folder)
        needed = schema is None and needs_sample(spec)
        opened = open_json_format(name, spec, schema, sample() if needed else ())
        check_types(name, opened, b"{}")
        return opened
    if spec.format == "csv":
        from mrflight.sources.kafka.formats.csv_format import open_csv_format

        if schema is None and spec.schema != "strict":
            schema = schema_of_file(name, spec, folder)
        records = open_csv_format(name, spec, schema, sample() if schema is None else ())
        check_types(name, records, spec.csv.delimiter.encode() * (len(records.names) - 1))
        return records
    if spec.format == "arrow":
        from mrflight.sources.kafka.formats.arrow_format import open_arrow_format

        return open_arrow_format(name, spec, schema, sample() if schema is None else ())
    if spec.format == "avro":
        from mrflight.sources.kafka.formats.avro_format import open_avro_format

        writer = None
        if spec.schema != "strict":
            writer = read_schema_file(name, spec.schema, folder).decode(errors="replace")
        needed = schema is None and writer is None
        return open_avro_format(name, spec, schema, writer, sample() if needed else ())
    if spec.format == "protobuf":
        from mrflight.sources.kafka.formats.protobuf_format import open_protobuf_format

        descriptors = read_schema_file(name, spec.schema, folder)
        return open_protobuf_format(name, spec, schema, descriptors)
    raise JobFileError(f"inputs.{name}.format: {spec.format} is not one of messages")


def schema_of_file(name: str, spec: InputSpec, folder: Path) -> pa.Schema:
    """Return the columns of ``inputs.NAME.schema``, a file with an Avro schema."""
    where = f"inputs.{name}.schema: {folder / spec.schema}"
    text = read_schema_file(name, spec.schema, folder)
    return avro_columns(parse_avro_schema(text, where), where)
