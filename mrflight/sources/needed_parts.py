"""Chooses the parts of an input that its conditions can need, by the statistics of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.sources.found_input import FoundInput

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from mrflight.compute.sql.map import SqlMap

Bounds = Mapping[str, tuple[Any, Any]]
"""The smallest and the largest value of some columns; None for what is not known."""

_UNKNOWN = (None, None)


class NeededParts(msgspec.Struct, frozen=True):
    """Decides which parts of an input are needed, by the bounds of some of its columns."""

    maps: tuple[SqlMap, ...]
    schema: pa.Schema
    """The rows as they are read."""
    columns: Mapping[str, pa.DataType]
    """The columns whose bounds decide; if there are none, all parts are needed."""

    def among(self, bounds: Sequence[Bounds]) -> list[bool]:
        """Return whether each part can be needed; bounds of other columns are ignored."""
        if not bounds or not self.columns:
            return [True] * len(bounds)
        from mrflight.compute.sql.bounds import bounds_table

        table = bounds_table(bounds, self.columns)
        each = [sql_map.can_match_bounds(self.schema, table) for sql_map in self.maps]
        return [all(row) for row in zip(*each, strict=True)]


def needed_parts(found: FoundInput, schema: pa.Schema) -> NeededParts:
    """Return what decides for files with these columns."""
    if not found.spec.has_sql:
        return NeededParts((), schema, {})
    from mrflight.compute.sql.input_maps import maps_of_rows_read

    maps = tuple(maps_of_rows_read(found.name, found.spec))
    in_folders = found.partition_columns.types if found.partition_columns is not None else {}
    rows = pa.schema([*schema, *in_folders.items()])
    decisive = {name for sql_map in maps for name in sql_map.bounded_columns(rows)}
    return NeededParts(
        maps, rows, {field.name: field.type for field in schema if field.name in decisive}
    )


def bounds_of_row_groups(footer: pq.FileMetaData, names: Sequence[str]) -> list[Bounds]:
    """Return the bounds of some columns in each row group of a parquet file."""
    paths = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    known = {name: paths[name] for name in names if name in paths and "." not in name}
    return [
        {name: _bounds_in(footer.row_group(group), number) for name, number in known.items()}
        for group in range(footer.num_row_groups)
    ]


def _bounds_in(group: pq.RowGroupMetaData, number: int) -> tuple[Any, Any]:
    statistics = group.column(number).statistics
    if statistics is None or not statistics.has_min_max:
        return _UNKNOWN
    try:
        return statistics.min, statistics.max
    except (UnicodeDecodeError, OverflowError):  # a text that is cut, or a year after 9999
        return _UNKNOWN


def logged_bounds(actions: pa.Table, names: Sequence[str]) -> list[Bounds]:
    """Return the bounds of some columns in each file of a Delta table, by the entries of its log.

    The log has timestamps in milliseconds, and decimals perhaps as floats, so it bounds neither.
    """
    found: list[dict[str, tuple[Any, Any]]] = [{} for _ in range(actions.num_rows)]
    for name in names:
        try:
            sides = [side.to_pylist() for side in _logged_sides(actions, name)]
        except OverflowError:  # a year after 9999
            continue
        for of_file, *pair in zip(found, *sides, strict=True):
            of_file[name] = tuple(pair) if len(pair) == 2 else _UNKNOWN
    return list(found)


def _logged_sides(actions: pa.Table, name: str) -> list[pa.ChunkedArray]:
    """Return the smallest and the largest values of a column; none if they are not known."""
    in_folders = _logged_values(actions, "partition", name)
    if in_folders is not None:
        return [in_folders, in_folders]
    sides = [_logged_values(actions, side, name) for side in ("min", "max")]
    return [side for side in sides if side is not None and _is_exact(side.type)]


def _is_exact(kind: pa.DataType) -> bool:
    return not (pa.types.is_timestamp(kind) or pa.types.is_decimal(kind))


def _logged_values(actions: pa.Table, struct: str, name: str) -> pa.ChunkedArray | None:
    """Return the values of a column in a struct of the log's entries; None if it has none."""
    if struct not in actions.column_names:
        return None
    values = actions[struct]
    number = values.type.get_field_index(name) if pa.types.is_struct(values.type) else -1
    return None if number < 0 else pc.struct_field(values, number)
