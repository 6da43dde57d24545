"""Messages that are records of csv, without a header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.csv_decoder import CsvDecoder
from mrflight.sources.csv_source import inferred_type
from mrflight.sources.kafka.formats.joined_lines import joined_lines
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.kafka.messages import Messages, value_bytes
from mrflight.sources.kafka.rejected_message import find_rejected
from mrflight.sources.schema_inference import InferredSchema, unify_schemas
from mrflight.sources.type_names import parse_types


@dataclass(frozen=True)
class CsvFormat:
    """One record a message, which may end with a line end and has no other."""

    input_name: str
    names: tuple[str, ...]
    """All columns, in the order of the records."""
    schema: pa.Schema
    """The columns that are read."""
    declared: frozenset[str]
    """The columns whose types the user has set."""
    options: CsvOptions

    @property
    def reads_nulls(self) -> bool:
        return False

    @cached_property
    def _expected(self) -> CsvExpectation:
        types = {field.name: field.type for field in self.schema}
        names = self.schema.names
        return CsvExpectation(
            self.input_name, self.names, names, types, self.declared, self.options
        )

    @cached_property
    def _decoder(self) -> CsvDecoder:
        return self._expected.decoder()

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        if not len(values):
            return DecodedRows(empty_batch(self.schema))
        batch = self._decoder.decode(joined_lines(without_line_ends(values)))
        if batch.num_rows != len(values):
            raise ValueError("a message is not one record")
        return DecodedRows(batch)

    def explain(self, value: bytes, reason: str) -> str:
        if not value.strip(b"\r\n"):
            return "the message is empty; write one record per message"
        if b"\n" in value.rstrip(b"\r\n"):
            return f"{value[:100]!r} has several lines; write one record per message"
        return self._expected.explain(value, reason).replace("first lines", "first messages")

    def __reduce__(self) -> tuple[type[CsvFormat], tuple[object, ...]]:
        values = (self.input_name, self.names, self.schema, self.declared, self.options)
        return type(self), values


def without_line_ends(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values without the line end at their end; raise ValueError for any other."""
    data, _ = value_bytes(values)
    found = np.frombuffer(data, np.uint8)
    if not np.any((found == ord("\n")) | (found == ord("\r"))):
        return values
    stripped = [value.rstrip(b"\r\n") for value in values.to_pylist()]
    if any(b"\n" in each or b"\r" in each for each in stripped):
        raise ValueError("a message has several lines")
    return pa.array(stripped, pa.binary())


def open_csv_format(
    name: str, spec: InputSpec, schema: pa.Schema | None, sample: Sequence[Messages]
) -> CsvFormat:
    """Return the format of an input, whose columns are those of ``schema`` if that is given.

    Otherwise they are named by ``csv.column_names``, or f0, f1, and so on.
    """
    declared = parse_types(spec.types, name)
    if schema is not None:
        names = spec.csv.column_names or schema.names
        read = pa.schema([schema.field(each) for each in _selected(name, spec, schema.names)])
        return CsvFormat(name, tuple(names), read, frozenset(schema.names), spec.csv)
    names = spec.csv.column_names or _numbered(name, spec, sample)
    selected = _selected(name, spec, names)
    types = {column: kind for column, kind in declared.items() if column in selected}
    if len(types) < len(selected):
        expected = CsvExpectation(name, names, selected, types, frozenset(types), spec.csv)
        types = {**_inferred(expected, sample), **types}
    read = pa.schema([(column, types[column]) for column in selected])
    return CsvFormat(name, tuple(names), read, frozenset(declared), spec.csv)


def _selected(name: str, spec: InputSpec, names: Sequence[str]) -> Sequence[str]:
    for column in (*(spec.columns or ()), *spec.types):
        if column not in names:
            where = f"inputs.{name}: the records of the messages"
            raise ColumnNotFoundError.among(column, list(names), where)
    return spec.columns or names


def _numbered(name: str, spec: InputSpec, sample: Sequence[Messages]) -> list[str]:
    """Return f0, f1, and so on, as many as the first record has fields."""
    import csv

    for messages in sample:
        values = messages.values.drop_null()
        if len(values):
            text = values[0].as_py().decode(errors="replace")
            rows = csv.reader(
                [text], delimiter=spec.csv.delimiter, quotechar=spec.csv.quote or None
            )
            return [f"f{number}" for number in range(len(next(rows, [])))]
    raise InputError(
        f"inputs.{name}: there are no messages yet to infer columns from; set "
        f"inputs.{name}.csv.column_names and inputs.{name}.types, or inputs.{name}.schema to a file"
    )


def _inferred(expected: CsvExpectation, sample: Sequence[Messages]) -> Mapping[str, pa.DataType]:
    """Return the types of the columns in a sample; records that cannot be read are left out."""
    decoder = expected.decoder()

    def decode(values: pa.BinaryArray) -> pa.RecordBatch:
        return decoder.decode(joined_lines(without_line_ends(values)))

    empty = pa.schema([(column, pa.null()) for column in expected.include])
    found = [InferredSchema("", empty)]
    for messages in sample:
        values = messages.values.drop_null()
        bad = find_rejected(values, decode)
        good = values.take(pa.array([i for i in range(len(values)) if i not in bad], pa.int64()))
        if len(good):
            batch = decode(good)
            types = [(c, inferred_type(batch.column(c))) for c in expected.include]
            found.append(InferredSchema(messages.place, pa.schema(types)))
    return {field.name: field.type for field in unify_schemas(found, expected.input_name)}
