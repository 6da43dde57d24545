"""Builds the stages of a job in the order in which they run: a pure function of its spec.

To the planner each stage is a job of its own: inputs, one shuffle, and a reduce of each partition.
If the result of a reduce is sorted or limited, another stage does that, because rows are shuffled
by the columns that they are sorted by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import NO_OUTPUT
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.spec import JobSpec, ShuffleSection, StageSpec
from mrflight.errors import JobError, JobFileError
from mrflight.events.kinds import QueryStage

if TYPE_CHECKING:
    from mrflight.planner.fragment_stage import FragmentStage

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IN_ORDER = "in_order"
"""The partitioner that keeps the rows in the order of the input."""

_KEY_PATH = re.compile(r"\b(?=(inputs|reduce|shuffle)\.)")


class Stage(NamedTuple):
    """One stage of a job."""

    name: str
    """NAME of ``[stages.NAME]``, or empty for the last stage, which is the job's own. The suffix
    ``.rows`` marks a stage whose rows another stage sorts or limits."""
    section: str
    """The prefix of its keys in the job file: ``stages.NAME.`` or nothing."""
    spec: JobSpec
    """The spec of the job, with this stage's inputs, shuffle and reduce."""
    step: str = ""
    """What it does with the result of another stage, if its section has several steps."""
    fragment: FragmentStage | None = None
    """The part of a query's plan that it runs, in place of what a spec describes."""

    @property
    def title(self) -> str:
        """Its name for people, who have named its section; empty for the job's own first step."""
        named = self.section.removeprefix("stages.").removesuffix(".")
        return " ".join(filter(None, [named, self.step]))

    def name_of_input(self, name: str) -> str:
        """Return the name of one of its inputs in results, after that of its section's stage."""
        return f"{self.section.removeprefix('stages.')}{name}"

    def input(self, name: str) -> InputSpec:
        """Return the section of one of its inputs, or of a table that its query reads by itself."""
        if self.fragment is not None and name in self.fragment.tables:
            return self.fragment.tables[name]
        return self.spec.inputs[name]

    @property
    def query_stage(self) -> QueryStage | None:
        """What events say of the part of a query's plan that it runs."""
        if self.fragment is None:
            return None
        from mrflight.planner.explain_input import shorten  # for few jobs

        return QueryStage(self.title, tuple(map(shorten, self.fragment.lines)))

    @property
    def reads(self) -> set[str]:
        """The names of the stages whose results are inputs of this one."""
        return {each.stage for each in self.spec.inputs.values() if each.stage is not None}


def build_stages(spec: JobSpec) -> list[Stage]:
    """Return all stages, each after those that it reads, and the job's own at the end.

    Raises JobFileError for stages that are not read, do not exist, or read one another.
    """
    for name, stage in spec.stages.items():
        _check(name, stage)
    stages = {name: _as_job(spec, stage) for name, stage in spec.stages.items()}
    own = replace(spec, stages={})
    for key, sql, reduce in _queries(spec):
        if sql is not None and reduce is not None:
            raise JobFileError(
                f"{key}: a query makes the whole result, so leave [reduce] out, or put the query "
                "into a stage that the reduce reads"
            )
    ordered: dict[str, JobSpec] = {}
    _add("", own, stages, ordered, ())
    if unread := stages.keys() - ordered.keys():
        name = min(unread)
        raise JobFileError(
            f"stages.{name}: no input reads its result; set stage = {name!r} in an input, or leave "
            "the stage out"
        )
    return [step for name, job in ordered.items() for step in _steps(name, job)]


def _queries(spec: JobSpec) -> Iterator[tuple[str, str | None, ReduceSection | None]]:
    """Yield the query of each stage with its key and its reduce, and those of the job."""
    for name, stage in spec.stages.items():
        yield f"stages.{name}.sql", stage.sql, stage.reduce
    yield "job.sql", spec.job.sql, spec.reduce


def repartition_stage(stage: Stage) -> Stage:
    """Return a stage that partitions the rows of a broadcast join, so that they can be written."""
    job = stage.spec
    shuffle = replace(job.shuffle, partitioner="hash" if job.output.keys else "round_robin")
    name = f"{stage.name or 'job'}.written"
    return Stage(name, stage.section, _reading(stage.name, job, shuffle), "repartition")


