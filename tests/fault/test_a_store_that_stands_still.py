"""A store whose calls do not return: Ctrl-C and job.timeout end the job all the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mrflight.spec import OutputFormat
from tests.support.driver import DriverRun, driver_command
from tests.support.faults import await_that
from tests.support.gated_job import (
    WAITING,
    GatedJob,
    clean,
    gated_job,
    old_table,
    unnamed_files,
)
from tests.support.leftovers import nothing_left_over, tree
from tests.support.standing_store import standing_store

END_S = 5.0
TIMEOUT_S = 4.0
COMMIT_TIMEOUT_S = 8.0

RAISING = WAITING.replace(
    "gate.read_bytes()", "raise ValueError(f'as it is told{gate.read_bytes()!r}')"
)


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> OutputFormat:
    return request.param  # type: ignore[no-any-return]


@contextmanager
def started(job: GatedJob, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The job's driver, which nobody waits for."""
    with subprocess.Popen(
        driver_command(job.path, *options),
        env={**os.environ, **job.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], within_s: float = END_S) -> DriverRun:
    """How it ends; subprocess.TimeoutExpired where it does not in time."""
    stdout, stderr = process.communicate(timeout=within_s)
    return DriverRun(process.returncode, stdout, stderr)


def test_an_interrupt_while_the_table_is_loaded_at_the_start(
    tmp_path: Path, format: OutputFormat
) -> None:
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format)
    with (
        nothing_left_over(job.folder / "tmp"),
        standing_store(table) as store,
    ):
        store.stand()
        with started(job) as driver:
            store.await_reader(driver.pid)
            driver.send_signal(signal.SIGINT)
            done = ended(driver)
    assert (done.code, done.message) == (130, "interrupted\n")
    assert tree(table) == before


def test_the_timeout_while_the_table_is_loaded_at_the_start(
    tmp_path: Path, format: OutputFormat
) -> None:
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format)
    began_s = time.monotonic()
    with (
        nothing_left_over(job.folder / "tmp"),
        standing_store(table) as store,
    ):
        store.stand()
        with started(job, "--set", f"job.timeout={TIMEOUT_S:g} s") as driver:
            store.await_reader(driver.pid)
            done = ended(driver, TIMEOUT_S + END_S)
    assert done.code == 1, done.stderr
    assert time.monotonic() - began_s > TIMEOUT_S
    assert "timeout passed while the inputs and the output were looked at" in done.message
    assert tree(table) == before


def test_an_interrupt_while_the_commit_looks_at_the_table(
    tmp_path: Path, format: OutputFormat
) -> None:
    """The clean-up waits for the store as well, which tells it what is committed: for a moment."""
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format)
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated() as driver,
        standing_store(table) as store,
    ):
        driver.wait_for_parts()
        store.stand()
        driver.open_gate()
        store.await_reader(driver.process.pid)
        driver.process.send_signal(signal.SIGINT)
        done = driver.end(END_S)
    assert done.code == 130
    assert "interrupted in the commit; look at the table" in done.message
    assert "the clean-up was given up; mrflight clean removes what is left" in done.stderr
    left = unnamed_files(table)
    assert len(left) >= 4
    assert clean(table, "--remove") == left
    assert tree(table) == before


def test_the_timeout_while_the_commit_looks_at_the_table(
    tmp_path: Path, format: OutputFormat
) -> None:
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format)
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated("--set", f"job.timeout={COMMIT_TIMEOUT_S:g} s") as driver,
        standing_store(table) as store,
    ):
        driver.wait_for_parts()
        store.stand()
        driver.open_gate()
        store.await_reader(driver.process.pid)
        done = driver.end(COMMIT_TIMEOUT_S + END_S)
    assert done.code == 1
    assert re.search("timeout passed while .* with nothing committed; raise", done.message)
    left = unnamed_files(table)
    assert clean(table, "--remove") == left
    assert tree(table) == before


@pytest.mark.parametrize(
    ("format", "goes_on"),
    [("delta", True), ("delta", False), ("parquet", False)],
    indirect=["format"],
)
def test_an_interrupt_in_the_clean_up_of_a_job_that_failed(
    tmp_path: Path, format: OutputFormat, goes_on: bool
) -> None:
    """It does not cut the clean-up short, but bounds it; why the job failed is told."""
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format)
    (job.folder / "waiting.py").write_text(RAISING)
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated("--set", "job.attempts=1") as driver,
        standing_store(table) as store,
    ):
        driver.wait_for_parts()
        store.stand()
        driver.open_gate()
        store.await_reader(driver.process.pid)
        driver.process.send_signal(signal.SIGINT)
        driver.process.send_signal(signal.SIGTERM)
        if goes_on:
            await_that(lambda: not pending_signals(driver.process.pid), "the handlers")
            store.go_on()
        done = driver.end(END_S)
    assert done.code == 2
    assert "ValueError: as it is told" in done.message
    left = unnamed_files(table)
    assert ("the clean-up was given up" in done.stderr) != goes_on
    assert (left == set()) == goes_on
    assert clean(table, "--remove") == left
    assert tree(table) == before


def pending_signals(pid: int) -> int:
    """Signals that a process was sent and has not taken, as bits."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (line.split()[1] for line in lines if line.startswith("ShdPnd:"))
    return int(mask, 16)
