"""Decides the columns of json messages: by the job file, by a schema file, or by a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources.json_decoder import OtherFields, encoding_of
from mrflight.sources.json_source import first_names, inferred_type
from mrflight.sources.kafka.formats.joined_lines import joined_lines
from mrflight.sources.kafka.formats.json_format import JsonFormat
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.rejected_message import find_rejected
from mrflight.sources.schema_inference import InferredSchema, unify_schemas
from mrflight.sources.timestamp_formats import check_timestamp_formats
from mrflight.sources.type_names import parse_types, unsupported_type


def needs_sample(spec: InputSpec) -> bool:
    """Return whether the job file leaves the columns, or some of their types, open."""
    return spec.columns is None or not set(spec.columns) <= spec.types.keys()


def open_json_format(
    name: str, spec: InputSpec, schema: pa.Schema | None, sample: Sequence[Messages]
) -> JsonFormat:
    """Return the format of an input, whose columns are those of ``schema`` if that is given."""
    check_timestamp_formats(spec.json.timestamp_formats, f"inputs.{name}.json.timestamp_formats")
    declared = parse_types(spec.types, name)
    reads_all = spec.columns is None and spec.schema == "strict"
    if schema is None:
        schema = _decided(name, spec, declared, sample)
    elif spec.columns is not None:
        schema = _selected(name, spec.columns, schema)
    others: OtherFields = "error" if reads_all else "ignore"
    set_types = frozenset(schema.names if spec.schema != "strict" else declared)
    return JsonFormat(name, schema, set_types, others, spec.json)


def _selected(name: str, columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Return some columns of a schema that is given, in the order in which they are selected."""
    for column in columns:
        if column not in schema.names:
            where = f"inputs.{name}.columns: the schema of the messages"
            raise ColumnNotFoundError.among(column, list(schema.names), where)
    return pa.schema([schema.field(column) for column in columns])


def _decided(
    name: str, spec: InputSpec, declared: Mapping[str, pa.DataType], sample: Sequence[Messages]
) -> pa.Schema:
    """Return the columns of the sample and the declared ones, or those that are selected."""
    inferred = [_infer(name, spec, declared, messages) for messages in sample]
    names = {each: None for found in inferred for each in found.schema.names} | dict(declared)
    columns = spec.columns or list(names)
    if not columns:
        raise InputError(
            f"inputs.{name}: there are no messages yet to infer columns from; set "
            f"inputs.{name}.types, or inputs.{name}.schema to a file"
        )
    for column in columns:
        if column not in names:
            where = f"inputs.{name}.columns: the first messages"
            raise ColumnNotFoundError.among(column, list(names), where)
    read = [
        InferredSchema(each.url, pa.schema([f for f in each.schema if f.name in columns]))
        for each in inferred
    ]
    unified = unify_schemas(read, name)
    return pa.schema(
        [
            (each, declared[each] if each in declared else unified.field(each).type)
            for each in columns
        ]
    )


def _infer(
    name: str, spec: InputSpec, declared: Mapping[str, pa.DataType], messages: Messages
) -> InferredSchema:
    """Return the fields of messages in order of appearance; bad messages are left out."""
    selected = spec.columns
    typed = pa.schema([(c, t) for c, t in declared.items() if selected is None or c in selected])
    format = JsonFormat(name, typed, frozenset(typed.names), "infer", spec.json)
    values = messages.values.drop_null()
    try:
        bad = find_rejected(values, format.decode)
        good = values.take(pa.array([i for i in range(len(values)) if i not in bad], pa.int64()))
        schema = _schema_of(format, good)
    except pa.ArrowNotImplementedError as error:
        raise unsupported_type({f.name: f.type for f in typed}, name, error) from error
    fields = [f if f.name in typed.names else (f.name, inferred_type(f.type)) for f in schema]
    schema = pa.schema(fields)
    chunk, encoding = joined_lines(good), encoding_of(spec.json)
    # pyarrow puts the fields of the explicit schema first.
    order = [each for each in first_names(chunk, encoding) if each in schema.names]
    rest = [each for each in schema.names if each not in order]
    return InferredSchema(messages.place, pa.schema([schema.field(n) for n in (*order, *rest)]))


def _schema_of(format: JsonFormat, values: pa.BinaryArray) -> pa.Schema:
    """Return the fields of values, of which each can be read.

    Values that contradict each other are halved, and what the halves say is unified.
    """
    try:
        return format.decode(values).batch.schema
    except ValueError:
        if len(values) < 2:
            raise
    middle = len(values) // 2
    halves = (values.slice(0, middle), values.slice(middle))
    parts = [InferredSchema(str(i), _schema_of(format, half)) for i, half in enumerate(halves)]
    return unify_schemas(parts, format.input_name)
