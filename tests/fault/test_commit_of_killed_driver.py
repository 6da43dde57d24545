"""A driver is killed around its commit; a rerun with its run_id leaves one commit.

It kills itself at a step, or the kernel does, so that it is where the test says.
"""

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
    LOST,
    OLD,
    OTHERS,
    PARTITIONS,
    GatedDriver,
    GatedJob,
    clean,
    commits_of,
    gated_job,
    kill_at_file_size,
    lost_attempts,
    old_table,
    unnamed_files,
)
from tests.support.faults.stopped_driver import Deed, Plan

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

RUN = "2026-11-20"
APP = f"mrflight/gated/{RUN}"


def at_the_gate(driver: GatedDriver) -> int:
    driver.wait_for_parts()
    driver.process.send_signal(signal.SIGKILL)
    assert driver.end().code == -signal.SIGKILL
    assert not list(driver.job.table.glob("_*"))  # neither a log nor a manifest
    return OTHERS


def in_the_log_entry(driver: GatedDriver) -> int:
    """The kernel kills it as it writes the 65th byte of the log entry, or of the manifest."""
    kill_at_file_size(driver, 64)
    staged = r"_delta_log/0{20}\.json#1|_mrflight/0{8}\.json\.[0-9a-f]{8}\.tmp"
    (half,) = (name for name in unnamed_files(driver.job.table) if re.fullmatch(staged, name))
    assert (driver.job.table / half).stat().st_size == 64
    return PARTITIONS


@pytest.mark.parametrize("fault", [at_the_gate, in_the_log_entry])
def test_a_kill_before_the_commit_of_a_new_table(
    tmp_path: Path, format: OutputFormat, fault: Callable[[GatedDriver], int]
) -> None:
    job = gated_job(tmp_path, format, run_id=RUN)
    plan = Plan(dies_of_long_files=True)
    with nothing_left_over(job.folder / "tmp"), job.gated(plan=plan) as driver:
        written = fault(driver)
    left = unnamed_files(job.table)
    assert len([name for name in left if name.startswith("part-")]) == written
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


@pytest.mark.parametrize(
    ("deed", "lost"),
    [
        (Deed("entry is written", "SIGKILL"), LOST),
        (Deed("entry is there", "SIGKILL"), LOST),
        (Deed("a file is removed", "SIGKILL", number=2), LOST - 2),
        (Deed("files are cleaned up", "SIGKILL"), 0),
    ],
    ids=lambda value: value.step if isinstance(value, Deed) else str(value),
)
def test_a_kill_in_the_commit_to_an_existing_table(
    tmp_path: Path, format: OutputFormat, deed: Deed, lost: int
) -> None:
    old_table(tmp_path, format)
    job = gated_job(tmp_path, format, run_id=RUN)
    with nothing_left_over(job.folder / "tmp"), job.gated(plan=Plan((deed,))) as driver:
        names = lost_attempts(driver)
        driver.open_gate()
        assert driver.end().code == -signal.SIGKILL
    left = unnamed_files(job.table)
    assert len(left & set(names)) == lost
    is_committed = deed.step != "entry is written"
    assert len(left) == lost + (0 if is_committed else PARTITIONS)
    again = drive(job.path)
    assert again.code == 0, again.stderr
    assert ("is already committed" in again.stderr) == is_committed
    assert again.result["version"] == (1 if format == "delta" else None)
    assert_committed_once(job, [*job.keys, *OLD])
    assert_cleaned(job, left if format == "delta" else set())


def test_a_kill_in_a_merge_leaves_no_temporary_log(tmp_path: Path) -> None:
    """The driver writes a log of its own to learn which files of the table it can remove."""
    old_table(tmp_path, "delta")
    job = gated_job(tmp_path, "delta", "merge", run_id=RUN)
    merge = ("--set", 'output.keys=["k"]')
    with nothing_left_over(job.folder / "tmp"):
        with job.gated(*merge, plan=Plan(dies_of_long_files=True)) as driver:
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
