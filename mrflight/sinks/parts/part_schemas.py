"""Check that the part files of a job fit together in one table.

Each task writes the schema of its own rows. A user's function may return other types in one
partition than in another, most often if they are inferred from the rows. Readers of no format cast
them: a Delta table of such files cannot be read, and in a folder of parquet or arrow files it
depends on which file comes first (DuckDB 2.0, Polars 2.1 and pyarrow 26 refuse even a column of
type null beside one of strings). A csv file has no types, so that a column without values fits
every other.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mrflight.errors import SchemaMismatchError
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.stored_type import same_type
from mrflight.storage.part_name import partition_of_part


def common_schema(parts: Sequence[PartFile], *, null_fits: bool) -> pa.Schema:
    """Return the stored schema of at least one part, in the order of the first.

    ``null_fits`` says that a column of type null fits one of any type. Raises SchemaMismatchError,
    which names the column and the two partitions.
    """
    first = parts[0]
    fields = {field.name: field for field in first.schema}
    typed_by = dict.fromkeys(fields, first)
    seen = first.schema
    for part in parts[1:]:
        if part.schema is seen or part.schema.equals(seen):
            continue
        seen = part.schema
        _check_columns(first, part)
        for field in part.schema:
            known = fields[field.name]
            if null_fits and pa.types.is_null(known.type):
                fields[field.name], typed_by[field.name] = field, part
            elif null_fits and pa.types.is_null(field.type):
                continue
            elif not same_type(known.type, field.type):
                raise _mismatch(typed_by[field.name], known.type, part, field)
    return pa.schema([fields[name] for name in first.schema.names])


def _check_columns(one: PartFile, other: PartFile) -> None:
    ours, theirs = one.schema.names, other.schema.names
    for name, has, lacks in (
        *((name, one, other) for name in ours if name not in theirs),
        *((name, other, one) for name in theirs if name not in ours),
    ):
        raise SchemaMismatchError(
            f"partition {_partition(has)} has a column {name!r} and partition {_partition(lacks)} "
            "has none, so they do not fit into one table; let the function return the same columns "
            "whatever the rows"
        )


def _mismatch(
    one: PartFile, kind: pa.DataType, other: PartFile, field: pa.Field
) -> SchemaMismatchError:
    # The type null is inferred for a column without values.
    hint = (
        " (no row has a value where it is null)"
        if pa.types.is_null(kind) or pa.types.is_null(field.type)
        else ""
    )
    return SchemaMismatchError(
        f"column {field.name!r} is {kind} in partition {_partition(one)} and {field.type} in "
        f"partition {_partition(other)}{hint}, so they do not fit into one table; cast it in the "
        "function, to one type whatever the rows"
    )


def _partition(part: PartFile) -> int | None:
    return partition_of_part(part.path)
