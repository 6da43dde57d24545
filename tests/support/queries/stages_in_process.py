"""Runs the stages of a planned query in this process, one task after the other, without servers.

The planner, the map tasks' splits, the partitioners and the fragments are those of a job. Only what
moves rows between tasks is missing: rows go from one task to the next in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pyarrow as pa

from mrflight.compute.layout import canonical_schema, decode_dictionaries, to_canonical
from mrflight.compute.sql.physical.limits import Limits
from mrflight.config.job_file import decode_job
from mrflight.config.output_section import NO_OUTPUT, OutputSection
from mrflight.config.spec import JobSpec
from mrflight.planner import sql_plan
from mrflight.planner.analyze import plan_inputs, plan_result
from mrflight.planner.cogroup_plan import StreamedSide
from mrflight.planner.fragment_stage import FragmentStage
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.map_plan import ShuffleInput
from mrflight.planner.ranges import with_boundaries
from mrflight.planner.stage_plan import StagePlan
from mrflight.sources.base import Reader, Source, Split
from mrflight.tasks.cogroup import Rows
from mrflight.tasks.file_groups import GroupSplit
from mrflight.tasks.fragment import Fragment, FragmentReader
from mrflight.tasks.map_task import MapTask
from mrflight.tasks.mapper import Mapper
from mrflight.tasks.runtime_filter import KeyFilter, NotedKeys
from mrflight.tasks.sample_task import run_sample
from mrflight.tasks.task_memory import TaskMemory
from tests.support.jobs.plans import MEMORY

WORKERS = 2

_DIVIDE_SMALL_FILES = {"datafusion.optimizer.repartition_file_min_size": "3000"}

BROADCASTS: Mapping[str, Mapping[str, object]] = {
    "planned": {},
    "never": {"allow": lambda *_: False, "are_few": lambda *_: False},
    "always": {
        "allow": lambda _, join: (
            all(side.kind == "RepartitionExec" for side in join.children) and not join.keeps_left
        ),
        "are_few": lambda *_: False,
    },
}
"""When the left side of a join is sent to all tasks: as planned, or whenever that is right."""


def query_spec(
    text: str,
    paths: Mapping[str, str],
    partitions: int,
    functions: Mapping[str, str] | None = None,
    options: Mapping[str, object] = {},
) -> JobSpec:
    """A job that runs a query over the files of these paths, which have the same options."""
    sections: dict[str, Any] = {
        "job": {"name": "query", "sql": text, "functions": functions or {}},
        "inputs": {name: {"path": path, **options} for name, path in paths.items()},
        "output": {"table": "unused"},
        "shuffle": {"partitions": partitions},
    }
    return msgspec.structs.replace(decode_job(sections), output=NO_OUTPUT)


def planned(
    spec: JobSpec, folder: Path, broadcast: str = "planned", *, is_written: bool = False
) -> JobPlan:
    """The plan, in which small files have several groups, as large ones have.

    ``is_written``: the result is written to a table, by several tasks also if it has few rows.
    """
    options = {**sql_plan._PLANNING, **_DIVIDE_SMALL_FILES}
    with ExitStack() as stack:
        stack.enter_context(patch.object(sql_plan, "_PLANNING", options))
        stack.enter_context(patch.object(sql_plan, "_FEW_SORTED_ROWS", -1))
        for name, value in BROADCASTS[broadcast].items():
            stack.enter_context(patch.object(Limits, name, value))
        if is_written:
            written = msgspec.structs.replace(spec, output=OutputSection(table="out"))
            plan = plan_inputs(written, folder, "job", WORKERS, MEMORY)
        else:
            plan = plan_result(spec, folder, "job", WORKERS, MEMORY)
    for stage in plan.stages:
        if stage.fragment is not None:
            assert_described(stage.fragment)
    return plan


def assert_described(stage: FragmentStage) -> None:
    """The lines of a stage are the operators that its tasks decode, in their order."""
    from datafusion import ExecutionPlan

    fragment = stage.fragment
    decoded = ExecutionPlan.from_bytes(fragment.session.open(), fragment.plan)
    names = [each.strip().partition(":")[0] for each in decoded.display_indent().splitlines()]
    lines = [line.partition(":")[0] for line in stage.lines]
    assert len(names) == len(lines), (decoded.display_indent(), stage.lines)
    pairs = list(zip(names, lines, strict=True))
    assert [pair for pair in pairs if pair[0] != pair[1] and pair not in _CALLED] == []


_CALLED = {
    ("DataSourceExec", "Exchange"),
    ("DataSourceExec", "Table"),
    ("SortExec", "SortPreservingMergeExec"),
    ("UnionExec", "InterleaveExec"),
}
"""Operators of tasks, and what is said of them for people."""


class _Memory(TaskMemory, frozen=True):
    """That of a task whose joins may hold a number of bytes."""

    joined_bytes: int = 0

    @property
    def rows_bytes(self) -> int:
        return self.joined_bytes


def run(
    plan: JobPlan, folder: Path, joined_bytes: int | None = None, *, is_sliced: bool = False
) -> pa.Table:
    """The rows of the job's last stage, in their order; see `Way`."""
    memory = TaskMemory(2**28, folder)
    if joined_bytes is not None:
        memory = _Memory(2**28, folder, joined_bytes)
    results: dict[str, list[_Rows]] = {}
    for stage in plan.stages:
        intermediate = {
            name: _Results(results[section.stage]).source(name)
            for name, section in stage.spec.inputs.items()
            if section.stage is not None
        }
        staged = plan.plan_stage(stage, intermediate)
        results[stage.name] = list(_stage(staged, memory, is_sliced=is_sliced))
    parts = results[plan.stages[-1].name]
    return pa.Table.from_batches([each for part in parts for each in part.batches], parts[0].schema)


