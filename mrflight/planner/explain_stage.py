"""The plan of one stage in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema
from mrflight.config.functions import FunctionRef
from mrflight.config.sort_key import SortKey
from mrflight.config.spec import InputSpec, JobSpec, ReduceSection
from mrflight.planner.job_plan import Sources
from mrflight.planner.partition_count import (
    AUTO_PARTITION_BYTES,
    LEAST_BLOCK_BYTES,
    PartitionCount,
    Reason,
)
from mrflight.planner.stage_plan import LEAST_COMPRESSED_BYTES, StagePlan
from mrflight.planner.stages import Stage
from mrflight.sources.base import Reader, Source, Split
from mrflight.sources.formats import format_of
from mrflight.tasks.joined_tables import JoinCoGroup
from mrflight.tasks.mapper import RowMap
from mrflight.tasks.operators.partial_columns import needed_columns
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.stage_rows import CoGroup
from mrflight.units import format_bytes

_MOST_SQL_CHARACTERS = 120
"""Of a statement, which is in the job file as a whole."""


_PLAIN_REASONS: dict[Reason, str] = {
    "told": "as the job says",
    "limit": "as each map sends only its first rows",
    "broadcast": "as everyone reads all of it",
    "no key": "as sql of inputs without a key sees all rows",
    "total": "as one row is made of all rows",
}


class StageWords(msgspec.Struct, frozen=True):
    """Tells what a stage does."""

    stage: Stage
    plan: StagePlan
    sources: Sources
    """Its inputs that are files."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """What is told about, and what of it."""
        for side in self.plan.sides:
            for name, partitioner in side.partitioners.items():
                tasks = [task for task in side.map_tasks if task.input_name == name]
                reader = tasks[0].reader if tasks else None
                splits = [task.split for task in tasks]
                where = _where(partitioner, len(side.sample_tasks))
                if self.plan.stream is not None or self.stage.spec.inputs[name].broadcast:
                    where = "to everyone"
                yield from self._input(name, side.row_maps.get(name), splits, where, reader)
        if (stream := self.plan.stream) is not None:
            where = "nowhere: they meet those of the other inputs where they are read"
            source = stream.source
            yield from self._input(source.name, stream.row_map, source.splits, where, source.reader)
        yield "partitions", f"{self.plan.partitions:,}, {self.why_so_many()}"
        yield "combined", self._combined()
        yield "compression", self._compression()
        yield "makes", self._makes()
        if shared := self._shared():
            yield "heavy keys", shared
        if not self._is_read:
            yield "part files", self._part_files()

    @property
    def _is_read(self) -> bool:
        """Whether its result is the input of another stage."""
        return not self.stage.spec.output.table

    def _input(
        self,
        name: str,
        row_map: RowMap | None,
        splits: Sequence[Split],
        where: str,
        reader: Reader | None,
    ) -> Iterator[tuple[str, str]]:
        section = self.stage.spec.inputs[name]
        if section.stage is not None:
            yield f"input {name}", f"what stage {section.stage} makes, a map for some partitions"
        else:
            yield f"input {name}", _files(section, self.sources[name], splits)
        if section.stage is None and (columns := self._only(name, reader)):
            yield "  columns", ", ".join(columns)
        if row_map is not None:
            yield ("  map", str(row_map)) if section.sql is None else _sql(section.sql)
        yield "  rows go", where

    def _only(self, name: str, reader: Reader | None) -> list[str]:
        """The columns that are read, where the job asks for some or has no need of others."""
        asked, found = self.stage.spec.inputs[name].columns, self.sources[name].reader.schema
        if reader is None or reader.schema is None or found is None:
            return asked or []
        is_narrowed = len(reader.schema) < len(found)
        return list(reader.schema.names) if is_narrowed else asked or []

    def why_so_many(self) -> str:
        """What has decided the number of partitions."""
        counted = self.plan.counted
        if counted.reason in _PLAIN_REASONS:
            return _PLAIN_REASONS[counted.reason]
        rows = f"about {format_bytes(counted.rows_bytes)} of rows"
        each = format_bytes(counted.each_bytes)
        if counted.each_bytes < AUTO_PARTITION_BYTES:
            each += ", a quarter of a reduce's memory"
        if counted.number == 1:
            return f"as {rows} fit in one of {each}"
        fill = f"{rows} fill {_filled(counted):,} of {each}"
        if counted.reason == "workers":
            return f"one for each worker: {fill}"
        if counted.reason == "writer":
            block = format_bytes(LEAST_BLOCK_BYTES)
            return f"as a map has memory for a block of {block} for each of no more: {fill}"
        if counted.reason == "most":
            return f"the most that a shuffle has: {fill}"
        return f"as {fill}"

    def _compression(self) -> str:
        compression = self.plan.compression
        if self.stage.spec.shuffle.compression != "auto":
            return f"{compression}, as the job says"
        rows, least = self.plan.counted.rows_bytes, format_bytes(LEAST_COMPRESSED_BYTES)
        compares = "not less" if rows >= LEAST_COMPRESSED_BYTES else "less"
        return f"{compression}, as about {format_bytes(rows)} of rows are {compares} than {least}"

    def _combined(self) -> str:
        """Whether maps make fewer of their rows before they send them, and why not."""
        reduce_spec = self.plan.reduce_spec
        if self.plan.cogroup is not None and len(self.stage.spec.inputs) == 1:
            return "no: sql sees all rows"
        if self.plan.cogroup is not None:
            return "no: rows meet those of the other inputs first"
        if reduce_spec.combiner(1) is None:
            return f"no: {self._why_not_combined()}"
        if reduce_spec.limit is not None:
            return f"each map sends at most {reduce_spec.limit:,} rows, the first in the order"
        if reduce_spec.groups and (apart := self._not_apart()):
            columns = ", ".join(needed_columns(reduce_spec.group_by, reduce_spec.aggregates))
            return f"no: {apart}; only {columns} of each row are sent"
        return "where the first rows of a map show that it leaves half of them or fewer"

    def _why_not_combined(self) -> str:
        reduce_spec, shuffle = self.plan.reduce_spec, self.stage.spec.shuffle
        if reduce_spec.function is not None:
            return f"{reduce_spec.function} sees all rows"
        if reduce_spec.groups or reduce_spec.distinct or reduce_spec.kept:
            return f"the partitioner {shuffle.partitioner} may look at any column"
        return "every row is in the result"

    def _not_apart(self) -> str:
        """Which aggregate cannot be taken apart; as far as types are known."""
        schema = self.plan.sides[0].schema
        for aggregate in self.plan.reduce_spec.aggregates:
            if aggregate.function == "count_distinct":
                return f"{aggregate.name} counts values that may come in several maps"
            if aggregate.function == "mean" and _is_decimal(schema, aggregate.column):
                return f"{aggregate.name} is a mean of decimals, which is rounded once"
        return ""

    def _makes(self) -> str:
        reduce_spec = self.plan.reduce_spec
        told = [_reduced(self.stage.spec, reduce_spec.function, self.plan.cogroup)]
        if reduce_spec.unique is not None:
            told.append(f"one row for each {', '.join(reduce_spec.unique.keys)}")
        if reduce_spec.sort_by:
            told.append(f"sorted by {_order(reduce_spec.sort_by)}")
        if reduce_spec.limit is not None:
            told.append(f"the first {reduce_spec.limit:,} of the result")
        return ", ".join(told)

    def _shared(self) -> str:
        """Of which inputs of a join several tasks can share a partition; none where they cannot."""
        plan = self.plan
        if plan.cogroup is None or plan.stream is not None or plan.partitions == 1:
            return ""
        if not (plan.is_adaptive or self._is_read):
            return ""
        is_known = all(side.schema is not None for side in plan.sides)
        if not is_known and not isinstance(plan.cogroup, JoinCoGroup):
            return ""
        schemas = [side.schema or pa.schema([]) for side in plan.sides]
        sides = plan.sliceable_sides(schemas)
        names = " or ".join(plan.sides[number].name for number in sides)
        leaving = " or ".join(plan.sides[number].name for number in sides if sides[number])
        rest = leaving and (
            f"; where they share {leaving}, one more makes the other's rows that meet none"
        )
        others = {1: "", 2: ", and each reads all of the other side"}.get(
            len(plan.sides), ", and each reads all of the other sides"
        )
        return names and (
            "a partition much larger than others is shared by several tasks: the rows of "
            f"{names}{others}{rest}"
        )

    def _part_files(self) -> str:
        if self.plan.stream is not None:
            by = f"by the hash of {', '.join(keys)}" if (keys := self._output_keys) else "in turn"
            return f"of rows that are shuffled once more, {by}"
        if self.plan.is_adaptive:
            return "one for each partition, or for small neighbours together"
        return "one for each partition that has rows"

    @property
    def _output_keys(self) -> list[str]:
        return self.stage.spec.output.keys


def _files(section: InputSpec, source: Source, splits: Sequence[Split]) -> str:
    assert section.path is not None
    kind = section.format or format_of(section.path) or _unnamed(source)
    largest = max(split.size_bytes for split in splits)
    files = "1 file" if len(source.files) == 1 else f"{len(source.files):,} files"
    cut = f"1 map of {format_bytes(largest)}"
    if len(splits) > 1:
        cut = f"{len(splits):,} maps of at most {format_bytes(largest)}"
    version = "" if source.version is None else f", version {source.version}"
    told = filter(None, [kind, f"{files}{version}", format_bytes(source.size_bytes), cut])
    return ", ".join(told)


def _unnamed(source: Source) -> str:
    """The format of an input whose path says none."""
    if source.version is not None:
        return "delta"
    return (format_of(source.files[0]) if source.files else None) or ""


def _where(partitioner: PartitionerSpec, samples: int) -> str:
    key = ", ".join(partitioner.key)
    if partitioner.kind == "hash":
        return f"by the hash of {key or 'all columns'}"
    if partitioner.kind == "range":
        sample = f"a sample of {samples} pieces" if samples > 1 else "a sample"
        return f"by ranges of {_order(partitioner.sort_keys)}, cut after {sample} of the rows"
    if partitioner.kind == "one":
        return "to one partition"
    if partitioner.kind == "round_robin":
        return "to each partition in turn"
    return f"where {partitioner.function} puts them" + (f", by {key}" if key else "")


def _reduced(spec: JobSpec, function: FunctionRef | None, cogroup: CoGroup | None) -> str:
    """What is made of the rows of a partition, before they are put in order."""
    reduce = spec.reduce or ReduceSection()
    if reduce.groups:
        return _groups(reduce)
    if reduce.function:
        return f"what {function} makes of its rows"
    if reduce.sql:
        return f"sql: {_shortened(reduce.sql)}"
    if isinstance(cogroup, JoinCoGroup):
        sides = [(name, spec.inputs[name].key) for name in (cogroup.left, cogroup.right)]
        met = " and ".join(f"{name} by {', '.join(key)}" for name, key in sides)
        return f"the {reduce.join} join of {met}"
    if reduce.distinct:
        return "its rows, equal ones once"
    if reduce.keep:
        order = f" by {', '.join(reduce.order_by)}" if reduce.order_by else ""
        return f"the {reduce.keep} row of each key{order}"
    return "its rows"


def _groups(reduce: ReduceSection) -> str:
    aggregates = ", ".join(f"{name} = {text}" for name, text in reduce.aggregate.items())
    if reduce.is_total:
        return f"one row of all rows: {aggregates}"
    return f"groups by {', '.join(reduce.group_by)}" + (f": {aggregates}" if aggregates else "")


def _order(keys: tuple[SortKey, ...]) -> str:
    return ", ".join(map(str, keys))


def _filled(counted: PartitionCount) -> int:
    return max(1, -(-counted.rows_bytes // counted.each_bytes))


def _sql(statement: str) -> tuple[str, str]:
    return "  sql", _shortened(statement)


def _shortened(statement: str) -> str:
    one_line = " ".join(statement.split())
    is_long = len(one_line) > _MOST_SQL_CHARACTERS
    return f"{one_line[:_MOST_SQL_CHARACTERS]}..." if is_long else one_line


def _is_decimal(schema: pa.Schema | None, column: str | None) -> bool:
    if schema is None or column not in schema.names:
        return False
    return bool(types.is_decimal(canonical_schema(schema).field(column).type))
