"""Looks at a job's inputs and output as running it would, and tells the plan in words."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from mrflight.config.functions import check_function
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.ids import new_job_id
from mrflight.planner.analyze import analyze, plan_inputs
from mrflight.planner.explain_job import output_in_words, plan_in_words
from mrflight.planner.job_plan import JobPlan
from mrflight.storage import locate
from mrflight.storage.prepare import prepare_storage
from mrflight.system.deadlines import Deadline


def explain(spec: JobSpec, folder: Path, *, with_output: bool = True) -> list[str]:
    """The lines; ``folder`` is the job file's.

    Nothing is started or written, but the users' modules are imported here. Raises what is wrong
    with the job, as running it would before its first task. Without output it is not looked at,
    as nobody has told it yet.
    """
    prepare_storage(spec, folder, with_output=with_output)
    settings = RunSettings.of(spec, folder)
    deadline = Deadline(time.monotonic() + settings.timeout_s)
    look = partial(_look, spec, folder, settings, with_output=with_output)
    return deadline.run(look, "the inputs and the output were analyzed")


def _look(spec: JobSpec, folder: Path, settings: RunSettings, *, with_output: bool) -> list[str]:
    asked = (spec, folder, new_job_id(), settings.workers, settings.memory)
    if not with_output:
        plan = plan_inputs(*asked)
        _ = plan.last.result_schema  # which raises what is wrong with the result's columns
        _check_functions(plan)
        return plan_in_words(spec, plan, settings)
    plan, sink = analyze(*asked)
    _check_functions(plan)
    committed = spec.job.run_id if sink.was_committed() else None
    url = locate(spec.output.table, folder, spec.storage).url
    return [*plan_in_words(spec, plan, settings), *output_in_words(spec.output, url, committed)]


def _check_functions(plan: JobPlan) -> None:
    for function in sorted(plan.functions, key=str):
        check_function(function)
