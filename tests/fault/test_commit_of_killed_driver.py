"""A driver is killed around its commit; a rerun with its run_id leaves one commit."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.commands.driver import drive
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.gated_job import (
    KILLED_BY_A_LONG_FILE,
    OLD,
    PARTITIONS,
    GatedDriver,
    GatedJob,
    clean,
    commits_of,
    gated_job,
    kill_at_file_size,
    lost_attempts,
    newest,
    old_table,
    unnamed_files,
    until,
)

pytestmark = pytest.mark.slow

RUN = "2026-11-20"
APP = f"mrflight/gated/{RUN}"


def kill(driver: GatedDriver, number: signal.Signals = signal.SIGKILL) -> None:
    driver.process.send_signal(number)
    assert driver.end().code == -signal.SIGKILL


def at_the_gate(driver: GatedDriver) -> None:
    driver.wait_for_parts()
    kill(driver)
    assert not list(driver.job.table.glob("_*"))  # neither a log nor a manifest


def in_the_log_entry(driver: GatedDriver) -> None:
    """The kernel kills it as it writes the 65th byte of the log entry, or of the manifest."""
    kill_at_file_size(driver, 64)
    staged = r"_delta_log/0{20}\.json#1|_mrflight/0{8}\.json\.[0-9a-f]{8}\.tmp"
    (half,) = (name for name in unnamed_files(driver.job.table) if re.fullmatch(staged, name))
    assert (driver.job.table / half).stat().st_size == 64


def after_the_log_entry(driver: GatedDriver) -> None:
    before = newest(driver.job.table)
    driver.open_gate()
    until(lambda: newest(driver.job.table) != before, driver.process, pause_s=0)
    kill(driver)


def among_the_leftovers(driver: GatedDriver) -> None:
    table = driver.job.table
    lost = lost_attempts(driver)
    driver.open_gate()
    seen = [table / name for name in lost[:: len(lost) // 5]]
    until(lambda: not all(path.exists() for path in seen), driver.process, pause_s=0)
    kill(driver)
    left = [name for name in lost if (table / name).exists()]
    assert 0 < len(left) < len(lost)
    assert set(left) <= unnamed_files(table)  # a twin of the task at the gate may have lost too


@pytest.mark.parametrize("fault", [at_the_gate, in_the_log_entry])
def test_a_kill_before_the_commit_of_a_new_table(
    tmp_path: Path, format: OutputFormat, fault: Callable[[GatedDriver], None]
) -> None:
    job = gated_job(tmp_path, format, run_id=RUN)
    command = KILLED_BY_A_LONG_FILE if fault is in_the_log_entry else ()
    with nothing_left_over(job.folder / "tmp"), job.gated(command=command) as driver:
        fault(driver)
    left = unnamed_files(job.table)
    # One reduce waits at the gate. In the other case it and a speculative attempt may have ended.
    parts = [name for name in left if name.startswith("part-")]
    assert PARTITIONS - 1 <= len(parts) <= PARTITIONS + 1
    again = drive(job.path)
    assert again.code == 0, again.stderr
    assert again.result["rows_out"] == len(job.keys)
    assert_committed_once(job, list(job.keys))
    before = tree(job.table)
    assert drive(job.path).code == 0  # and not another time
    assert tree(job.table) == before
    # A reader of a plain folder takes every file in it, so the rerun removed what was left there.
    expected = left if format == "delta" else set()
    assert_cleaned(job, expected)


@pytest.mark.parametrize("fault", [after_the_log_entry, among_the_leftovers])
def test_a_kill_after_the_commit_to_an_existing_table(
    tmp_path: Path, format: OutputFormat, fault: Callable[[GatedDriver], None]
) -> None:
    old_table(tmp_path, format)
    job = gated_job(tmp_path, format, run_id=RUN)
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        fault(driver)
    left = unnamed_files(job.table)
    again = drive(job.path)
    assert again.code == 0, again.stderr
    assert "is already committed" in again.stderr
    assert again.result["version"] == (1 if format == "delta" else None)
    assert_committed_once(job, [*job.keys, *OLD])
    assert_cleaned(job, left if format == "delta" else set())


def test_a_kill_in_a_merge_leaves_no_temporary_log(tmp_path: Path) -> None:
    """The driver writes a log of its own to learn which files of the table it can remove."""
    old_table(tmp_path, "delta")
    job = gated_job(tmp_path, "delta", "merge", run_id=RUN)
    merge = ("--set", 'output.keys=["k"]')
    with nothing_left_over(job.folder / "tmp"):
        with job.gated(*merge, command=KILLED_BY_A_LONG_FILE) as driver:
            driver.wait_for_parts()
            kill_at_file_size(driver, 128)  # the mark in the lock file of a scratch folder fits
        assert list((job.folder / "tmp").glob("mrflight-log-*"))
        again = drive(job.path, *merge, environment=job.environment())
        assert again.code == 0, again.stderr
    assert_committed_once(job, [*job.keys, *OLD])


def assert_committed_once(job: GatedJob, keys: list[int]) -> None:
    assert commits_of(job.table, APP) == 1
    assert job.read() == keys


def assert_cleaned(job: GatedJob, expected: set[str]) -> None:
    """``mrflight clean`` lists what is left and only that, removes it, and the rows stay."""
    keys = job.read()
    assert unnamed_files(job.table) == expected
    assert clean(job.table) == expected
    assert clean(job.table, "--remove") == expected
    assert unnamed_files(job.table) == set()
    assert job.read() == keys
