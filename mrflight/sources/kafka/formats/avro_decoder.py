"""Decodes Avro records in the kernel, without a Python object each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.kernel_choice import kernel_language
from mrflight.errors import InputError
from mrflight.sources.kafka.formats.avro_layout import NotForKernelError, record_nodes
from mrflight.sources.kafka.formats.avro_parsed import parsed_schema
from mrflight.sources.kafka.formats.avro_schema import avro_columns, parse_avro_schema
from mrflight.sources.kafka.messages import value_bytes

if TYPE_CHECKING:
    from mrflight._kernel import AvroDecoder, Bytes

_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
"""Types of which each value is also one of another."""

_Part = tuple[int, list["Bytes | None"]]


class ReadRecords(NamedTuple):
    """The rows of the values that were read, and the places of the others."""

    batch: pa.RecordBatch
    others: npt.NDArray[np.int64]


class RecordDecoder:
    """Reads records of one writer's schema as columns of the schema that is wanted."""

    def __init__(self, kernel: AvroDecoder, written: pa.Schema, wanted: pa.Schema) -> None:
        self._kernel, self._written, self._wanted = kernel, written, wanted

    def decode(self, values: pa.BinaryArray, skipped: int) -> ReadRecords:
        """Return the rows of values, but for the first ``skipped`` bytes of each.

        None is null. Values that are no records as Avro defines them have no row.
        """
        data, offsets = value_bytes(values)
        parts, others = self._kernel.decode(data, offsets, skipped)
        rest = iter(parts)
        rows, _ = next(rest)
        columns = {field.name: _array(rest, field.type) for field in self._written}
        arrays = [self._column(columns.get(each.name), each.type, rows) for each in self._wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._wanted)
        return ReadRecords(batch, np.array(others, np.int64))

    def _column(self, found: pa.Array | None, type_: pa.DataType, rows: int) -> pa.Array:
        if found is None:
            return pa.nulls(rows, type_)
        return found if found.type == type_ else found.cast(type_)


@lru_cache(maxsize=64)
def record_decoder(text: str, wanted: pa.Schema) -> RecordDecoder | None:
    """Return a decoder of records whose writer's schema is ``text``.

    Returns None if the kernel in Rust has not been built, for schemas that it does not read (see
    `record_nodes`), and if a column has another type than its field, of which not each value is one
    of the column. Raises ValueError for a schema that fastavro does not read.
    """
    if kernel_language() != "rust":
        return None
    from mrflight import _kernel

    if not hasattr(_kernel, "AvroDecoder"):  # an editable install that was not built again
        return None
    parsed = parsed_schema(text)
    try:
        written = avro_columns(parse_avro_schema(text, "it"), "it")
        nodes = record_nodes(parsed, written)
    except (InputError, NotForKernelError):
        return None
    if not _are_columns(written, wanted):
        return None
    return RecordDecoder(_kernel.AvroDecoder(nodes), written, wanted)


def _are_columns(written: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether the fields of a record are values of the columns with their names."""
    found = {field.name: field.type for field in written}
    types = [(found[each.name], each.type) for each in wanted if each.name in found]
    return all(mine == type_ or _WIDER.get(mine) == type_ for mine, type_ in types)


def _array(rest: Iterator[_Part], type_: pa.DataType) -> pa.Array:
    """Return the array of the next part; the parts of its children follow."""
    rows, found = next(rest)
    buffers = [None if each is None else pa.py_buffer(each) for each in found]
    children = [_array(rest, each) for each in _children(type_)]
    if pa.types.is_map(type_):
        entries = pa.struct([type_.key_field, type_.item_field])
        count = len(children[0])
        children = [pa.Array.from_buffers(entries, count, [None], children=children)]
    return pa.Array.from_buffers(type_, rows, buffers, children=children)


def _children(type_: pa.DataType) -> Sequence[Any]:
    if pa.types.is_map(type_):
        return type_.key_type, type_.item_type
    if pa.types.is_list(type_):
        return (type_.value_type,)
    return [each.type for each in type_] if pa.types.is_struct(type_) else ()
