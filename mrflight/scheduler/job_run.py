"""One run of a job: its processes and services, from their start to their end.

What becomes of the rows is decided by `mrflight.scheduler.job`, which commits them to a table, or
by `mrflight.scheduler.job_rows`, which gives them to the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from mrflight.compute.kernel_choice import kernel_language
from mrflight.config.identity import ClientOptions
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.events.recorder import Recorder
from mrflight.ids import new_job_id
from mrflight.result import Attempts
from mrflight.runtime.job_runtime import JobRuntime, RuntimeOptions
from mrflight.runtime.preload import fork_server_modules, is_likely_direct
from mrflight.runtime.start import open_runtime
from mrflight.scheduler.job_events import begin_history, history_path, job_began, processes_sampled
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.storage.option_checks import prepare_storage
from mrflight.system.deadlines import Deadline
from mrflight.system.fork_server.client import load_here
from mrflight.system.log_label import LogLabel, label_process
from mrflight.system.scratch import ScratchFolder, remove_dead_folders
from mrflight.system.signals import Interrupts

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.config.functions import FunctionRef
    from mrflight.planner.job_plan import JobPlan
    from mrflight.scheduler.bad_row_files import BadRowFiles
    from mrflight.scheduler.direct_scheduler import DirectScheduler
    from mrflight.scheduler.job_context import JobContext
    from mrflight.scheduler.stage_scheduler import StageScheduler

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_SLOW_KERNEL = (
    "mrflight runs without its native kernel, so that maps take two to three times as long: "
    "install cargo (https://rustup.rs), and then mrflight again"
)
"""Clicks of 4 million rows had 5.3 s of maps with the kernel in Python, and 2.3 with the other."""


@contextmanager
def open_job(
    spec: JobSpec,
    folder: Path,
    events: Recorder,
    metrics: JobMetrics,
    *,
    interrupts: Interrupts | None = None,
    owns_process: bool = False,
) -> Iterator[JobRun]:
    """Start the processes of a job, which end with the context, as do all of its local files.

    ``folder`` is that of the job file: relative paths and modules are found there. ``metrics`` are
    filled in as far as the job comes, and ``interrupts`` learn how far it is.
    ``owns_process``: this process does nothing but run the job, and may be forked.
    """
    interrupts = interrupts or Interrupts()
    prepare_storage(spec, folder)
    settings = RunSettings.of(spec, folder)
    metrics.job_id = new_job_id()
    history = history_path(spec, folder, metrics.job_id)
    events.record(job_began(metrics.job_id, spec, settings))
    if owns_process:
        label_process(LogLabel(metrics.job_id))
    if kernel_language() == "python":
        events.notice("notice", _SLOW_KERNEL)
    is_direct = is_likely_direct(spec, folder)
    if owns_process and spec.cluster.executor == "local":
        # Before there are folders, which would stay if this process was killed meanwhile.
        load_here(fork_server_modules(spec, is_direct=is_direct))
    with ExitStack() as stack:
        scratch = stack.enter_context(ScratchFolder("job", settings.spill_root))
        _create(scratch)  # not before it is entered: an interrupt may come at any moment
        options = RuntimeOptions(
            spec,
            folder,
            settings,
            scratch.path,
            interrupts,
            events,
            owns_process,
            is_direct,
        )
        try:
            runtime = open_runtime(stack, options)
        finally:  # not before, as processes that are forked would write what is buffered, too
            begin_history(events, history)
        if spec.cluster.page is not False:
            from mrflight.page.live_page import open_job_page

            open_job_page(
                events, 0 if spec.cluster.page is True else spec.cluster.page, scratch.path
            )
        yield JobRun(options, runtime, metrics)


class _FunctionCheck(msgspec.Struct, frozen=True):
    """A task that imports a user's function, before there is much work to lose."""

    function: FunctionRef

    @property
    def name(self) -> str:
        return f"check of {self.function}"


