"""The stages of a job in the order in which they run: a pure function of its spec.

Each is a job of its own as far as planning goes: its inputs, one shuffle of theirs, and what is
made of each partition. Where the result of that is to be sorted, or cut at a limit, another stage
comes after it, as rows that are to be in order are to be shuffled by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from mrflight.config.spec import InputSpec, JobSpec, OutputSection, ReduceSection, StageSpec
from mrflight.errors import JobError, JobFileError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_PATH = re.compile(r"\b(?=(inputs|reduce|shuffle)\.)")


class Stage(NamedTuple):
    """One stage of a job."""

    name: str
    """Of ``[stages.NAME]``; empty for the job's own, which is the last. With ``.rows`` behind it
    where another stage puts the rows in order."""
    section: str
    """What key paths of it begin with, ``stages.NAME.`` or nothing."""
    spec: JobSpec
    """The job's, with this stage's inputs, shuffle and reduce."""

    @property
    def reads(self) -> set[str]:
        """The stages whose results are inputs of this one."""
        return {each.stage for each in self.spec.inputs.values() if each.stage is not None}


def build_stages(spec: JobSpec) -> list[Stage]:
    """All stages, each behind those that it reads, the job's own at the end.

    JobFileError for stages that nobody reads, that are not there, or that read one another.
    """
    for name, stage in spec.stages.items():
        _check(name, stage)
    stages = {name: _as_job(spec, stage) for name, stage in spec.stages.items()}
    own = replace(spec, stages={})
    ordered: dict[str, JobSpec] = {}
    _add("", own, stages, ordered, ())
    if unread := stages.keys() - ordered.keys():
        name = min(unread)
        raise JobFileError(
            f"stages.{name}: nothing reads its result; name it in an input, stage = {name!r}, or "
            "leave it out"
        )
    return [step for name, job in ordered.items() for step in _steps(name, job)]


def repartition_stage(stage: Stage) -> Stage:
    """What comes after the last stage where its rows are not in partitions that can be written."""
    job = stage.spec
    partitioner = "hash" if job.output.keys else "round_robin"
    rows = replace(
        job,
        inputs={"rows": InputSpec(stage=stage.name)},
        shuffle=replace(job.shuffle, partitioner=partitioner),
        reduce=None,
    )
    return Stage(f"{stage.name or 'job'}.written", stage.section, rows)


@contextmanager
def with_key_prefix(stage: Stage) -> Iterator[None]:
    """Let key paths in the message of what is raised inside begin with those of their stage."""
    try:
        yield
    except JobError as error:
        if stage.section and error.args:
            told = _KEY_PATH.sub(stage.section, str(error.args[0]))
            error.args = (told, *error.args[1:])
        raise


def _check(name: str, stage: StageSpec) -> None:
    """JobFileError for what a stage cannot have of its own."""
    if not _NAME.fullmatch(name):
        raise JobFileError(
            f"stages.{name}: a stage's name is of letters, digits, '_' and '-'; take another"
        )
    told = {"replicas": stage.shuffle.replicas != 1, "memory": stage.shuffle.memory is not None}
    for key in (key for key, is_told in told.items() if is_told):
        raise JobFileError(
            f"stages.{name}.shuffle.{key}: is the same for all shuffles of a job; set shuffle.{key}"
        )


def _add(
    name: str,
    job: JobSpec,
    stages: Mapping[str, JobSpec],
    ordered: dict[str, JobSpec],
    within: tuple[str, ...],
) -> None:
    """Add a stage behind those that it reads."""
    if name in ordered:
        return
    for input_name, section in job.inputs.items():
        read = section.stage
        if read is None:
            continue
        key = f"{f'stages.{name}.' if name else ''}inputs.{input_name}.stage"
        if read not in stages:
            there = f"there are {', '.join(map(repr, stages))}" if stages else "there are none"
            raise JobFileError(f"{key}: there is no stage {read!r}; {there}, [stages.NAME]")
        if read in (*within, name):
            raise JobFileError(
                f"{key}: {read!r} reads the result of this stage in turn; a stage can read only "
                "what is made before it"
            )
        _add(read, stages[read], stages, ordered, (*within, name))
    ordered[name] = job


def _as_job(spec: JobSpec, stage: StageSpec) -> JobSpec:
    """The stage as a job whose result goes nowhere."""
    own, job = stage.shuffle, spec.shuffle
    compression = job.compression if own.compression == "auto" else own.compression
    shuffle = replace(own, replicas=job.replicas, memory=job.memory, compression=compression)
    return replace(
        spec,
        inputs=stage.inputs,
        shuffle=shuffle,
        reduce=stage.reduce,
        output=OutputSection(table=""),
        stages={},
    )


def _steps(name: str, job: JobSpec) -> list[Stage]:
    """The stage, or two: one makes rows that the other one puts in order."""
    section = f"stages.{name}." if name else ""
    reduce = job.reduce or ReduceSection()
    made = replace(reduce, sort_by=[], limit=None)
    if not reduce.orders or made == ReduceSection():
        return [Stage(name, section, job)]
    before = f"{name or 'job'}.rows"
    first = replace(job, reduce=made, output=OutputSection(table=""))
    ordered = ReduceSection(sort_by=reduce.sort_by, limit=reduce.limit)
    shuffle = replace(job.shuffle, partitioner="hash")
    last = replace(job, inputs={"rows": InputSpec(stage=before)}, shuffle=shuffle, reduce=ordered)
    return [Stage(before, section, first), Stage(name, section, last)]