def result_stages(spec: JobSpec) -> list[Stage]:
    """Return the stages of a job whose rows the caller reads, from the partitions of the last one.

    These partitions hold the rows as they are, in their order. If nothing is made of the rows after
    the last shuffle, that is the shuffle; otherwise the result of the last stage needs one more.
    Raises JobFileError as `build_stages` does.
    """
    *before, last = build_stages(spec)
    job = last.spec
    if job.job.sql is not None:
        return [*before, last._replace(name="job.query"), result_stage("job.query", job)]
    if job.reduce is None and job.shuffle.partitioner == "round_robin":
        in_order = replace(job.shuffle, partitioner=IN_ORDER)
        return [*before, last._replace(spec=replace(job, shuffle=in_order))]
    if job.reduce is None and job.shuffle.partitioner != "range":  # ranges are sorted when read
        return [*before, last]
    return [*before, last, result_stage(last.name, job)]


def result_stage(read: str, job: JobSpec) -> Stage:
    """Return the stage that holds the rows of another one for the caller, in their order."""
    shuffle = replace(job.shuffle, partitioner=IN_ORDER, partitions="auto")
    return Stage("job.result", "", _reading(read, job, shuffle), "result")


def _reading(read: str, job: JobSpec, shuffle: ShuffleSection) -> JobSpec:
    """Return the spec of a stage that shuffles the result of another one, and changes nothing."""
    inputs = {"rows": InputSpec(stage=read)}
    own = replace(job.job, sql=None)
    return replace(job, job=own, inputs=inputs, shuffle=shuffle, reduce=None)


@contextmanager
def with_key_prefix(stage: Stage) -> Iterator[None]:
    """Prefix the keys in the message of a JobError that is raised inside with the stage's."""
    try:
        yield
    except JobError as error:
        if stage.section and error.args:
            message = _KEY_PATH.sub(stage.section, str(error.args[0]))
            error.args = (message, *error.args[1:])
        raise


def _check(name: str, stage: StageSpec) -> None:
    """Raise JobFileError for an invalid name, or settings that only a job has."""
    if not _NAME.fullmatch(name):
        raise JobFileError(
            f"stages.{name}: a stage's name must be 1 to 64 letters, digits, '_' and '-'"
        )
    is_set = {"replicas": stage.shuffle.replicas != 1, "memory": stage.shuffle.memory is not None}
    for key in (key for key, value in is_set.items() if value):
        raise JobFileError(
            f"stages.{name}.shuffle.{key} cannot differ between the stages of a job; set "
            f"shuffle.{key}"
        )


def _add(
    name: str,
    job: JobSpec,
    stages: Mapping[str, JobSpec],
    ordered: dict[str, JobSpec],
    within: tuple[str, ...],
) -> None:
    """Add a stage after those that it reads."""
    if name in ordered:
        return
    for input_name, section in job.inputs.items():
        read = section.stage
        if read is None:
            continue
        key = f"{f'stages.{name}.' if name else ''}inputs.{input_name}.stage"
        if read not in stages:
            known = f"there are {', '.join(map(repr, stages))}" if stages else "there are none"
            raise JobFileError(f"{key}: no stage {read!r}; {known}, [stages.NAME]")
        if read in (*within, name):
            raise JobFileError(
                f"{key}: {read!r} reads the result of this stage; stages must not read one another "
                "in a circle"
            )
        _add(read, stages[read], stages, ordered, (*within, name))
    ordered[name] = job


def _as_job(spec: JobSpec, stage: StageSpec) -> JobSpec:
    """Return the stage as the spec of a job without output."""
    own, job = stage.shuffle, spec.shuffle
    compression = job.compression if own.compression == "auto" else own.compression
    shuffle = replace(own, replicas=job.replicas, memory=job.memory, compression=compression)
    return replace(
        spec,
        job=replace(spec.job, sql=stage.sql, functions=stage.functions),
        inputs=stage.inputs,
        shuffle=shuffle,
        reduce=stage.reduce,
        output=NO_OUTPUT,
        stages={},
    )


def _steps(name: str, job: JobSpec) -> list[Stage]:
    """Return the stage, or two if its rows are sorted or limited."""
    section = f"stages.{name}." if name else ""
    reduce = job.reduce or ReduceSection()
    unordered = replace(reduce, sort_by=[], limit=None)
    if not reduce.orders or unordered == ReduceSection():
        return [Stage(name, section, job)]
    before = f"{name or 'job'}.rows"
    first = replace(job, reduce=unordered, output=NO_OUTPUT)
    ordered = ReduceSection(sort_by=reduce.sort_by, limit=reduce.limit)
    shuffle = replace(job.shuffle, partitioner="hash")
    last = replace(job, inputs={"rows": InputSpec(stage=before)}, shuffle=shuffle, reduce=ordered)
    step = "sort_by" if reduce.sort_by else "limit"
    return [Stage(before, section, first), Stage(name, section, last, step)]
