"""The columns of an Iceberg table, and how those of its files stand for them.

Iceberg finds a column of a file by its field id. `ParquetReader` finds it by its name. So every
file is checked: a column must have the same name in the file as in the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema
from mrflight.errors import InputError
from mrflight.sources.needed_parts import Bounds

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import Record

FIELD_ID = b"PARQUET:field_id"

Constants = tuple[tuple[str, object], ...]


class TableColumns(msgspec.Struct, frozen=True):
    """The columns of one snapshot of a table."""

    url: str
    schema: pa.Schema
    table_schema: Any
    """The same as pyiceberg's schema."""
    ids: dict[str, int]
    """By the names of the columns."""

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot | None, url: str) -> TableColumns:
        """Return the columns that a snapshot was committed with; the newest without one.

        As in other readers, the newest snapshot has the table's columns as they are now.
        """
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema: Schema = table.schema()
        is_older = snapshot is not None and snapshot.snapshot_id != (
            table.metadata.current_snapshot_id
        )
        if is_older and snapshot is not None and snapshot.schema_id is not None:
            schema = table.schemas()[snapshot.schema_id]
        ids = {field.name: field.field_id for field in schema.fields}
        arrow = canonical_schema(pa.schema(schema_to_pyarrow(schema)))
        return cls(url, arrow, schema, ids)

    def check_file(self, schema: pa.Schema, url: str) -> None:
        """Raise InputError if a file has a column under another name than the table.

        Files without field ids are those that were added as they were, with a mapping of names.
        """
        in_file = {
            field.name: int(field.metadata[FIELD_ID])
            for field in schema
            if field.metadata and FIELD_ID in field.metadata
        }
        names = {number: name for name, number in in_file.items()}
        for name, number in self.ids.items():
            same_id, same_name = names.get(number, name), in_file.get(name, number)
            if same_id != name or same_name != number:
                raise InputError(
                    f"{self.url}: column {name!r} has another name, or is another column, in "
                    f"{url}: it was renamed, or dropped and added again, which mrflight does not "
                    "read yet; rewrite the data files first, for example by rewrite_data_files in "
                    "Spark"
                )

    def constants(
        self, given: Constants, schema: pa.Schema, selected: Collection[str]
    ) -> Constants:
        """Return the partition values of selected columns that a file does not have."""
        return tuple(
            (name, value) for name, value in given if name in selected and name not in schema.names
        )

    def bounds(self, file: DataFile, names: Sequence[str]) -> Bounds:
        """Return the bounds of some columns in a file, by its manifest; (None, None) if unknown.

        Floats have none here, as their bounds leave NaN out.
        """
        return {name: self._bounds_in(file, name) for name in names if name in self.ids}

    def _bounds_in(self, file: DataFile, name: str) -> tuple[Any, Any]:
        from pyiceberg.conversions import from_bytes

        kind = self.table_schema.find_field(name).field_type
        number, arrow = self.ids[name], self.schema.field(name).type
        lower, upper = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
        if lower is None or upper is None or types.is_floating(arrow) or types.is_nested(arrow):
            return None, None
        if types.is_binary(arrow) or types.is_fixed_size_binary(arrow):
            return None, None
        try:
            pair = (from_bytes(kind, lower), from_bytes(kind, upper))
            return as_python(pair[0], arrow), as_python(pair[1], arrow)
        except (ValueError, OverflowError, UnicodeDecodeError):
            return None, None


def partition_constants(table: Table, spec_id: int, partition: Record) -> Constants:
    """Return the values of the columns by which a file's partitioning has them as they are."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import IdentityTransform

    schema, found = table.schema(), []
    for position, field in enumerate(table.specs()[spec_id].fields):
        name = schema.find_column_name(field.source_id)
        if isinstance(field.transform, IdentityTransform) and name is not None:
            kind = schema_to_pyarrow(schema.find_field(field.source_id).field_type)
            found.append((name, as_python(partition[position], kind)))
    return tuple(found)


def as_python(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a manifest, which has numbers for times, as Python has it."""
    if not isinstance(value, int) or not types.is_temporal(kind):
        return value
    number = pa.int32() if types.is_date32(kind) or types.is_time32(kind) else pa.int64()
    return pa.array([value], number).cast(kind)[0].as_py()
