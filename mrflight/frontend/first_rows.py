"""Reads the first rows of inputs in this process: without a job, and no more than is needed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import MrflightError, SchemaMismatchError
from mrflight.ids import new_job_id
from mrflight.planner.analyze import plan_result
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.row_maps import plan_map
from mrflight.result import describe_bad_rows
from mrflight.sources.bad_rows import BadRowLog
from mrflight.storage.option_checks import prepare_storage
from mrflight.tasks.map_task import MapTask
from mrflight.tasks.mapper import Mapper

log = logging.getLogger(__name__)

_COUNTED_AT_ONCE = 16
"""Splits whose rows are counted at the same time; each is a small read of a store."""


def plan_here(spec: JobSpec, folder: Path) -> JobPlan:
    """Return the plan of a job whose rows the caller reads. Lists and opens its inputs."""
    prepare_storage(spec, folder)
    settings = RunSettings.of(spec, folder)
    return plan_result(spec, folder, new_job_id(), settings.workers, settings.memory)


def first_rows(spec: JobSpec, folder: Path, rows: int) -> pa.Table:
    """Return the first rows of a job without a reduce, by the maps of its plan.

    The maps run here, one after the other, until there are enough rows. Bad rows that they skip
    are reported. Raises what a job raises, with the name of the map that failed as a note.
    """
    skipped: dict[str, BadRowLog] = {}
    table = _first_rows(plan_here(spec, folder).last.map_tasks, rows, skipped)
    for bad in describe_bad_rows({name: each.rows for name, each in skipped.items()}):
        log.warning("%s skipped, up to the last row that was asked for", bad)
    return table


def _first_rows(tasks: Iterable[MapTask], rows: int, skipped: dict[str, BadRowLog]) -> pa.Table:
    """Return the first rows of maps; ``skipped`` gets the rows that these skip, by input."""
    found: list[pa.RecordBatch] = []
    schema: pa.Schema | None = None
    missing = rows
    for task in tasks:
        for batch in _mapped(task, skipped):
            plain = to_canonical(batch, canonical_schema(batch.schema))
            schema = schema or plain.schema
            if difference := describe_difference(schema, plain.schema):
                raise SchemaMismatchError(
                    f"{task.name} does not agree with the maps before it: {difference}; all maps "
                    "and inputs must have the same columns"
                )
            found.append(plain.slice(0, missing))
            missing -= found[-1].num_rows
            if not missing:
                return pa.Table.from_batches(found, schema)
    return pa.Table.from_batches(found, schema)


def _mapped(task: MapTask, skipped: dict[str, BadRowLog]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a map; what it raises has its name."""
    reader = task.reader
    if task.bad_rows is not None:
        reader = reader.with_bad_rows(skipped.setdefault(task.bad_rows.input, BadRowLog()))
    mapper = Mapper(reader, task.split, task.row_map)
    try:
        yield from mapper.batches()
    except MrflightError as error:
        error.add_note(task.name)
        raise


def count_in_footers(spec: JobSpec, folder: Path) -> int | None:
    """Return the number of rows of a job without a reduce, by the footers of the inputs' files.

    Returns None if these do not tell, because a file has none or its rows are mapped.
    """
    if any(each.is_mapped for each in spec.all_inputs):
        return None
    plan = plan_here(spec, folder)
    sources = [source for of_stage in plan.sources.values() for source in of_stage.values()]
    each = [
        (source.reader, piece)
        for source in sources
        for split in source.splits
        for piece in split.pieces
    ]
    with ThreadPoolExecutor(_COUNTED_AT_ONCE, "count") as threads:
        counts = list(threads.map(lambda pair: pair[0].count_rows(pair[1]), each))
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def find_schema(spec: JobSpec, folder: Path) -> pa.Schema | None:
    """Return the schema of a job's result; None if only its run can tell.

    A user's function that maps the rows of files is called with the first batch of them.
    """
    plan = plan_here(spec, folder)
    schema = plan.last.result_schema
    if schema is None:
        schema = plan.with_mapped_schemas(_mapped_schemas(plan)).last.result_schema
    return None if schema is None else canonical_schema(schema)


def _mapped_schemas(plan: JobPlan) -> dict[tuple[str, str], pa.Schema]:
    """Return what the functions that map files return, by stage and input."""
    schemas = {}
    for stage in plan.stages:
        for name, source in plan.sources[stage.name].items():
            section = stage.spec.inputs[name]
            if section.functions:
                row_map = plan_map(stage.spec, source, plan.folder)
                batches = Mapper(source.reader, source.splits[0], row_map).batches()
                schemas[stage.name, name] = next(batches).schema
    return schemas
