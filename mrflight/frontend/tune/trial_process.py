"""Runs a trial: the driver, in a process of its own, with settings that replace those of the job.

The output of a trial is a new folder on this machine, which is removed after it. The table of the
job is neither read nor written.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mrflight.driver import EXIT_WRONG_JOB
from mrflight.errors import DeadlineExceededError, JobError, JobFailedError
from mrflight.frontend.tune.design import settings_by_key
from mrflight.frontend.tune.job_facts import TunedJob
from mrflight.frontend.tune.trial import Run, Trial
from mrflight.result import JobResult

_CLEAN_UP_S = 8.0
"""A driver that is interrupted ends within 5 s."""


class TrialProcess:
    """Starts the driver for trials of one job."""

    def __init__(
        self, job: TunedJob, job_file: Path, overrides: Sequence[str], scratch: Path
    ) -> None:
        """``overrides`` are the user's own ``--set``, and ``scratch`` is a folder for outputs."""
        self._job = job
        self._job_file = job_file
        self._overrides = overrides
        self._scratch = scratch

    def run(self, trial: Trial, sampled: Sequence[str], limit_s: float) -> Run:
        """Run a trial on parts of the ``sampled`` inputs, and return what it took.

        Raises JobError or JobFailedError with the message of the job if that fails, and
        DeadlineExceededError if it takes longer than ``limit_s``. Whatever is raised, the job has
        ended before that.
        """
        output = self._scratch / "output"
        settings = self._settings(trial, sampled, output).items()
        ours = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings]
        options = [word for each in (*self._overrides, *ours) for word in ("--set", each)]
        command = [sys.executable, "-m", "mrflight.driver", str(self._job_file), "--json", *options]
        try:
            code, stdout, stderr = _run_process(command, limit_s)
        finally:
            shutil.rmtree(output, ignore_errors=True)
        if code != 0:
            raise _failure(code, stdout, stderr)
        result = msgspec.json.decode(stdout.splitlines()[-1], type=JobResult)
        return Run(
            trial,
            result.seconds,
            result.rows_in,
            result.rows_out,
            result.bytes_shuffled,
            result.peak_memory_bytes,
        )

    def _settings(self, trial: Trial, sampled: Sequence[str], output: Path) -> Mapping[str, object]:
        """Return the keys of the job file that a trial sets."""
        has_history = self._job.spec.job.events is not None  # for runs, which trials are not
        return {
            **({"job.events": str(self._scratch / "events")} if has_history else {}),
            "cluster.page": False,
            **self._job.sample_keys(trial.amount.fraction, sampled),
            **self._job.fixed_keys(),
            **settings_by_key(trial.setting, self._job.facts),
            **self._output_keys(output),
        }

    def _output_keys(self, output: Path) -> Mapping[str, object]:
        """Return the keys of an output in a new folder, for a table in a catalog with a new one."""
        if not self._job.spec.output.in_catalog:
            return {"output.table": str(output)}
        output.mkdir()
        return {
            "output.table": "trial.output",
            "output.catalog": f"sqlite:///{output}/catalog.db",
            "output.warehouse": str(output),
            "output.catalog_options": {},
        }


def _run_process(command: Sequence[str], limit_s: float) -> tuple[int, str, str]:
    """Return the exit code and what the process wrote. It has ended if anything is raised."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise DeadlineExceededError(
                f"the job did not end within {limit_s:.0f} s; give a longer --budget, or a "
                "smaller --sample"
            ) from error
        except BaseException:  # an interrupt
            _end(process)
            raise
        return process.returncode, stdout, stderr


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a driver and wait until it has cleaned up; end it by force if it does not."""
    process.terminate()
    try:
        process.communicate(timeout=_CLEAN_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _failure(code: int, stdout: str, stderr: str) -> JobError | JobFailedError:
    """Return the error of a job that ended with an exit code other than 0."""
    lines = stdout.splitlines()
    try:
        message = msgspec.json.decode(lines[-1], type=JobResult).error if lines else None
    except msgspec.DecodeError:
        message = None
    text = message or f"the driver ended with exit code {code}: {stderr.strip()[-1000:]}"
    return JobError(text) if code == EXIT_WRONG_JOB else JobFailedError(text)
