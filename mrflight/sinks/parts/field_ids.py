"""The field ids of an Iceberg table's columns, which its Parquet files have.

Iceberg finds a column by its id and not by its name, so that renaming a column changes no file.
Files without ids need a name mapping in the table, which not all readers follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
from pyarrow import types

FIELD_ID = b"PARQUET:field_id"
"""The key of a field's metadata under which pyarrow writes and reads its id."""


class FieldIds(msgspec.Struct, frozen=True):
    """The ids that a table has given, and the last one. Picklable.

    New columns get the next ids in the order of their names. So every task gives a column the same
    id, also if the columns of its rows are in another order.
    """

    items: tuple[tuple[str, int], ...]
    """By path: ``a``, ``a.b`` in a struct, ``a.element``, ``a.key`` and ``a.value``."""
    last: int
    kinds: tuple[tuple[str, str], ...] = ()
    """The types of columns as text. A column that gets another type is another column."""

    @property
    def known(self) -> dict[str, int]:
        """The ids by path."""
        return dict(self.items)

    @classmethod
    def of(cls, marked: pa.Schema, last: int, stored: pa.Schema | None = None) -> FieldIds:
        """Return the ids that the fields of a schema have in their metadata.

        ``stored`` are the types in which rows are stored.
        """
        known = tuple(
            (path, int(field.metadata[FIELD_ID]))
            for top in marked
            for path, field in _fields(top.name, top)
            if field.metadata and FIELD_ID in field.metadata
        )
        kinds = tuple((field.name, _text(field.type)) for field in stored or ())
        return cls(known, last, kinds)

    def mark(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the id of every field in its metadata."""
        changed = {
            name
            for name, kind in self.kinds
            if name in schema.names and _text(schema.field(name).type) != kind
        }
        ids = {
            path: number
            for path, number in self.items
            if path not in changed and path.partition(".")[0] not in changed
        }
        paths = (
            path
            for name in sorted(schema.names)
            for path, _ in _fields(name, schema.field(name))
            if path not in ids
        )
        ids.update({path: self.last + number for number, path in enumerate(list(paths), 1)})
        return pa.schema([_marked(field.name, field, ids) for field in schema])


NO_IDS = FieldIds((), 0)
"""Those of a table that does not exist yet."""


def _text(kind: pa.DataType) -> str:
    return str(kind.value_type if types.is_dictionary(kind) else kind)


def _fields(path: str, field: pa.Field) -> Iterator[tuple[str, pa.Field]]:
    """Yield a field and those in it, with their paths."""
    yield path, field
    for name, inner in _inner(field.type):
        yield from _fields(f"{path}.{name}", inner)


def _inner(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    if types.is_struct(kind):
        return [(kind.field(i).name, kind.field(i)) for i in range(kind.num_fields)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [("element", kind.value_field)]
    if types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return []


def _marked(path: str, field: pa.Field, ids: Mapping[str, int]) -> pa.Field:
    kind = field.type
    inner = [_marked(f"{path}.{name}", each, ids) for name, each in _inner(kind)]
    if types.is_struct(kind):
        kind = pa.struct(inner)
    elif types.is_map(kind):
        kind = pa.map_(inner[0], inner[1])
    elif inner:
        kind = pa.list_(inner[0])
    return field.with_type(kind).with_metadata({FIELD_ID: str(ids[path]).encode()})
