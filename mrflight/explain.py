"""Looks at a job's inputs and output as running it would, and tells the plan in words."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from mrflight.deadline import Deadline
from mrflight.functions import check_function
from mrflight.ids import new_job_id
from mrflight.job_opening import open_job, plan_inputs
from mrflight.job_words import output_in_words, plan_in_words
from mrflight.run_settings import RunSettings
from mrflight.spec import JobSpec
from mrflight.storage import hopsfs, locate


def explain(spec: JobSpec, folder: Path) -> list[str]:
    """The lines; ``folder`` is the job file's.

    Nothing is started or written, but the users' modules are imported here. Raises what is wrong
    with the job, as running it would before its first task.
    """
    hopsfs.prepare(spec.storage, spec.paths)
    settings = RunSettings.of(spec, folder)
    deadline = Deadline(time.monotonic() + settings.timeout_s)
    look = partial(_look, spec, folder, settings)
    return deadline.awaited(look, "the inputs and the output were looked at")


def explain_rows(spec: JobSpec, folder: Path) -> list[str]:
    """The same of a job whose output nobody has told yet."""
    hopsfs.prepare(spec.storage, spec.paths)
    settings = RunSettings.of(spec, folder)
    plan = plan_inputs(spec, folder, new_job_id(), settings.workers, settings.memory)
    return plan_in_words(spec, plan, settings)


def _look(spec: JobSpec, folder: Path, settings: RunSettings) -> list[str]:
    plan, sink = open_job(spec, folder, new_job_id(), settings.workers, settings.memory)
    for function in sorted(plan.functions, key=str):
        check_function(function)
    committed = spec.job.run_id if sink.was_committed() else None
    url = locate(spec.output.table, folder, spec.storage).url
    return [
        *plan_in_words(spec, plan, settings),
        *output_in_words(spec.output, url, committed),
    ]
