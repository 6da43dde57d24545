"""Ctrl-C and SIGTERM around the commit end the job in 5 seconds, with all of the commit or none."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.commands.driver import DriverRun
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.faulty_run import await_that
from tests.support.faults.gated_job import (
    OLD,
    PARTITIONS,
    GatedDriver,
    clean,
    gated_job,
    lost_attempts,
    newest,
    old_table,
    unnamed_files,
    until,
)
from tests.support.faults.hanging_store import HangingStore, hanging_store

END_S = 5.0
GRACE_S = 2.8
"""After which a commit that is interrupted has been given up, and a clean-up has not yet."""
INTERRUPTS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
"""Both are handled by the same code; the tests of one commit below use the second."""


def interrupt(driver: GatedDriver, number: signal.Signals) -> DriverRun:
    sent_s = time.monotonic()
    driver.process.send_signal(number)
    done = driver.end()
    assert time.monotonic() - sent_s < END_S
    return done


def stand_in_the_commit(driver: GatedDriver, store: HangingStore) -> None:
    """Let the driver commit, and wait until it stands there."""
    store.hang()
    driver.open_gate()
    store.await_reader(driver.process.pid)


@pytest.mark.parametrize("number", INTERRUPTS)
def test_in_the_reduce(tmp_path: Path, format: OutputFormat, number: signal.Signals) -> None:
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format, "overwrite")
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        driver.wait_for_parts()
        done = interrupt(driver, number)
    assert done.code == 130
    assert "interrupted before the commit: nothing of the job is in its output" in done.message
    assert done.result["state"] == "interrupted"
    assert tree(table) == before


@pytest.mark.parametrize("number", INTERRUPTS)
def test_in_the_commit_which_is_ended(
    tmp_path: Path, format: OutputFormat, number: signal.Signals
) -> None:
    table = old_table(tmp_path, format)
    job = gated_job(tmp_path, format)
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        lost = lost_attempts(driver)
        before = newest(table)
        driver.open_gate()
        until(lambda: newest(table) != before, driver.process, pause_s=0)
        assert any((table / name).exists() for name in lost)  # so it is in the commit
        done = interrupt(driver, number)
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
        job.gated() as driver,
        hanging_store(table) as store,
    ):
        stand_in_the_commit(driver, store)
        done = interrupt(driver, signal.SIGTERM)
    assert done.code == 130
    assert "interrupted in the commit; look at the table" in done.message
    left = unnamed_files(table)  # nobody could tell that they are not committed
    assert len(left) == PARTITIONS
    assert clean(table, "--remove") == left
    assert tree(table) == before


def test_in_a_commit_that_goes_on_in_time(tmp_path: Path) -> None:
    table = old_table(tmp_path, "parquet")
    job = gated_job(tmp_path, "parquet")
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        with hanging_store(table) as store:
            stand_in_the_commit(driver, store)
            driver.process.send_signal(signal.SIGTERM)
            driver.process.send_signal(signal.SIGINT)
        done = driver.end(END_S)
    assert done.code == 0, done.stderr
    assert job.read() == [*job.keys, *OLD]
    assert unnamed_files(table) == set()


def test_in_a_commit_whose_clean_up_is_slow(tmp_path: Path) -> None:
    """The time limit ends with the commit: the job is committed, however long the rest takes.

    What a clean-up does not remove in its own time stays, and the driver says what removes it.
    """
    table = old_table(tmp_path, "parquet")
    job = gated_job(tmp_path, "parquet")
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        lost = [table / name for name in lost_attempts(driver)]
        with hanging_store(table) as store:
            stand_in_the_commit(driver, store)
            sent_s = time.monotonic()
            driver.process.send_signal(signal.SIGTERM)
        until(lambda: not all(path.exists() for path in lost), driver.process, pause_s=0)
        driver.process.send_signal(signal.SIGSTOP)
        assert any(path.exists() for path in lost)  # so it is in the clean-up
        await_that(lambda: time.monotonic() - sent_s > GRACE_S, "the end of a commit's time")
        driver.process.send_signal(signal.SIGCONT)
        done = driver.end(END_S)
    assert done.code == 0, done.stderr
    assert done.result["state"] == "committed"
    if left := unnamed_files(table):
        assert "was abandoned; run mrflight clean" in done.stderr
        assert clean(table, "--remove") == left
    assert job.read() == [*job.keys, *OLD]
