"""The schema that a table's rows are stored with, and the cast of rows to it.

The stored schema is decided once per reduce attempt, before anything is written. After that only
the value of a row can be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute import arrow_compute as pc
from mrflight.compute.arrays import is_low_cardinality
from mrflight.errors import ColumnNotFoundError, OutputError, SchemaMismatchError
from mrflight.sinks.parts.partition_values import can_partition
from mrflight.sinks.parts.stored_type import UnstorableTypeError, delta_type, file_type, same_type

DELTA_FORBIDDEN = " ,;{}()\n\t="
"""Delta allows these in a column's name only with column mapping, which mrflight does not have."""


class TableSchema(msgspec.Struct, frozen=True):
    """The requirements of a table on the schema of rows that are written to it. Picklable."""

    url: str
    is_delta: bool
    partition_by: tuple[str, ...]
    existing: pa.Schema | None = None
    """The stored schema of the table that rows are added to; None if any schema will do."""
    evolves: bool = False
    """Whether columns that the table lacks are added to it. Columns that rows lack become null."""
    operation: str = "appended to"
    """The operation on that table, for messages."""

    def to_stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema that rows of ``schema`` are stored with, in the table's order.

        Raises ColumnNotFoundError for a ``partition_by`` column that is missing, and OutputError
        for a column that the format or the existing table does not accept.
        """
        self._check_names(schema.names)
        stored = pa.schema([pa.field(field.name, self._stored_type(field)) for field in schema])
        self._check_partition_by(schema, stored)
        if self.existing is not None:
            known = replace(self, existing=self._evolve(stored)) if self.evolves else self
            stored = known._match_existing(schema, stored)
        self.cast(_nulls(schema, 0), stored)  # every cast exists
        return stored

    def _check_names(self, names: Sequence[str]) -> None:
        seen: set[str] = set()
        for name in names:
            same = name.lower() if self.is_delta else name
            if same in seen:
                rule = ", and Delta does not tell upper from lower case" if self.is_delta else ""
                raise OutputError(f"{self.url}: two columns are called {name!r}{rule}; rename one")
            seen.add(same)
            if self.is_delta and (not name or any(char in DELTA_FORBIDDEN for char in name)):
                raise OutputError(
                    f"{self.url}: a Delta table cannot have a column called {name!r} (none of "
                    f"{DELTA_FORBIDDEN!r} may be in it); rename it in the map or the aggregate"
                )

    def _check_partition_by(self, schema: pa.Schema, stored: pa.Schema) -> None:
        for column in self.partition_by:
            if column not in stored.names:
                where = "output.partition_by: the result"
                raise ColumnNotFoundError.among(column, stored.names, where)
            if not can_partition(stored.field(column).type):
                raise self._refused(
                    schema.field(column),
                    "a folder cannot be named after such a value; cast it to string in the map, or "
                    "take it out of partition_by",
                )
        if len(stored) == len(self.partition_by):
            raise OutputError(
                f"{self.url}: partition_by names every column, which leaves none to write; "
                "take one out of it"
            )

    def _stored_type(self, field: pa.Field) -> pa.DataType:
        try:
            return delta_type(field.type) if self.is_delta else file_type(field.type)
        except UnstorableTypeError as error:
            raise self._refused(field, str(error)) from None

    def _match_existing(self, schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
        assert self.existing is not None
        for name in stored.names:
            if name not in self.existing.names:
                raise OutputError(
                    f"{self.url} cannot be {self.operation}: it has no column {name!r}, which the "
                    "result has; drop the column in the map, or write to another table"
                )
        for field in self.existing:
            if field.name not in stored.names:
                raise OutputError(
                    f"{self.url} cannot be {self.operation}: its column {field.name!r} "
                    f"({field.type}) is not in the result; add it in the map, or write to another "
                    "table"
                )
            if not same_type(self._stored_type(field), stored.field(field.name).type):
                raise OutputError(
                    f"{self.url} cannot be {self.operation}: its column {field.name!r} is "
                    f"{field.type} and the result's is {schema.field(field.name).type}; cast it in "
                    "the map"
                )
        return pa.schema(
            [stored.field(field.name).with_nullable(field.nullable) for field in self.existing]
        )

    def _evolve(self, stored: pa.Schema) -> pa.Schema:
        """Return the existing schema as rows of ``stored`` have it, with new columns at its end.

        Columns that the rows lack are left out, unless they may not be null.
        """
        assert self.existing is not None
        spelled = {name.lower(): name for name in self.existing.names}
        for name in stored.names:
            if (theirs := spelled.get(name.lower(), name)) != name:
                raise OutputError(
                    f"{self.url} cannot be appended to: column {name!r} is called {theirs!r} "
                    "there, and Delta does not tell upper from lower case; rename it in the map"
                )
        kept = [
            field for field in self.existing if field.name in stored.names or not field.nullable
        ]
        new = [field for field in stored if field.name not in self.existing.names]
        return pa.schema([*kept, *new])

    def check_same(self, schema: pa.Schema, stored: pa.Schema) -> None:
        """Raise SchemaMismatchError if rows of ``schema`` are not stored as ``stored``.

        A cast would hide the difference, and would depend on which partitions share a file. A
        column of type null has no value that a cast could change.
        """
        for field in schema:
            if field.name not in stored.names:
                raise SchemaMismatchError(
                    f"rows of one part file do not agree: some have a column {field.name!r} and "
                    "others do not; let the function return the same columns whatever the rows"
                )
            known = stored.field(field.name).type
            if not pa.types.is_null(field.type) and not same_type(self._stored_type(field), known):
                raise SchemaMismatchError(
                    f"rows of one part file do not agree: column {field.name!r} is {known} in some "
                    f"and {field.type} in others; cast it in the function, to one type whatever "
                    "the rows"
                )

    def _refused(self, field: pa.Field, reason: str) -> OutputError:
        return OutputError(f"{self.url}: column {field.name!r} is {field.type}: {reason}")

    def cast(
        self, batch: pa.RecordBatch, stored: pa.Schema, *, keeps_dictionaries: bool = False
    ) -> pa.RecordBatch:
        """Return ``batch`` with the columns of ``stored``, by name; those that fit are not copied.

        If dictionaries are kept, a low-cardinality string column may stay a dictionary. Raises
        OutputError for a value that the stored type cannot hold.
        """
        columns = [
            self._column(batch, field, keeps_dictionaries and field.name not in self.partition_by)
            for field in stored
        ]
        fields = [
            field.with_type(each.type) if pa.types.is_dictionary(each.type) else field
            for field, each in zip(stored, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _column(self, batch: pa.RecordBatch, field: pa.Field, keeps_dictionary: bool) -> pa.Array:
        if field.name not in batch.schema.names:
            raise SchemaMismatchError(
                f"a batch of the result has no column {field.name!r}; it has {batch.schema.names}"
            )
        column = batch.column(field.name)
        if not field.nullable and column.null_count:
            raise OutputError(
                f"{self.url}: column {field.name!r} is NOT NULL there, and the result has nulls in "
                "it; fill them in the map"
            )
        if keeps_dictionary and is_low_cardinality(column) and column.dictionary.type == field.type:
            # A function's batches may have other indices, and those of a byte are too few for all.
            indices = column.indices.cast(pa.int32())
            return pa.DictionaryArray.from_arrays(indices, column.dictionary)
        try:
            return _cast(column, field.type)
        except pa.ArrowException as error:
            raise OutputError(
                f"{self.url}: column {field.name!r} is {column.type} and is stored as "
                f"{field.type}, which cannot hold it all: {error}; cast it in the map"
            ) from error


def raise_for_column(
    url: str, format: str, schema: pa.Schema, encode: Callable[[pa.RecordBatch], None]
) -> None:
    """Raise OutputError for the column of ``schema`` that ``encode`` cannot write, if any."""
    try:
        encode(_nulls(schema, 1))
    except pa.ArrowException:
        for field in schema:
            try:
                encode(_nulls(pa.schema([field]), 1))
            except pa.ArrowException as error:
                raise OutputError(
                    f"{url}: column {field.name!r} is {field.type}, which a {format} file cannot "
                    f"hold ({error}); cast it in the map, or write another format"
                ) from error
        raise


def _nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.record_batch([pa.nulls(rows, field.type) for field in nullable], schema=nullable)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column.cast(kind)
