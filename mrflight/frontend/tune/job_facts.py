"""The inputs and settings of a job, as they are before its first trial."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mrflight.config.memory import Processes, min_memory
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import InputError
from mrflight.frontend.tune.trial import Amount, Setting
from mrflight.ids import MAX_PARTITIONS, new_job_id
from mrflight.planner.analyze import plan_inputs
from mrflight.planner.job_plan import JobPlan, plan_job
from mrflight.planner.partition_count import MIN_BLOCK_BYTES, Reason
from mrflight.planner.stage_plan import StagePlan
from mrflight.planner.stages import Stage
from mrflight.sources.base import Source
from mrflight.sources.sampling import take_sample
from mrflight.storage import locate
from mrflight.storage.option_checks import prepare_storage
from mrflight.system.free_memory import free_memory

_WHOLE_SHARE = 0.5
"""Inputs that are together at most this share of a sample are read whole."""

ALMOST_WHOLE = 0.75
"""A sample of this fraction of an input might as well be all of it."""

_ONE_PARTITION: tuple[Reason, ...] = ("limit", "total", "no key", "broadcast")
"""The reasons of a stage that has one partition whatever its job sets."""

_MIB = 2**20


class JobFacts(msgspec.Struct, frozen=True):
    """What the trials of a job depend on."""

    base: Setting
    """The settings of the job for the whole input, with those filled in that it leaves open."""
    partition_key: str | None
    """The key that sets the number of partitions, of the last stage where it can be set."""
    least_partitions: int
    """With fewer, a partition of the whole input does not fit in the memory of a reduce."""
    most_partitions: int
    """With more, a map has no memory for a useful block of each."""
    cores: int
    tries_workers: bool
    tries_memory: bool
    min_memory_bytes: int
    free_memory_bytes: int
    server_bytes: int
    """What the data servers may hold together before they spill."""
    is_on_disk: bool
    """True if all inputs are on a disk, and not in a store."""


class TunedJob:
    """A job that was looked at, and how samples of it are drawn."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        """List the inputs and plan the job; raises JobError as running it does."""
        prepare_storage(spec, folder)
        self.spec = spec
        self.settings = RunSettings.of(spec, folder)
        self._plan = plan_inputs(
            spec, folder, new_job_id(), self.settings.workers, self.settings.memory
        )
        self._sources = _files_of(self._plan)
        self.size_bytes = sum(source.size_bytes for source in self._sources.values())
        if not self.size_bytes:
            raise InputError("the inputs have no rows to try the job on; tune it on real data")
        self.facts = _facts(spec, folder, self._plan, self.settings)

    def sampled_keys(self, sample_bytes: int) -> list[str]:
        """Return the inputs of which a sample of this size has a part only, by their keys.

        Small inputs are read whole, so that the rows of the large ones find those that they are
        joined with, as they do in the whole input.
        """
        if sample_bytes >= ALMOST_WHOLE * self.size_bytes:
            return []
        by_size = sorted(self._sources, key=lambda key: self._sources[key].size_bytes)
        read = 0
        for number, key in enumerate(by_size):
            read += self._sources[key].size_bytes
            if read > _WHOLE_SHARE * sample_bytes:
                return by_size[number:]
        return []

    def fraction_for(self, sample_bytes: int, sampled: Sequence[str]) -> float:
        """Return the fraction of the ``sampled`` inputs with which so many bytes are read."""
        large = sum(self._sources[key].size_bytes for key in sampled)
        left = sample_bytes - (self.size_bytes - large)
        return max(1e-6, min(1.0, left / large)) if large else 1.0

    def amount(self, fraction: float, sampled: Sequence[str]) -> Amount:
        """Return how much is read of that fraction of the inputs, and in how many maps."""
        sources = {
            key: take_sample(source, fraction) if key in sampled and fraction < 1 else source
            for key, source in self._sources.items()
        }
        of_large = sum(sources[key].size_bytes for key in sampled)
        of_small = sum(s.size_bytes for key, s in sources.items() if key not in sampled)
        return Amount(fraction, of_large, of_small, _count_maps(self._plan, sources))

    def sample_keys(self, fraction: float, sampled: Sequence[str]) -> dict[str, float]:
        """Return the keys of the job file with which it reads a fraction of the ``sampled`` inputs.

        An input of which the job itself reads a sample is read as a sample of that.
        """
        own = {
            _input_key(stage, name): section.sample
            for stage in self._plan.stages
            for name, section in stage.spec.inputs.items()
        }
        return {f"{key}.sample": fraction * own[key] for key in sampled if fraction < 1}

    def fixed_keys(self) -> dict[str, bool | str]:
        """Return keys of the job file that every trial sets, with their values.

        A sample could be so small that a join would broadcast it, as it does not do with the whole
        input. Rows that cannot be read are left out and not written to the folder of the job.
        """
        keys: dict[str, bool | str] = {}
        for stage in self._plan.stages:
            broadcast = _broadcast_inputs(stage, self._plan.plans[stage.name])
            for name, section in stage.spec.inputs.items():
                key = _input_key(stage, name)
                if broadcast is not None and section.broadcast is None:
                    keys[f"{key}.broadcast"] = name in broadcast
                if section.bad_rows_folder is not None:
                    keys[f"{key}.bad_rows"] = "skip"
        return keys

    def sizes(self) -> Mapping[str, int]:
        """Return the size of each input by its key."""
        return {key: source.size_bytes for key, source in self._sources.items()}

    def parts(self, key: str, fraction: float) -> tuple[int, int, int]:
        """Return the bytes, the parts and the files of a sample of an input."""
        sample = take_sample(self._sources[key], fraction)
        return sample.size_bytes, len(sample.splits), len(sample.files)


def _files_of(plan: JobPlan) -> dict[str, Source]:
    """Return the inputs that are files, by their key in the job file."""
    return {
        _input_key(stage, name): source
        for stage in plan.stages
        for name, source in plan.sources[stage.name].items()
    }


def _input_key(stage: Stage, name: str) -> str:
    return f"{stage.section}inputs.{name}"


def _broadcast_inputs(stage: Stage, plan: StagePlan) -> set[str] | None:
    """Return the inputs that the join of a stage broadcasts; None if it has no join of files."""
    reduce = stage.spec.reduce
    if reduce is None or reduce.join is None or stage.reads:
        return None
    return {side.name for side in plan.sides} if plan.stream is not None else set()


def _count_maps(plan: JobPlan, sources: Mapping[str, Source]) -> int:
    """Return how many maps read files if the inputs are these."""
    by_stage = {
        stage.name: {name: sources[_input_key(stage, name)] for name in plan.sources[stage.name]}
        for stage in plan.stages
    }
    planned = plan_job(plan.stages, by_stage, plan.folder, plan.job_id, plan.workers, plan.memory)
    return sum(_count_maps_of(each) for each in planned.plans.values())


def _count_maps_of(plan: StagePlan) -> int:
    streamed = len(plan.stream.source.splits) if plan.stream is not None else 0
    return len(plan.map_tasks) + streamed


def _facts(spec: JobSpec, folder: Path, plan: JobPlan, settings: RunSettings) -> JobFacts:
    stage = _tuned_stage(plan)
    planned = plan.plans[(stage or plan.stages[-1]).name]
    memory = settings.memory
    processes = Processes.of(spec, settings.workers, settings.data_servers)
    on_ray, is_embedded = spec.cluster.executor == "ray", spec.cluster.metadata is None
    paths = [path for section in spec.all_inputs for path in section.paths]
    return JobFacts(
        base=Setting(
            planned.partitions, settings.workers, memory.total // _MIB * _MIB, planned.compression
        ),
        partition_key=None if stage is None else f"{stage.section}shuffle.partitions",
        least_partitions=-(-planned.rows_bytes // max(1, memory.reducer)),
        most_partitions=min(
            MAX_PARTITIONS, max(settings.workers, memory.writer // MIN_BLOCK_BYTES)
        ),
        cores=len(os.sched_getaffinity(0)),
        tries_workers=not on_ray,
        tries_memory=not on_ray and is_embedded,
        min_memory_bytes=min_memory(processes),
        free_memory_bytes=free_memory(),
        server_bytes=memory.servers,
        is_on_disk=all(locate(path, folder, spec.storage).store.is_disk for path in paths),
    )


def _tuned_stage(plan: JobPlan) -> Stage | None:
    """Return the last stage whose number of partitions can be set; None if there is none."""
    for stage in reversed(plan.stages):
        if plan.plans[stage.name].counted.reason not in _ONE_PARTITION:
            return stage
    return None
