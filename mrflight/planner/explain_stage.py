"""Explains the plan of one stage as labelled values, with the reasons in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema
from mrflight.config.functions import FunctionRef
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.sort_key import SortKey
from mrflight.config.spec import JobSpec
from mrflight.planner.explain_input import InputExplanation, Line, shorten
from mrflight.planner.job_plan import Sources
from mrflight.planner.partition_count import (
    AUTO_PARTITION_BYTES,
    MIN_BLOCK_BYTES,
    PartitionCount,
    Reason,
)
from mrflight.planner.stage_plan import MIN_COMPRESSED_BYTES, StagePlan
from mrflight.planner.stages import Stage
from mrflight.tasks.cogroup import CoGroup
from mrflight.tasks.cogroup_kinds import JoinCoGroup
from mrflight.tasks.operators.partial_columns import needed_columns
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.units import format_bytes, format_count

_REASONS: dict[Reason, str] = {
    "set": "set by the job",
    "rows": "by size",
    "workers": "one for each worker",
    "writer": f"a map has memory for no more blocks of {format_bytes(MIN_BLOCK_BYTES)}",
    "maximum": "the most that a shuffle can have",
    "limit": "each map sends only its first rows",
    "broadcast": "every task reads all rows",
    "no key": "sql without a key sees all rows",
    "total": "one row is made of all rows",
}


if TYPE_CHECKING:
    from mrflight.planner.fragment_stage import FragmentStage


class StageExplanation(msgspec.Struct, frozen=True):
    """Explains what a stage does."""

    stage: Stage
    plan: StagePlan
    sources: Sources
    """Its inputs that are files."""
    titles: Mapping[str, str]
    """The titles of all stages, by name."""

    def lines(self) -> Iterator[Line]:
        if self.stage.fragment is not None:
            yield from self._fragment(self.stage.fragment)
            return
        for side in self.plan.sides:
            for name, partitioner in side.partitioners.items():
                tasks = [task for task in side.map_tasks if task.input_name == name]
                reader = tasks[0].reader if tasks else None
                row_map = side.row_maps.get(name)
                yield from self._input(name).lines([t.split for t in tasks], reader, row_map)
                is_broadcast = self.plan.stream is not None or self._spec.inputs[name].broadcast
                shuffle = _partitioning(partitioner, len(side.sample_tasks))
                yield "  shuffle", "broadcast to every task" if is_broadcast else shuffle
        if (stream := self.plan.stream) is not None:
            source = stream.source
            explained = self._input(source.name)
            yield from explained.lines(source.splits, source.reader, stream.row_map)
            yield "  shuffle", "none (joined with the broadcast inputs as it is read)"
        yield "partitions", f"{self.plan.partitions:,} ({explain_count(self.plan.counted)})"
        yield "combine", self._combine()
        yield "compression", self._compression()
        yield "reduce", self._reduce()
        if skew := self._skew():
            yield "skew", skew
        if not self._is_intermediate:
            yield "part files", self._part_files()

    @property
    def _spec(self) -> JobSpec:
        return self.stage.spec

    def _fragment(self, stage: FragmentStage) -> Iterator[Line]:
        """Yield where the rows of a part of a query come from, and DataFusion's plan of it."""
        by_what = f"for each split of {stage.streamed}"
        if stage.streamed is None:
            by_what = "for each partition"
        elif stage.reads_files:
            by_what = "for each group of files"
        alone = "one"
        if stage.why_whole:
            threads = format_count(stage.fragment.threads, "thread")
            alone = f"one with {threads} for the whole query: {stage.why_whole}"
        yield "tasks", f"one {by_what}, {stage.tasks:,}" if stage.tasks > 1 else alone
        for name, section in self.stage.spec.inputs.items():
            if name == stage.streamed and stage.reads_files:
                continue
            read = f"stage {self.titles[section.stage]}" if section.stage else "files"
            sent = "sent to every task" if section.broadcast else stage.sent(name)
            yield f"input {name}", f"{read}, {sent}"
        if skew := self._skew():
            yield "skew", skew
        for number, line in enumerate(stage.lines):
            yield "  plan" if number == 0 else "  over", shorten(line)

    def _input(self, name: str) -> InputExplanation:
        section = self._spec.inputs[name]
        stage = None if section.stage is None else self.titles[section.stage]
        return InputExplanation(name, section, self.sources.get(name), stage)

    @property
    def _is_intermediate(self) -> bool:
        """True if the result is the input of another stage."""
        return not self._spec.has_output

    def _compression(self) -> str:
        compression = self.plan.compression
        if self._spec.shuffle.compression != "auto":
            return f"{compression} (set by the job)"
        rows = self.plan.counted.rows_bytes
        compares = "at least" if rows >= MIN_COMPRESSED_BYTES else "less than"
        limit = format_bytes(MIN_COMPRESSED_BYTES)
        return f"{compression} (about {format_bytes(rows)} of rows, {compares} {limit})"

    def _combine(self) -> str:
        """Say whether maps aggregate their rows before they send them, and why not."""
        spec, shuffle = self.plan.reduce_spec, self._spec.shuffle
        if self.plan.cogroup is not None and len(self._spec.inputs) == 1:
            return "no (sql sees all rows)"
        if self.plan.cogroup is not None:
            return "no (rows are joined first)"
        if spec.function is not None:
            return f"no ({spec.function} sees all rows)"
        if spec.combiner(1) is None and (spec.groups or spec.distinct or spec.kept):
            return f"no (partitioner {shuffle.partitioner} may use any column)"
        if spec.combiner(1) is None:
            return "no (every row is in the result)"
        if spec.limit is not None:
            return f"first {spec.limit:,} rows of each map"
        if spec.groups and (reason := self._why_whole_groups()):
            columns = ", ".join(needed_columns(spec.group_by, spec.aggregates))
            return f"no ({reason}); columns sent: {columns}"
        return "if it leaves at most half of the first rows of a map"

    def _why_whole_groups(self) -> str:
        """Name an aggregate that has no partial aggregates, as far as types are known."""
        schema = self.plan.sides[0].schema
        for aggregate in self.plan.reduce_spec.aggregates:
            if aggregate.function == "count_distinct":
                return f"{aggregate.name} counts values that may come from several maps"
            if aggregate.needs_all_rows:
                return f"{aggregate.name} needs all values of a group in order"
            if aggregate.function == "mean" and _is_decimal(schema, aggregate.column):
                return f"{aggregate.name} is a mean of decimals, which is rounded once"
        return ""

    def _reduce(self) -> str:
        spec = self.plan.reduce_spec
        steps = [_reduce_kind(self._spec, spec.function, self.plan.cogroup)]
        if spec.unique is not None:
            steps.append(f"one row for each {', '.join(spec.unique.keys)}")
        if spec.sort_by:
            steps.append(f"sorted by {_order(spec.sort_by)}")
        if spec.limit is not None:
            steps.append(f"first {spec.limit:,} rows")
        return ", ".join(steps)

    def _skew(self) -> str:
        """Say which inputs of a join are sliced if a partition is skewed; empty if none."""
        plan = self.plan
        if plan.cogroup is None or plan.stream is not None or plan.partitions == 1:
            return ""
        if not (plan.is_adaptive or self._is_intermediate):
            return ""
        is_known = all(side.schema is not None for side in plan.sides)
        if not is_known and not isinstance(plan.cogroup, JoinCoGroup):
            return ""
        sides = plan.sliceable_sides([side.schema or pa.schema([]) for side in plan.sides])
        names = " or ".join(plan.sides[number].name for number in sides)
        with_remainder = " or ".join(plan.sides[number].name for number in sides if sides[number])
        if not names:
            return ""
        whole = "; each task reads the other inputs whole" if len(plan.sides) > 1 else ""
        remainder = with_remainder and (
            f"; if {with_remainder} is sliced, one more task returns the other's unmatched rows"
        )
        return f"a large partition is split into slices of {names}{whole}{remainder}"

    def _part_files(self) -> str:
        if self.plan.stream is not None:
            keys = ", ".join(self._spec.output.keys)
            return f"after another shuffle, by {f'hash of {keys}' if keys else 'round robin'}"
        if self.plan.is_adaptive:
            return "one for each partition; small neighbors are coalesced"
        return "one for each partition that has rows"