@dataclass(frozen=True)
class _Rows:
    """The rows that one task makes, or those of a partition."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]

    def __len__(self) -> int:
        return sum(each.num_rows for each in self.batches)

    @property
    def pair(self) -> Rows:
        """What a co-group takes."""
        return self.schema, iter(self.batches)


@dataclass
class _Results(Reader):
    """Reads the results of a stage's tasks, each of which is a split."""

    tasks: list[_Rows]

    @property
    def schema(self) -> pa.Schema | None:  # type: ignore[override]
        return self.tasks[0].schema

    def source(self, name: str) -> Source:
        splits = tuple(Split(name, n, n + 1, 1) for n in range(len(self.tasks)))
        return Source(name, self, (), len(splits), splits, is_intermediate=True)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return iter(self.tasks[split.start].batches)


def _stage(plan: StagePlan, memory: TaskMemory, *, is_sliced: bool) -> Iterator[_Rows]:
    """Yield the result of each task."""
    sides: dict[str, list[_Rows]] = {}
    noted: dict[str, KeyFilter | None] = {}
    for side in plan.sides:
        tested = noted.get(plan.filtered_by.get(side.name, ""))
        tasks = [each if tested is None else each.tests(tested) for each in side.map_tasks]
        sides[side.name], noted[side.name] = _shuffled(side, tasks)
    if plan.stream is not None:
        yield from _streamed(plan.stream, plan.cogroup, sides, memory)
        return
    parts = [_part(sides, number) for number in range(max(map(len, sides.values())))]
    # The scheduler leaves partitions without rows out.
    for part in [each for each in parts if any(map(len, each.values()))] or parts[:1]:
        if plan.cogroup is None:
            yield from part.values()
            continue
        sliceable = list(plan.cogroup.sliceable({n: rows.schema for n, rows in part.items()}))
        for each in _slices(part, sliceable[0]) if is_sliced and sliceable else [part]:
            yield _result(plan.cogroup.apply({n: rows.pair for n, rows in each.items()}, memory))


def _streamed(
    stream: StreamedSide, fragment: object, sides: Mapping[str, list[_Rows]], memory: TaskMemory
) -> Iterator[_Rows]:
    """Yield the result of each split: of an input, or of the groups of files of a fragment."""
    assert isinstance(fragment, Fragment)
    for split in stream.source.splits:
        tables = {name: rows.pair for name, (rows,) in sides.items()}
        if stream.reader_kind is FragmentReader:
            assert isinstance(split, GroupSplit)
            yield _result((fragment.schema, fragment.run(tables, memory, split.groups)))
            continue
        batches = list(Mapper(stream.source.reader, split, stream.row_map).batches())
        tables[stream.source.name] = batches[0].schema, iter(batches)
        yield _result(fragment.apply(tables, memory))


def _part(sides: Mapping[str, list[_Rows]], number: int) -> dict[str, _Rows]:
    return {n: each[number if len(each) > 1 else 0] for n, each in sides.items()}


def _slices(part: dict[str, _Rows], name: str) -> Iterator[dict[str, _Rows]]:
    """Yield what each of three tasks reads of a partition of which a table is sliced."""
    rows = pa.Table.from_batches(part[name].batches, part[name].schema)
    third = len(rows) // 3 + 1
    for start in range(0, 3 * third, third):
        batches = rows.slice(start, third).to_batches()
        yield {**part, name: _Rows(part[name].schema, batches)}


def _result(rows: Rows) -> _Rows:
    schema, batches = rows
    return _Rows(schema, [decode_dictionaries(each) for each in batches])


def _shuffled(side: ShuffleInput, tasks: Sequence[MapTask]) -> tuple[list[_Rows], KeyFilter | None]:
    """Return the partitions of one side, after all of its maps, and the keys that these noted."""
    assert side.schema is not None
    schema = canonical_schema(side.schema)
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(side.partitions)]
    if side.sample_tasks:
        sample = pa.concat_tables(map(run_sample, side.sample_tasks))
        tasks = with_boundaries(side, sample, repeats=False)
    filters = []
    for task in tasks:
        noted = NotedKeys(task.runtime_filter.noted_bits if task.runtime_filter else 0)
        for number, batch in _mapped(task, schema, noted):
            parts[number].append(batch)
        filters += [each for each in [noted.filter()] if each is not None]
    return [_Rows(schema, batches) for batches in parts], KeyFilter.united(filters)


def _mapped(
    task: MapTask, schema: pa.Schema, noted: NotedKeys
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a map task with the partitions that they go to."""
    partitioner = task.partitioner.partitioner(task.map_id)
    batches: Iterator[pa.RecordBatch] = Mapper(task.reader, task.split, task.row_map).batches()
    if task.runtime_filter is not None:
        batches = task.runtime_filter.keep(batches, noted)
    for batch in batches:
        rows = to_canonical(decode_dictionaries(batch), schema)
        ids = np.asarray(partitioner.ids(rows))
        for number in np.unique(ids):
            yield int(number), rows.filter(pa.array(ids == number))