class JobRun:
    """One run of one job, once its processes are being started."""

    bad_row_files: BadRowFiles
    """Known once the job has begun."""

    def __init__(self, options: RuntimeOptions, runtime: JobRuntime, metrics: JobMetrics) -> None:
        self.spec = options.spec
        self.folder = options.folder
        self.events = options.events
        self.interrupts = options.interrupts
        self.settings = runtime.settings
        self.cluster = runtime.cluster
        """None on a standing cluster."""
        self.metrics = metrics
        self.deadline = Deadline(metrics.timer.started + self.settings.timeout_s)
        self.runner = StageRunner(
            runtime.executor,
            options.events,
            self.deadline,
            self.settings.attempts,
            speculates=self.settings.speculates,
            job=metrics.job_id,
        )
        self._options = options
        self._runtime = runtime
        self._scratch = options.scratch
        self._is_batch = False

    @property
    def metadata(self) -> str:
        """The location of the metadata server, of a standing or of the job's own cluster."""
        return self.spec.cluster.metadata or (self.cluster.metadata if self.cluster else "")

    @property
    def client(self) -> ClientOptions:
        """How the job talks to the servers of ``metadata``."""
        options = self.settings.client
        return replace(options, identity=self.cluster.identity) if self.cluster else options

    def next_batch(self, spec: JobSpec, metrics: JobMetrics, events: Recorder) -> JobRun:
        """Return the run of a batch of a stream, which leaves the processes of this run to others.

        ``spec`` is that of the stream with the input of the batch.
        """
        batch = JobRun(replace(self._options, spec=spec, events=events), self._runtime, metrics)
        batch._is_batch = True
        return batch

    def submit_long(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Run a function in a worker beside the tasks; if that is lost, WorkerLostError ends it."""
        return self._runtime.executor.submit(function, *args, **kwargs)

    def stop_long(self, future: Future[R]) -> None:
        """End such a call."""
        self._runtime.executor.stop(future)

    def begin_reading(self, stack: ExitStack, plan: JobPlan) -> StageScheduler:
        """Wait until the stages can run, whose result the data servers will hold.

        Returns what runs them. The workers and the shuffles end with ``stack``.
        """
        from mrflight.scheduler.stage_scheduler import StageScheduler

        plan, context = self._begin(stack, plan)
        self._wait_until_ready(plan, needs_servers=True)
        return StageScheduler(plan, context, self.spec.job.attempts)

    def begin_writing(
        self, stack: ExitStack, plan: JobPlan, *, needs_lock: bool
    ) -> tuple[StageScheduler | DirectScheduler, JobShuffles]:
        """Wait until the stages can run, whose result is written to part files.

        Returns what runs them, and their shuffles. The workers and the shuffles end with ``stack``.
        ``needs_lock``: the commit needs the metadata server.
        """
        plan, context = self._begin(stack, plan)
        self._wait_until_ready(plan, needs_servers=needs_lock or not plan.runs_directly)
        if plan.runs_directly:
            from mrflight.scheduler.direct_scheduler import DirectScheduler

            return DirectScheduler(plan, context), context.shuffles
        from mrflight.scheduler.stage_scheduler import StageScheduler

        return StageScheduler(plan, context, self.spec.job.attempts), context.shuffles

    def _begin(self, stack: ExitStack, plan: JobPlan) -> tuple[JobPlan, JobContext]:
        """Return the plan of the workers' tasks, and what these run with."""
        from mrflight.scheduler.bad_row_files import BadRowFiles
        from mrflight.scheduler.job_context import JobContext
        from mrflight.tasks.task_memory import TaskMemory

        self._log_plan(plan)
        self.bad_row_files = BadRowFiles(plan.bad_row_policies, self.metrics.job_id)
        stack.callback(self.interrupts.clean_up, self.bad_row_files.clean_up)
        if not self._is_batch:
            stack.callback(self._runtime.executor.close)  # once no worker writes any more
        shuffles = stack.enter_context(self._shuffles())
        stack.callback(self._end)
        self.deadline.run(self.bad_row_files.begin, "the folders of bad rows were written")
        with self.deadline.attribute_timeouts():
            plan = self._with_frames_written(plan)
        context = JobContext(
            self.runner,
            shuffles,
            self.metrics,
            self.deadline,
            TaskMemory(self.settings.memory.reducer, self._runtime.scratch),
            self.bad_row_files,
        )
        return plan, context

    def _log_plan(self, plan: JobPlan) -> None:
        if log.isEnabledFor(logging.INFO):
            from mrflight.planner.explain import format_plan

            lines = "\n".join(format_plan(self.spec, plan, self.settings))
            log.info("the plan of job %s:\n%s", self.metrics.job_id, lines)

    def processes(self) -> Mapping[int, str]:
        """Return the names of the job's processes on this machine, without this one."""
        return self._runtime.processes()

    def record_memory(self, sizes: Mapping[int, int]) -> None:
        """Record what processes on this machine hold, by their ids."""
        self.events.record(processes_sampled(self.processes(), sizes))

    def attempts(self) -> Attempts:
        """Return how many attempts there were until now."""
        started, failed = self.runner.started, self.runner.failed
        return Attempts(
            _count(started, "map"),
            _count(started, "reduce") + _count(started, "aggregate"),
            sum(_count(failed, kind) for kind in ("map", "reduce", "aggregate")),
        )

    def _end(self) -> None:
        """Stop the timer and bound the clean-up: a store that timed out may still not answer."""
        self.metrics.timer.stop()
        if self._is_batch:
            return  # the stream goes on, and can be interrupted
        self.interrupts.job_ends()
        if self.deadline.expired():
            self.interrupts.bound_clean_up()

    def _shuffles(self) -> JobShuffles:
        return JobShuffles(
            self.metadata,
            self.spec,
            self.client,
            self.deadline,
            self.events,
            is_standing=self.cluster is None,
            budget_bytes=None if self.cluster is None else self.settings.memory.servers,
        )

    def _with_frames_written(self, plan: JobPlan) -> JobPlan:
        """Write what workers read of this process, while they and the servers start."""
        if not self.spec.has_frames:
            return plan
        from mrflight.scheduler.frames import FrameFiles, write_frames

        return write_frames(plan, FrameFiles(self._scratch, self.events.driver, self.deadline))

    def _wait_until_ready(self, plan: JobPlan, *, needs_servers: bool) -> None:
        """Wait for the servers; workers import the users' functions meanwhile."""
        from mrflight.config.functions import check_function

        def submit(check: _FunctionCheck, attempt: int) -> Any:
            if attempt == 0:
                return first[check]
            return self.runner.submit(check_function, check.function)

        cluster = self.cluster if needs_servers else None
        if cluster is not None:
            cluster.start()
        checks = [_FunctionCheck(function) for function in plan.functions]
        first = {check: self.runner.submit(check_function, check.function) for check in checks}
        with self.deadline.attribute_timeouts():
            if cluster is not None:
                cluster.wait()
            if checks:
                self.runner.run_quietly("check", TaskSetSpec(checks, submit))


def _count(counts: Mapping[str, int], kind: str) -> int:
    """Return the sum for the stages called ``kind``, or ``kind`` followed by a name."""
    return sum(count for stage, count in counts.items() if stage.split(" ")[0] == kind)


def _create(scratch: ScratchFolder) -> None:
    """Create the job's folder, and remove what dead processes left beside it."""
    try:
        remove_dead_folders(scratch.root)
        _ = scratch.path  # which creates it
    except OSError as error:
        raise JobFileError(
            f"cluster.spill_dir: cannot create a folder in {scratch.root}: {error}; choose another"
        ) from error
