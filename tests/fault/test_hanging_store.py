"""Calls to a store do not return: Ctrl-C and job.timeout end the job all the same."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.faulty_run import await_that
from tests.support.faults.gated_job import (
    PARTITIONS,
    WAITING,
    GatedDriver,
    GatedJob,
    clean,
    gated_job,
    old_table,
    unnamed_files,
)
from tests.support.faults.hanging_store import HangingStore, hanging_store
from tests.support.faults.stopped_driver import Plan

pytestmark = pytest.mark.runs_on_ray

LONG = ("--set", "job.timeout=1 h")

HASTY = Plan(commit_grace_s=0.5, clean_up_s=0.5)
"""The commit and the clean-up are given up sooner than after 2.5 and 3.5 s."""

RAISING = WAITING.replace(
    "gate.read_bytes()", "raise ValueError(f'as it is told{gate.read_bytes()!r}')"
)


@pytest.fixture
def job(tmp_path: Path, format: OutputFormat) -> GatedJob:
    """A job whose table another one has made."""
    old_table(tmp_path, format)
    return gated_job(tmp_path, format)


@contextmanager
def looking_at_the_start(job: GatedJob, plan: Plan | None = None) -> Iterator[GatedDriver]:
    """The job's driver, which stands where it loads the table before anything else."""
    with nothing_left_over(job.folder / "tmp"), hanging_store(job.table) as store:
        store.hang()
        with job.started(*LONG, plan=plan) as driver:
            store.await_reader(driver.process.pid)
            yield driver


@contextmanager
def looking_at_the_end(
    job: GatedJob, *options: str, plan: Plan = HASTY
) -> Iterator[tuple[GatedDriver, HangingStore]]:
    """The job's driver, which stands where it looks at the table once its tasks have ended."""
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated(*LONG, *options, plan=plan) as driver,
        hanging_store(job.table) as store,
    ):
        driver.wait_for_parts()
        store.hang()
        driver.open_gate()
        store.await_reader(driver.process.pid)
        yield driver, store


@pytest.mark.slow_but("parquet")
def test_an_interrupt_while_the_table_is_loaded_at_the_start(job: GatedJob) -> None:
    before = tree(job.table)
    with looking_at_the_start(job) as driver:
        driver.process.send_signal(signal.SIGINT)
        done = driver.end()
    assert done.code == 130
    assert "interrupted before the commit: nothing of the job is in its output" in done.message
    assert tree(job.table) == before


@pytest.mark.slow
def test_the_timeout_while_the_table_is_loaded_at_the_start(job: GatedJob) -> None:
    before = tree(job.table)
    over = job.folder / "over"
    with looking_at_the_start(job, Plan(later_once=str(over))) as driver:
        over.touch()
        done = driver.end()
    assert done.code == 1, done.stderr
    assert "timeout passed while the inputs and the output were analyzed" in done.message
    assert tree(job.table) == before


@pytest.mark.slow
def test_an_interrupt_while_the_commit_looks_at_the_table(job: GatedJob) -> None:
    """The clean-up waits for the store as well, which tells it what is committed: for a moment."""
    before = tree(job.table)
    with looking_at_the_end(job) as (driver, _):
        driver.process.send_signal(signal.SIGINT)
        done = driver.end()
    assert done.code == 130
    assert "interrupted in the commit; look at the table" in done.message
    assert "the clean-up took too long and was abandoned; run mrflight clean" in done.stderr
    left = unnamed_files(job.table)
    assert len(left) == PARTITIONS
    assert clean(job.table, "--remove") == left
    assert tree(job.table) == before


@pytest.mark.slow
def test_the_timeout_while_the_commit_looks_at_the_table(job: GatedJob) -> None:
    before = tree(job.table)
    over = job.folder / "over"
    plan = Plan(later_once=str(over), clean_up_s=0.5)
    with looking_at_the_end(job, plan=plan) as (driver, _):
        over.touch()
        done = driver.end()
    assert done.code == 1
    assert re.search("timeout passed while .* with nothing committed; raise", done.message)
    left = unnamed_files(job.table)
    assert clean(job.table, "--remove") == left
    assert tree(job.table) == before


@pytest.mark.slow_but("delta-True")
@pytest.mark.parametrize(
    ("format", "goes_on"),
    [("delta", True), ("delta", False), ("parquet", False)],
    indirect=["format"],
)
def test_an_interrupt_in_the_clean_up_of_a_job_that_failed(job: GatedJob, goes_on: bool) -> None:
    """It does not cut the clean-up short, but bounds it; why the job failed is told."""
    before = tree(job.table)
    (job.folder / "waiting.py").write_text(RAISING)
    options = ("--set", "job.attempts=1")
    plan = Plan() if goes_on else HASTY
    with looking_at_the_end(job, *options, plan=plan) as (driver, store):
        driver.process.send_signal(signal.SIGINT)
        driver.process.send_signal(signal.SIGTERM)
        if goes_on:
            await_that(lambda: not pending_signals(driver.process.pid), "the handlers")
            store.resume()
        done = driver.end()
    assert done.code == 2
    assert "ValueError: as it is told" in done.message
    left = unnamed_files(job.table)
    assert ("the clean-up took too long" in done.stderr) != goes_on
    assert (left == set()) == goes_on
    assert clean(job.table, "--remove") == left
    assert tree(job.table) == before


def pending_signals(pid: int) -> int:
    """Signals that a process was sent and has not taken, as bits."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (line.split()[1] for line in lines if line.startswith("ShdPnd:"))
    return int(mask, 16)
