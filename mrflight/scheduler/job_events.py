"""The events that are about a whole job, and the file that they are written to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.events.driver_stages import DRIVER
from mrflight.events.kinds import (
    InputFound,
    JobBegan,
    JobPlanned,
    PlannedStage,
    ProcessesSampled,
    ProcessMemory,
)
from mrflight.events.recorder import Recorder

if TYPE_CHECKING:  # it needs Arrow, which is loaded while the servers start
    from mrflight.planner.job_plan import JobPlan


def job_began(job_id: str, spec: JobSpec, settings: RunSettings) -> JobBegan:
    """Return the first event of a job. It has no options of stores."""
    from mrflight import __version__

    memory, servers = settings.memory, settings.data_servers
    return JobBegan(
        job_id=job_id,
        name=spec.job.name,
        version=__version__,
        host=os.uname().nodename,
        pid=os.getpid(),
        executor=spec.cluster.executor,
        workers=settings.workers,
        data_servers=servers,
        cluster=spec.cluster.metadata or "",
        memory_bytes=memory.total,
        worker_memory_bytes=memory.reducer,
        server_memory_bytes=memory.servers // max(1, servers),
    )


def job_planned(plan: JobPlan, table: str) -> JobPlanned:
    """Return what was found out about the inputs, and what is to be done with them."""
    inputs = (
        InputFound(stage.name_of_input(name), len(source.files), source.size_bytes, source.version)
        for stage in plan.stages
        for name, source in plan.sources[stage.name].items()
    )
    stages = (
        PlannedStage(stage.title, each.partitions, len(each.map_tasks), each.is_adaptive)
        for stage, each in ((stage, plan.plans[stage.name]) for stage in plan.stages)
    )
    return JobPlanned(table=table, inputs=tuple(inputs), stages=tuple(stages))


def processes_sampled(names: Mapping[int, str], sizes: Mapping[int, int]) -> ProcessesSampled:
    """Return the memory of processes that have names, and of this one; both are by process id."""
    named = {**names, os.getpid(): DRIVER}
    return ProcessesSampled(
        processes=tuple(
            ProcessMemory(named[pid].removeprefix("mrflight-"), pid, size)
            for pid, size in sizes.items()
            if pid in named
        )
    )


def history_path(spec: JobSpec, folder: Path, job_id: str) -> Path | None:
    """Return the file of the job's events, whose folder exists then; None if it has none.

    Raises JobFileError if there can be no such file.
    """
    if spec.job.events is None:
        return None
    if "://" in spec.job.events or not spec.job.events.strip():
        raise JobFileError(
            f"job.events: {spec.job.events!r} is not a folder of this machine; name one, in which "
            "a file for each job is written, or remove the key"
        )
    found = folder / spec.job.events
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(found, error) from error
    if not os.access(found, os.W_OK | os.X_OK):
        raise _not_writable(found, "it cannot be written to")
    from mrflight.events.history import SUFFIX

    return found / f"{job_id}{SUFFIX}"


def begin_history(events: Recorder, path: Path | None) -> None:
    """Write the events to the file, once no process is forked any more from this one."""
    if path is not None:
        try:
            events.write_to(path)
        except OSError as error:
            raise _not_writable(path.parent, error) from error


def _not_writable(folder: Path, why: object) -> JobFileError:
    return JobFileError(f"job.events: {folder}: {why}; choose another folder, or remove the key")
