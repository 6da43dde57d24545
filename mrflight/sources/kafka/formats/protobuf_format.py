"""Messages of Protobuf, which ptars decodes to columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mrflight.compute.layout import canonical_schema
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.schema_check import cast_batch

_UNIT = "us"


@dataclass(frozen=True)
class ProtobufFormat:
    """One message of a type each. Enumerations are strings, and times are in microseconds."""

    schema: pa.Schema
    message: str
    """The full name of the type."""
    descriptors: bytes
    """The set of file descriptors that has it."""

    @property
    def reads_nulls(self) -> bool:
        return False

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        batch = _handler(self.descriptors, self.message).array_to_record_batch(values)
        return DecodedRows(cast_batch(batch.select(self.schema.names), self.schema))

    def explain(self, value: bytes, reason: str) -> str:
        return f"the message is not a {self.message}: {reason}"


def open_protobuf_format(
    name: str, spec: InputSpec, schema: pa.Schema | None, descriptors: bytes
) -> ProtobufFormat:
    """Return the format of an input, given the content of its file of descriptors."""
    try:
        import ptars  # noqa: F401
    except ImportError as error:
        raise JobFileError(
            f"inputs.{name}.format: protobuf needs the library ptars: "
            "pip install 'mrflight[protobuf]'"
        ) from error
    assert spec.message is not None, name
    try:
        found = canonical_schema(_handler(descriptors, spec.message).schema())
    except KeyError as error:
        raise InputError(
            f"inputs.{name}.message: {spec.schema} has no type {spec.message!r}; write its full "
            "name, with the package"
        ) from error
    except Exception as error:  # of many kinds, for any bytes
        raise InputError(
            f"inputs.{name}.schema: {spec.schema} is not a set of file descriptors: {error}; make "
            "it with protoc --descriptor_set_out=FILE --include_imports"
        ) from error
    if schema is None:
        schema = pa.schema([pa.field(field.name, field.type) for field in found])
    for column in spec.columns or ():
        if column not in schema.names:
            where = f"inputs.{name}.columns: {spec.message}"
            raise ColumnNotFoundError.among(column, list(schema.names), where)
    selected = [schema.field(column) for column in spec.columns or schema.names]
    return ProtobufFormat(pa.schema(selected), spec.message, descriptors)


@lru_cache(maxsize=16)
def _handler(descriptors: bytes, message: str) -> Any:
    """Return what decodes messages of a type; raises KeyError if the set lacks it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from ptars import HandlerPool, PtarsConfig

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(message)
    config = PtarsConfig(
        timestamp_unit=_UNIT, time_unit=_UNIT, duration_unit=_UNIT, enum_repr="string"
    )
    return HandlerPool([descriptor.file], config).get_for_message(descriptor)
