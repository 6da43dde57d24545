"""Ctrl-C and SIGTERM around the commit end the job with all of the commit or none.

The driver interrupts itself at a step, so that it is where the test says, however fast it is.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.gated_job import (
    OLD,
    PARTITIONS,
    GatedDriver,
    clean,
    gated_job,
    lost_attempts,
    old_table,
    unnamed_files,
)
from tests.support.faults.hanging_store import HangingStore, hanging_store
from tests.support.faults.stopped_driver import HANG, Deed, Plan

pytestmark = pytest.mark.runs_on_ray

INTERRUPTS = ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)]
"""Both are handled by the same code; the tests of one commit below use the second."""


def stand_in_the_commit(driver: GatedDriver, store: HangingStore) -> None:
    """Let the driver commit, and wait until it stands there."""
    store.hang()
    driver.open_gate()
    store.await_reader(driver.process.pid)


@pytest.mark.slow_but("parquet-SIGINT")
@pytest.mark.parametrize("number", INTERRUPTS)
def test_in_the_reduce(tmp_path: Path, format: OutputFormat, number: str) -> None:
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format, "overwrite")
    with nothing_left_over(job.folder / "tmp"), job.gated(plan=Plan()) as driver:
        driver.wait_for_parts()
        driver.process.send_signal(getattr(signal, number))
        done = driver.end()
    assert done.code == 130, done.stderr
    assert "interrupted before the commit: nothing of the job is in its output" in done.message
    assert done.result["state"] == "interrupted"
    assert tree(table) == before


@pytest.mark.parametrize("number", INTERRUPTS)
@pytest.mark.parametrize(
    "step", ["commit begins", pytest.param("entry is written", marks=pytest.mark.slow)]
)
def test_in_the_commit_which_is_ended(
    tmp_path: Path, format: OutputFormat, step: str, number: str
) -> None:
    check_is_committed(tmp_path, format, Plan((Deed(step, number),)))


@pytest.mark.slow_but("parquet-clean-up begins", "parquet-entry is there")
@pytest.mark.parametrize("step", ["entry is there", "clean-up begins", "a file is removed"])
def test_after_the_commit(tmp_path: Path, format: OutputFormat, step: str) -> None:
    check_is_committed(tmp_path, format, Plan((Deed(step, "SIGTERM"),)))


def check_is_committed(folder: Path, format: OutputFormat, plan: Plan) -> None:
    """Assert that a driver that interrupts itself is committed, and leaves nothing."""
    table = old_table(folder, format)
    job = gated_job(folder, format)
    with nothing_left_over(job.folder / "tmp"), job.gated(plan=plan) as driver:
        lost_attempts(driver)
        driver.open_gate()
        done = driver.end()
    assert done.code == 0, done.stderr
    assert done.result["state"] == "committed"
    assert job.read() == [*job.keys, *OLD]
    assert unnamed_files(table) == clean(table) == set()


def test_in_a_commit_that_stands_still(tmp_path: Path) -> None:
    """The interrupt comes while the job reads what others have committed to the folder."""
    table = old_table(tmp_path, "parquet")
    before = tree(table)
    job = gated_job(tmp_path, "parquet")
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated(plan=Plan(commit_grace_s=0.2, clean_up_s=0.4)) as driver,
        hanging_store(table) as store,
    ):
        stand_in_the_commit(driver, store)
        driver.process.send_signal(signal.SIGTERM)
        done = driver.end()
    assert done.code == 130, done.stderr
    assert "interrupted in the commit; look at the table" in done.message
    left = unnamed_files(table)  # nobody could tell that they are not committed
    assert len(left) == PARTITIONS
    assert clean(table, "--remove") == left
    assert tree(table) == before


def test_in_a_commit_that_goes_on_in_time(tmp_path: Path) -> None:
    table = old_table(tmp_path, "parquet")
    job = gated_job(tmp_path, "parquet")
    with nothing_left_over(job.folder / "tmp"), job.gated(plan=Plan()) as driver:
        with hanging_store(table) as store:
            stand_in_the_commit(driver, store)
            driver.process.send_signal(signal.SIGTERM)
            driver.process.send_signal(signal.SIGINT)
        done = driver.end()
    assert done.code == 0, done.stderr
    assert job.read() == [*job.keys, *OLD]
    assert unnamed_files(table) == set()


def test_the_time_of_a_commit_ends_with_it(tmp_path: Path) -> None:
    """What would end a commit that takes too long comes while the job cleans up: too late."""
    plan = Plan((Deed("entry is written", "SIGTERM"), Deed("clean-up begins", "SIGALRM")))
    check_is_committed(tmp_path, "parquet", plan)


def test_a_clean_up_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The job is committed, however long the rest takes, and the driver says what removes it."""
    table = old_table(tmp_path, "parquet")
    job = gated_job(tmp_path, "parquet")
    deeds = Deed("entry is written", "SIGTERM"), Deed("a file is removed", HANG, number=2)
    with (
        nothing_left_over(job.folder / "tmp"),
        job.gated(plan=Plan(deeds, clean_up_s=0.5)) as driver,
    ):
        lost_attempts(driver)
        driver.open_gate()
        done = driver.end()
    assert done.code == 0, done.stderr
    assert done.result["state"] == "committed"
    assert "was abandoned; run mrflight clean" in done.stderr
    left = unnamed_files(table)
    assert left
    assert clean(table, "--remove") == left
    assert job.read() == [*job.keys, *OLD]
