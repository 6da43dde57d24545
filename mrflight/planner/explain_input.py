"""Explains what the maps of one input do, as labelled values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mrflight.compute.sql.map import SqlMap
from mrflight.config.functions import FunctionRef
from mrflight.config.input_spec import InputSpec, shown_log
from mrflight.config.pickled_functions import shown_text
from mrflight.config.row_steps import Compute
from mrflight.sources.base import Reader, Source, Split
from mrflight.sources.formats import format_of
from mrflight.tasks.mapper import RowMap, maps_of
from mrflight.units import format_bytes, format_count

Line = tuple[str, str]
"""A label, which is indented if it belongs to the line before, and its value."""

_MAX_SQL_CHARACTERS = 120
"""Longer statements are cut: the job file has them as a whole."""
_MAX_DIFFERENCES = 10


class InputExplanation(msgspec.Struct, frozen=True):
    """Explains what is read of an input, and how its rows are mapped."""

    name: str
    section: InputSpec
    source: Source | None
    """None if the input is the result of a stage."""
    stage: str | None
    """The title of that stage, which is empty for the job's own."""

    def lines(
        self, splits: Sequence[Split], reader: Reader | None, row_map: RowMap | None
    ) -> Iterator[Line]:
        """Yield the lines for the splits of its maps, the reader of these, and their map."""
        yield from self._rows(splits)
        yield from self._columns(reader)
        yield from self._map(row_map)

    def _rows(self, splits: Sequence[Split]) -> Iterator[Line]:
        name, section, source = self.name, self.section, self.source
        if self.stage is not None:
            stage = f"stage {self.stage}" if self.stage else "the job's own stage"
            yield f"input {name}", f"result of {stage}"
            return
        if section.frame is not None:
            yield f"input {name}", str(section.frame)
            if section.frame.rows is None:
                yield "  estimated", "planned again when the job has written its rows to a file"
            else:
                yield "  maps", f"{len(splits):,}, up to {_largest(splits)} each"
            return
        assert source is not None, name
        if section.kafka is not None:
            offsets = sum(split.stop - split.start for split in source.splits)
            partitions = format_count(len(source.files), "partition")
            yield f"input {name}", f"kafka, {section.format}, {partitions}, {offsets:,} offsets"
        elif section.log is not None:
            rows = format_count(source.rows or 0, "row")
            yield f"input {name}", f"event log {shown_log(section.log)}, {rows}"
            yield "  maps", f"{len(splits):,}, up to {_largest(splits)} each"
            return
        kind = section.format or _format_of(source)
        version = "" if source.version is None else f"version {source.version}"
        size = format_bytes(source.size_bytes)
        values = [kind, version, format_count(len(source.files), "file"), size]
        yield f"input {name}", ", ".join(filter(None, values))
        if source.sampled_from_bytes is not None:
            yield "  sample", f"{section.sample:g} of {format_bytes(source.sampled_from_bytes)}"
        if source.partitioned_by:
            skipped = source.skipped_folders
            note = f" ({format_count(skipped, 'folder')} not needed)" if skipped else ""
            yield "  folders", f"have the columns {', '.join(source.partitioned_by)}{note}"
        if source.differences:
            yield "  union", _listed(source.differences)
        if source.skipped_files:
            yield "  files", f"{source.skipped_files:,} others not needed"
        if source.skipped_row_groups:
            yield "  row groups", f"{source.skipped_row_groups:,} not needed"
        if source.bad_rows is not None:
            written = source.bad_rows.folder
            kept = "counted" if written is None else f"written to {written.url}"
            yield "  bad rows", f"skipped and {kept}"
        yield "  maps", f"{len(splits):,}, up to {_largest(splits)} each"

    def _columns(self, reader: Reader | None) -> Iterator[Line]:
        """Yield the columns that are read, if the job selects some or does not need others."""
        if self.source is None:
            return
        columns, found = self.section.columns, self.source.reader.schema
        if reader is not None and reader.schema is not None and found is not None:
            is_pruned = len(reader.schema) < len(found)
            columns = list(reader.schema.names) if is_pruned or columns else None
        if columns:
            yield "  columns", ", ".join(columns)

    def _map(self, row_map: RowMap | None) -> Iterator[Line]:
        maps = list(maps_of(row_map))
        if (condition := self.section.filter) is not None:
            yield "  filter", shorten(shown_text(condition))
            del maps[0]
        for each in maps:
            if computed := _computed(each):
                yield "  computes", shorten(", ".join(computed))
                continue
            is_sql = isinstance(each, SqlMap) and isinstance(each.query, str)
            yield ("  sql" if is_sql else "  map"), shorten(str(each))


def _listed(differences: Sequence[str]) -> str:
    others = len(differences) - _MAX_DIFFERENCES
    shown = "; ".join(differences[:_MAX_DIFFERENCES])
    return f"{shown}; and {others:,} more" if others > 0 else shown


def _largest(splits: Sequence[Split]) -> str:
    """Return how much a map reads at most, with the number of files if it is more than one."""
    size = format_bytes(max(split.size_bytes for split in splits))
    files = max(len({piece.path for piece in split.pieces}) for split in splits)
    return f"{size} of {format_count(files, 'file')}" if files > 1 else size


def _format_of(source: Source) -> str:
    """Return the format of the files that were found."""
    if source.version is not None:
        return "delta"
    return (format_of(source.files[0]) if source.files else None) or ""


def _computed(row_map: FunctionRef | SqlMap) -> list[str]:
    """Return the expressions in aggregates that the map computes."""
    if not isinstance(row_map, SqlMap) or isinstance(row_map.query, str):
        return []
    return [step.text for step in row_map.query.steps if isinstance(step, Compute)]


def shorten(statement: str) -> str:
    """Return a statement on one line; a long one is cut."""
    one_line = " ".join(statement.split())
    is_long = len(one_line) > _MAX_SQL_CHARACTERS
    return f"{one_line[:_MAX_SQL_CHARACTERS]}..." if is_long else one_line
