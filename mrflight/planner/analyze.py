"""Analyzes a job before it runs: opens its inputs and its output, and plans its stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.config.functions import FunctionRef
from mrflight.config.input_spec import InputSpec
from mrflight.config.memory import MemoryPlan
from mrflight.config.settings import standing_cluster
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.job_plan import JobPlan, plan_job
from mrflight.planner.partition_count import EXPECTED_TO_FIT, QueryDivision, divide_query
from mrflight.planner.row_maps import plan_map
from mrflight.planner.stage_plan import SPLIT_BYTES, StagePlan
from mrflight.planner.stages import Stage, build_stages, result_stages, with_key_prefix
from mrflight.planner.table_rows import expected_rows
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.sinks.commit.run_name import application_id
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.sources.base import Source
from mrflight.sources.packed_reader import PackedReader
from mrflight.sources.parquet_source import ParquetReader
from mrflight.storage import Location, locate
from mrflight.tasks.mapper import mapped_schema

if TYPE_CHECKING:
    from mrflight.compute.sql.user_functions import UserFunction
    from mrflight.planner import sql_stages
    from mrflight.tasks.file_groups import ScannedFile


def analyze(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> tuple[JobPlan, Sink]:
    """Open the inputs and the output, and plan the job. Raises JobError."""
    if not spec.has_output:
        raise JobFileError("output.table must not be empty; write a path or a URL")
    plan = plan_inputs(spec, folder, job_id, workers, memory)
    run_id = spec.job.run_id
    app_id = None if run_id is None else application_id(spec.job.name, run_id)
    if not spec.output.in_catalog:
        output = locate(spec.output.table, folder, spec.storage)
        _check_apart(_Written("output.table", output, may_be_input=True), folder, plan)
    sink = open_sink(spec.output, folder, spec.storage, job_id, app_id)
    if not sink.was_committed() and (schema := plan.last.result_schema) is not None:
        sink.check_rows(schema)
    return plan, sink


def plan_inputs(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> JobPlan:
    """Open the inputs and plan the job, without a look at the output."""
    return _plan_stages(build_stages(spec), folder, job_id, workers, memory)


def plan_result(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> JobPlan:
    """Open the inputs and plan a job whose rows the caller reads. Raises JobError."""
    plan = _plan_stages(result_stages(spec), folder, job_id, workers, memory)
    _ = plan.last.result_schema  # which raises for wrong columns of the result
    return plan


def _plan_stages(
    stages: Sequence[Stage],
    folder: Path,
    job_id: str,
    workers: int,
    memory: MemoryPlan,
    *,
    trusts_estimates: bool = True,
) -> JobPlan:
    planner = _StagePlanner(folder, job_id, workers, memory, trusts_estimates=trusts_estimates)
    for stage in stages:
        planner.add(stage)
    plan = planner.plan()
    _check_bad_rows_apart(stages[-1].spec, folder, plan)
    if any(each.fragment and each.fragment.why_whole == EXPECTED_TO_FIT for each in plan.stages):
        again = partial(
            _plan_stages, stages, folder, job_id, workers, memory, trusts_estimates=False
        )
        plan = replace(plan, divided=again)
    return plan


class _StagePlanner:
    """Opens the inputs of stages, and divides queries into stages of their own."""

    def __init__(
        self,
        folder: Path,
        job_id: str,
        workers: int,
        memory: MemoryPlan,
        *,
        trusts_estimates: bool = True,
    ) -> None:
        """``trusts_estimates``: a query may run as a whole because it is expected to fit."""
        self._trusts_estimates = trusts_estimates
        self._folder = folder
        self._job_id = job_id
        self._workers = workers
        self._memory = memory
        self._stages: list[Stage] = []
        self._sources: dict[str, dict[str, Source]] = {}

    def add(self, stage: Stage) -> None:
        """Add a stage, after those that it reads."""
        found = _open_inputs(stage, self._folder)
        if stage.spec.job.sql is None:
            self._stages.append(stage)
            self._sources[stage.name] = found
            return
        from mrflight.planner.sql_plan import plan_query

        known = self.plan().plans if stage.reads else {}
        with with_key_prefix(stage):
            tables = [_table(stage, name, found.get(name), known) for name in stage.spec.inputs]
            stages, sources = plan_query(
                stage,
                tables,
                lambda size: self._divide(stage.spec, size),
                self._functions(stage),
            )
        self._stages += stages
        self._sources |= sources

    def _divide(self, spec: JobSpec, rows_bytes: int) -> QueryDivision:
        division = divide_query(spec, rows_bytes, self._workers, self._memory)
        return division if self._trusts_estimates else replace(division, held_bytes=0)

    def _functions(self, stage: Stage) -> tuple[UserFunction, ...]:
        """Load the functions that the query of a stage calls."""
        from mrflight.compute.sql.user_functions import UserFunction

        at = f"{stage.section or 'job.'}functions"
        refs = {
            name: FunctionRef.parse(text, f"{at}.{name}", str(self._folder))
            for name, text in stage.spec.job.functions.items()
        }
        return tuple(UserFunction.of(name, ref) for name, ref in refs.items())

    def plan(self) -> JobPlan:
        """Return the plan of all stages until now."""
        return plan_job(
            self._stages,
            self._sources,
            str(self._folder),
            self._job_id,
            self._workers,
            self._memory,
        )


def _table(
    stage: Stage, name: str, source: Source | None, known: Mapping[str, StagePlan]
) -> sql_stages.Table:
    """Return an input as a table of a query; raise JobFileError if its columns are not known."""
    from mrflight.planner import sql_stages

    section = stage.spec.inputs[name]
    if source is None:
        assert section.stage is not None, section
        schema, size = known[section.stage].result_schema, known[section.stage].rows_bytes
    else:
        row_map = plan_map(stage.spec, source, "")
        schema, size = mapped_schema(source.reader.schema, row_map), source.rows_bytes
    if schema is None:
        raise JobFileError(
            f"inputs.{name}: the columns of this table are decided by a function, and sql needs "
            "them before it runs; write the function's result to a table first"
        )
    scanned = () if source is None else _scanned(source, section)
    rows = None if source is None else expected_rows(source, section)
    return sql_stages.Table(name, canonical_schema(schema), section, source, scanned, size, rows)


def _open_inputs(stage: Stage, folder: Path) -> dict[str, Source]:
    """Open the inputs of a stage that are not the results of others."""
    with with_key_prefix(stage):
        return {
            name: _open_input(stage, name, section, folder)
            for name, section in stage.spec.inputs.items()
            if section.stage is None
        }


def _open_input(stage: Stage, name: str, section: InputSpec, folder: Path) -> Source:
    if section.log is not None:
        from mrflight.sources.log_source import LogInput, open_log  # for few jobs

        place = LogInput.of(name, stage.spec.cluster, folder)
        offsets = next(iter(section.batch.ranges.values())) if section.batch else None
        return open_log(name, section, place, SPLIT_BYTES, offsets)
    source = _open_plain(stage, name, section, folder)
    if section.bad_rows == "fail":
        return source
    path = section.bad_rows_folder
    written = None if path is None else locate(path, folder, stage.spec.storage)
    keeps_rows = section.batch is not None
    return replace(source, bad_rows=BadRowPolicy(stage.name_of_input(name), written, keeps_rows))


def _open_plain(stage: Stage, name: str, section: InputSpec, folder: Path) -> Source:
    def open_files(each: InputSpec) -> Source:
        return open_source(name, each, folder, stage.spec.storage, SPLIT_BYTES)

    if not section.fresh:
        return open_files(section)
    from mrflight.sources.fresh_source import open_fresh  # for few jobs

    roots = [locate(path, folder, stage.spec.storage) for path in section.paths]
    return open_fresh(
        name, section, roots, standing_cluster(stage.spec.cluster, folder), open_files
    )


def _scanned(source: Source, section: InputSpec) -> tuple[ScannedFile, ...]:
    """Return the files of an input if DataFusion can read them by itself, or else none.

    It can if they are Parquet on a disk, all have the columns of the input, and are read as they
    are, also if they are a version of a Delta table.
    """
    reader = source.reader.reader if isinstance(source.reader, PackedReader) else source.reader
    is_plain = section == InputSpec(
        path=section.path,
        format=section.format,
        key=section.key,
        version=section.version,
        timestamp=section.timestamp,
        catalog=section.catalog,
        warehouse=section.warehouse,
        catalog_options=section.catalog_options,
    )
    if not (is_plain and source.are_alike and isinstance(reader, ParquetReader)):
        return ()
    if not reader.root.store.is_disk:
        return ()
    from mrflight.tasks.file_groups import ScannedFile

    pieces = (piece for split in source.splits for piece in split.pieces)
    versions = {piece.path: piece.version for piece in pieces}
    return tuple(ScannedFile(reader.root.at(path), versions[path]) for path in source.files)


class _Written(NamedTuple):
    """A folder to which the job writes, and the key that names it."""

    key: str
    location: Location
    may_be_input: bool = False
    """True if an input may be the same folder: a table is read before it is written."""


def _check_bad_rows_apart(spec: JobSpec, folder: Path, plan: JobPlan) -> None:
    """Raise JobFileError if a folder of bad rows would be mixed with the inputs or the output."""
    for stage in plan.stages:
        for name, source in plan.sources[stage.name].items():
            if source.bad_rows is None or source.bad_rows.folder is None:
                continue
            written = _Written(f"{stage.section}inputs.{name}.bad_rows", source.bad_rows.folder)
            _check_apart(written, folder, plan)
            if not spec.has_output or spec.output.in_catalog:
                continue
            output = locate(spec.output.table, folder, spec.storage)
            bad = written.location
            if bad.is_same(output) or bad.lies_in(output) or output.lies_in(bad):
                raise JobFileError(
                    f"{written.key}: {bad.url} and output.table, {output.url}, must not lie in one "
                    "another; choose another folder"
                )


def _check_apart(written: _Written, folder: Path, plan: JobPlan) -> None:
    """Raise JobFileError if the next run would read files that this run writes."""
    for stage in plan.stages:
        for name, source in plan.sources[stage.name].items():
            paths = stage.input(name).paths
            roots = [locate(path, folder, stage.spec.storage) for path in paths]
            if roots:
                key = f"{stage.section}inputs.{name}.path"
                _check_apart_from(written, key, roots, source.files)


def _check_apart_from(
    written: _Written, key: str, roots: Sequence[Location], files: Iterable[str]
) -> None:
    location = written.location
    if written.may_be_input and any(root.is_same(location) for root in roots):
        return
    for root in roots:
        if location.is_same(root) or location.lies_in(root):
            what = "the output" if written.may_be_input else "bad rows"
            raise JobFileError(
                f"{written.key}: {location.url} lies in {root.url}, which {key} reads; the next "
                f"run would read {what} as input: choose another folder"
            )
    inside = [file for file in map(roots[0].at, files) if file.lies_in(location)]
    if inside:
        raise JobFileError(
            f"{written.key}: {inside[0].url}, which {key} reads, lies in {location.url}; inputs "
            "and results would be mixed there: choose another folder"
        )