def explain_count(count: PartitionCount) -> str:
    """Return why a stage has so many partitions."""
    reason = _REASONS[count.reason]
    if count.reason not in ("rows", "workers", "writer", "maximum"):
        return reason
    rows, each = format_bytes(count.rows_bytes), format_bytes(count.each_bytes)
    if count.each_bytes < AUTO_PARTITION_BYTES:
        return f"{reason}: about {rows} of rows, up to {each} each, a quarter of a reduce's memory"
    return f"{reason}: about {rows} of rows, up to {each} each"


def _partitioning(partitioner: PartitionerSpec, samples: int) -> str:
    key = ", ".join(partitioner.key)
    if partitioner.kind == "hash":
        return f"by hash of {key or 'all columns'}"
    if partitioner.kind == "range":
        return f"by range of {_order(partitioner.sort_keys)} ({format_count(samples, 'sample')})"
    if partitioner.kind == "one":
        return "to one partition"
    if partitioner.kind == "round_robin":
        return "by round robin"
    return f"by {partitioner.function}" + (f" of {key}" if key else "")


def _reduce_kind(spec: JobSpec, function: FunctionRef | None, cogroup: CoGroup | None) -> str:
    """Return what is made of the rows of a partition, before they are sorted."""
    reduce = spec.reduce or ReduceSection()
    aggregates = ", ".join(f"{name} = {text}" for name, text in reduce.aggregate.items())
    if reduce.groups and reduce.is_total:
        return f"aggregate all rows: {aggregates}"
    if reduce.groups:
        by = f"group by {', '.join(reduce.group_by)}"
        return f"{by}: {aggregates}" if aggregates else by
    if reduce.function:
        return f"function {function}"
    if reduce.sql:
        return f"sql: {shorten(reduce.sql)}"
    if isinstance(cogroup, JoinCoGroup):
        sides = [(name, spec.inputs[name].key) for name in (cogroup.left, cogroup.right)]
        on = " and ".join(f"{name} by {', '.join(key)}" for name, key in sides)
        return f"{reduce.join} join of {on}"
    if reduce.distinct:
        return "distinct rows"
    if reduce.keep:
        order = f" by {', '.join(reduce.order_by)}" if reduce.order_by else ""
        return f"{reduce.keep} row of each key{order}"
    return "rows as they are"


def _order(keys: tuple[SortKey, ...]) -> str:
    return ", ".join(map(str, keys))


def _is_decimal(schema: pa.Schema | None, column: str | None) -> bool:
    if schema is None or column not in schema.names:
        return False
    return bool(types.is_decimal(canonical_schema(schema).field(column).type))
