"""The services and limits that the stages of a job run with."""

from __future__ import annotations

import msgspec

from mrflight.scheduler.bad_row_files import BadRowFiles
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.system.deadlines import Deadline
from mrflight.tasks.task_memory import TaskMemory


class JobContext(msgspec.Struct, frozen=True):
    """The services and limits that the stages of a job run with."""

    runner: StageRunner
    shuffles: JobShuffles
    metrics: JobMetrics
    """Filled in as stages end."""
    deadline: Deadline
    task_memory: TaskMemory
    """The memory and the local folder of a reduce task."""
    bad_row_files: BadRowFiles
