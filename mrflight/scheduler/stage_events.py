"""Records what the attempts of one task set do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from mrflight.errors import WorkerLostError
from mrflight.events.kinds import (
    AttemptEnded,
    AttemptRunning,
    IncidentKind,
    Outcome,
    QueryStage,
    StageBegan,
    StageEnded,
)
from mrflight.events.recorder import Recorder
from mrflight.events.task_report import NO_REPORT, TaskReport, report_of
from mrflight.scheduler.attempts import Attempt
from mrflight.system.log_label import LogLabel, labelled
from mrflight.system.progress import NO_WORK, Work


class TaskAttempt(msgspec.Struct, frozen=True):
    """An attempt, and what events say about it."""

    attempt: Attempt
    name: str
    """The name of the task."""
    is_speculative: bool


class StageEvents:
    """The events of one task set, which is a stage or runs within one."""

    def __init__(self, recorder: Recorder, job: str, stage: str) -> None:
        self._recorder = recorder
        self._job = job
        self._stage = stage
        self.number = recorder.next_stage()
        self._workers: dict[Attempt, str] = {}
        """Those of attempts that were seen running."""

    def begin(
        self,
        tasks: int,
        size_bytes: int,
        at_once: int,
        *,
        within: bool,
        runs: QueryStage | None = None,
    ) -> None:
        self._recorder.record(
            StageBegan(
                stage=self.number,
                name=self._stage,
                tasks=tasks,
                size_bytes=size_bytes,
                at_once=at_once,
                within=within,
                runs=runs,
            )
        )

    def end(self, note: str = "", *, failed: bool = False) -> None:
        self._recorder.record(StageEnded(stage=self.number, note=note, failed=failed))

    @contextmanager
    def labelled(self, of: TaskAttempt) -> Iterator[None]:
        """Label what is logged about an attempt, and by it."""
        with labelled(LogLabel(self._job, self._stage, of.name, of.attempt.number)):
            yield

    def running(self, of: TaskAttempt, worker: str) -> None:
        """An attempt was seen running, for the first time; ``worker`` may be empty."""
        self._workers[of.attempt] = worker
        self._recorder.record(
            AttemptRunning(
                stage=self.number,
                task=of.attempt.task,
                name=of.name,
                worker=worker,
                attempt=of.attempt.number,
                speculative=of.is_speculative,
            )
        )

    def done(self, of: TaskAttempt, report: TaskReport, work: Work, *, again: bool) -> None:
        """An attempt counts; ``again``: its task has been done before."""
        self._end(of, "done", report, work, again=again)

    def stopped(self, of: TaskAttempt, seconds: float) -> None:
        """An attempt was stopped that had run for so long, as far as was seen."""
        self._end(of, "stopped", TaskReport(seconds=round(seconds, 4)))

    def failed(self, of: TaskAttempt, outcome: Outcome, error: Exception, seconds: float) -> None:
        """An attempt has raised ``error``, after so many seconds as far as was seen."""
        report = report_of(error)
        if not report.seconds:
            report = TaskReport(report.worker, round(seconds, 4))
        self._end(of, outcome, report, error=in_one_line(error))

    def retried(self, of: TaskAttempt, max_failures: int, error: Exception) -> None:
        """The task of an attempt that failed gets another one."""
        cause = in_one_line(error)
        failed = f"attempt {of.attempt.number + 1} of {max_failures} failed and is retried"
        is_lost = isinstance(error, WorkerLostError)
        self.notice(
            "worker_lost" if is_lost else "attempt_failed",
            f"{of.name}: {failed}: {cause}",
            subject=(report_of(error).worker if is_lost else "") or of.name,
            cause=cause,
            action=f"{of.name} is retried" if is_lost else failed,
        )

    def runs_again(self, of: TaskAttempt, error: Exception) -> None:
        """The task of an attempt runs again because something was lost."""
        cause = in_one_line(error)
        self.notice(
            "moved",
            f"{of.name} runs again: {cause}",
            subject=of.name,
            cause=cause,
            action="it runs again, which does not count as a failure",
        )

    def straggles(self, of: TaskAttempt, seconds: float) -> None:
        """A speculative attempt is started beside the only one of a task."""
        cause = f"it has taken {seconds:.0f} s, much longer than others"
        self.notice(
            "straggler",
            f"{of.name} {cause.removeprefix('it ')}; a speculative attempt is started",
            subject=of.name,
            cause=cause,
            action="a speculative attempt is started",
        )

    def notice(
        self, kind: IncidentKind, message: str, *, subject: str, cause: str, action: str
    ) -> None:
        self._recorder.notice(kind, message, subject=subject, cause=cause, action=action)

    def _end(
        self,
        of: TaskAttempt,
        outcome: Outcome,
        report: TaskReport = NO_REPORT,
        work: Work = NO_WORK,
        *,
        again: bool = False,
        error: str = "",
    ) -> None:
        seen_at = self._workers.pop(of.attempt, "")
        self._recorder.record(
            AttemptEnded(
                stage=self.number,
                task=of.attempt.task,
                name=of.name,
                attempt=of.attempt.number,
                outcome=outcome,
                worker=report.worker or seen_at,
                seconds=report.seconds,
                cpu_seconds=report.cpu_seconds,
                rows=work.rows,
                size_bytes=work.size_bytes,
                sent=report.sent,
                fetched=report.fetched,
                spilled_bytes=report.spilled_bytes,
                memory_bytes=report.memory_bytes,
                operators=report.operators,
                error=error,
                speculative=of.is_speculative,
                again=again,
            )
        )


def in_one_line(error: Exception) -> str:
    """Return the first and the last line of a message, without the traceback between them."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
