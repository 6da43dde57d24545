"""The plan of one stage in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from mrflight.functions import FunctionRef
from mrflight.job_graph import StageJob
from mrflight.job_plan import Sources
from mrflight.partition_count import (
    AUTO_PARTITION_BYTES,
    LEAST_BLOCK_BYTES,
    PartitionCount,
)
from mrflight.plan import LEAST_COMPRESSED_BYTES, StagePlan
from mrflight.quantities import format_bytes
from mrflight.shuffle.layout import plain_schema
from mrflight.side_plan import Side
from mrflight.sort_key import SortKey
from mrflight.sources.base import Source
from mrflight.sources.formats import format_of
from mrflight.spec import InputSpec, ReduceSection
from mrflight.stream_plan import Stream
from mrflight.workers.joined_tables import JoinedTables
from mrflight.workers.partial_columns import needed_columns
from mrflight.workers.partitioning import PartitionerSpec
from mrflight.workers.stage_rows import Meeting

_MOST_SQL_CHARACTERS = 120
"""Of a statement, which is in the job file as a whole."""


@dataclass(frozen=True)
class StageWords:
    """Tells what a stage does."""

    stage: StageJob
    plan: StagePlan
    sources: Sources
    """Its inputs that are files."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """What is told about, and what of it."""
        for side in self.plan.sides:
            for name, partitioner in side.partitioners.items():
                yield from self._input(name, side, partitioner)
        if self.plan.stream is not None:
            yield from self._streamed(self.plan.stream)
            return
        yield "partitions", f"{self.plan.partitions}, {self.why_so_many()}"
        yield "combined", self._combined()
        yield "compression", self._compression()
        yield "made of each", self._made()
        if self.plan.resizes and not self._is_read:
            yield "part files", "one for each partition, or for small neighbours together"
        elif not self._is_read:
            yield "part files", "one for each partition that has rows"

    @property
    def _is_read(self) -> bool:
        """Whether its result is the input of another stage."""
        return not self.stage.spec.output.table

    def _input(
        self, name: str, side: Side, partitioner: PartitionerSpec
    ) -> Iterator[tuple[str, str]]:
        section = self.stage.spec.inputs[name]
        if section.stage is not None:
            yield f"input {name}", f"what stage {section.stage} makes, a map for some partitions"
        else:
            yield f"input {name}", _files(section, self.sources[name], side)
        if section.columns is not None:
            yield "  columns", ", ".join(section.columns)
        if section.map is not None:
            yield "  map", str(side.row_maps[name])
        if section.sql is not None:
            yield "  sql", _shortened(section.sql)
        is_broadcast = self.plan.stream is not None or bool(section.broadcast)
        samples = len(side.sample_tasks)
        yield "  rows go", _where(partitioner, samples, is_broadcast=is_broadcast)

    def _streamed(self, stream: Stream) -> Iterator[tuple[str, str]]:
        """Of the input whose rows go nowhere, as the others come to them."""
        name = stream.source.name
        section = self.stage.spec.inputs[name]
        size = format_bytes(stream.source.size_bytes)
        told = f"what stage {section.stage} makes" if section.stage is not None else size
        yield f"input {name}", told
        if stream.row_map is not None:
            yield "  map" if section.map is not None else "  sql", _shortened(str(stream.row_map))
        yield "  rows go", "nowhere: they meet those of the other inputs where they are read"
        yield "made of them", self._made()

    def why_so_many(self) -> str:
        """What has decided the number of partitions."""
        counted = self.plan.counted
        if counted.reason == "told":
            return "as the job says"
        rows = f"about {format_bytes(counted.rows_bytes)} of rows"
        each = format_bytes(counted.each_bytes)
        if counted.each_bytes < AUTO_PARTITION_BYTES:
            each += ", a quarter of a reduce's memory"
        if counted.reason == "limit":
            return "which the first rows of each map go to"
        if counted.reason == "no key":
            return "as no input has a key by which rows could be told apart"
        if counted.number == 1:
            return f"as {rows} fit in one of {each}"
        fill = f"{rows} fill {_filled(counted)} of {each}"
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
        reduction = self.plan.reduction
        if self.plan.meeting is not None:
            return "no: rows meet those of the other inputs first"
        if reduction.combiner(1) is None:
            return f"no: {self._why_not_combined()}"
        if reduction.limit is not None:
            return f"each map sends at most {reduction.limit:,} rows, the first in the order"
        if reduction.group_by and (apart := self._not_apart()):
            columns = ", ".join(needed_columns(reduction.group_by, reduction.aggregates))
            return f"no: {apart}; only {columns} of each row are sent"
        return "where the first rows of a map show that it leaves half of them or fewer"

    def _why_not_combined(self) -> str:
        reduction, shuffle = self.plan.reduction, self.stage.spec.shuffle
        if reduction.function is not None:
            return f"{reduction.function} sees all rows"
        if reduction.group_by or reduction.distinct or reduction.kept:
            return f"the partitioner {shuffle.partitioner} may look at any column"
        return "every row is in the result"

    def _not_apart(self) -> str:
        """Which aggregate cannot be taken apart; as far as types are known."""
        schema = self.plan.sides[0].schema
        for aggregate in self.plan.reduction.aggregates:
            if aggregate.function == "count_distinct":
                return f"{aggregate.name} counts values that may come in several maps"
            if aggregate.function == "mean" and _is_decimal(schema, aggregate.column):
                return f"{aggregate.name} is a mean of decimals, which is rounded once"
        return ""

    def _made(self) -> str:
        reduce, reduction = self.stage.spec.reduce, self.plan.reduction
        told = (
            [_reduced(reduce, reduction.function, self.plan.meeting)]
            if reduce is not None
            else ["its rows"]
        )
        if reduce is None or not reduce.orders:
            if reduction.unique is not None:
                told.append(f"one row for each {', '.join(reduction.unique.keys)}")
            if reduction.sort_by:
                told.append(f"sorted by {_order(reduction.sort_by)}")
        return ", ".join(told)


def _files(section: InputSpec, source: Source, side: Side) -> str:
    assert section.path is not None
    kind = section.format or format_of(section.path) or _unnamed(source)
    tasks = [task for task in side.map_tasks if task.input_name == source.name]
    largest = max(task.split.size_bytes for task in tasks)
    files = "1 file" if len(source.files) == 1 else f"{len(source.files):,} files"
    cut = f"1 map of {format_bytes(largest)}"
    if len(tasks) > 1:
        cut = f"{len(tasks):,} maps of at most {format_bytes(largest)}"
    version = "" if source.version is None else f", version {source.version}"
    told = filter(None, [kind, f"{files}{version}", format_bytes(source.size_bytes), cut])
    return ", ".join(told)


def _unnamed(source: Source) -> str:
    """The format of an input whose path says none."""
    if source.version is not None:
        return "delta"
    return (format_of(source.files[0]) if source.files else None) or ""


def _where(partitioner: PartitionerSpec, samples: int, *, is_broadcast: bool) -> str:
    key = ", ".join(partitioner.key)
    if partitioner.kind == "hash":
        return f"by the hash of {key or 'all columns'}"
    if partitioner.kind == "range":
        sample = f"a sample of {samples} pieces" if samples > 1 else "a sample"
        return f"by ranges of {_order(partitioner.sort_keys)}, cut after {sample} of the rows"
    if partitioner.kind == "one":
        return "to one partition" + (", which everyone reads" if is_broadcast else "")
    if partitioner.kind == "round_robin":
        return "to each partition in turn"
    return f"where {partitioner.function} puts them" + (f", by {key}" if key else "")


def _reduced(reduce: ReduceSection, function: FunctionRef | None, meeting: Meeting | None) -> str:
    """What is made of the rows of a partition, and how they are ordered."""
    told = []
    if reduce.group_by:
        told.append(_groups(reduce))
    elif reduce.function:
        told.append(f"what {function} makes of its rows")
    elif reduce.sql:
        told.append(_shortened(reduce.sql))
    elif isinstance(meeting, JoinedTables):
        told.append(f"the {reduce.join} join of {meeting.left} and {meeting.right}")
    elif reduce.distinct:
        told.append("its rows, equal ones once")
    elif reduce.keep:
        order = f" by {', '.join(reduce.order_by)}" if reduce.order_by else ""
        told.append(f"the {reduce.keep} row of each key{order}")
    else:
        told.append("its rows")
    if reduce.sort_by:
        told.append(f"sorted by {', '.join(reduce.sort_by)}")
    if reduce.limit is not None:
        told.append(f"the first {reduce.limit:,} of the result")
    return ", ".join(told)


def _groups(reduce: ReduceSection) -> str:
    aggregates = ", ".join(f"{name} = {text}" for name, text in reduce.aggregate.items())
    return f"groups by {', '.join(reduce.group_by)}" + (f": {aggregates}" if aggregates else "")


def _order(keys: tuple[SortKey, ...]) -> str:
    return ", ".join(map(str, keys))


def _filled(counted: PartitionCount) -> int:
    return max(1, -(-counted.rows_bytes // counted.each_bytes))


def _shortened(statement: str) -> str:
    one_line = " ".join(statement.split())
    is_long = len(one_line) > _MOST_SQL_CHARACTERS
    return f"{one_line[:_MOST_SQL_CHARACTERS]}..." if is_long else one_line


def _is_decimal(schema: pa.Schema | None, column: str | None) -> bool:
    if schema is None or column not in schema.names:
        return False
    return bool(types.is_decimal(plain_schema(schema).field(column).type))
