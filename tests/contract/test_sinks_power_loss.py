"""What is left of a table if the power fails: its old version or its new one, as of each step.

A job that has said that it is committed is there. So what a commit names is synced before, with all
names, and nothing that it makes superfluous goes before that.
"""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from mrflight.errors import UnsyncedCommitError
from mrflight.storage.disk import Disk
from mrflight.storage.ducklake.interpreter import VARIABLE
from tests.services.iceberg_rest import IcebergRest
from tests.support.faults.lost_power import Call, Power, recorded, recording, restore
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused
from tests.support.suite.soak import seed
from tests.support.suite.waiting import hang_s
from tests.support.tables.outputs import NEW, Output
from tests.support.tables.random_commits import RandomCommits
from tests.support.tables.synced_commits import (
    CASES,
    REST,
    REST_URI,
    Case,
    Found,
    folder_of,
)

QUICK = [name for name, case in CASES.items() if case.is_quick]


def committed(
    calls: Path, root: Path, names: Sequence[str], program: str = "synced_commits", **given: str
) -> list[Call]:
    """Run cases below a folder, and return all that would last, call by call."""
    environment = {**os.environ, **given, **recording(calls, root)}
    command = [sys.executable, "-m", f"tests.support.tables.{program}", str(root), *names]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=hang_s()
    )
    assert done.returncode == 0, done.stderr
    return recorded(calls)


def check(case: Case, base: Path, calls: Sequence[Call], keeps_removed: bool) -> None:
    """Lose the power after each call of a case."""
    new = case.read(base)
    power, old, seen = Power(base, keeps_removed=keeps_removed), None, None
    allowed: list[Found] = []
    for number, call in enumerate(calls):
        power.apply(call)
        if call.what == "begin":
            restore(power.files(), base)
            old = case.read(base)
            allowed = [old, new]
        elif call.what == "said" and allowed:
            allowed, seen = [new], None
        if not allowed or (left := power.files()) == seen:
            continue
        restore(left, base)
        found = case.read(base)
        assert found in allowed, f"after call {number}, {call.what} of {call.path}"
        seen = left
    assert allowed == [new], "the case has said that it is committed"
    assert (old == new) == case.keeps_rows


def check_all(tmp_path: Path, names: Sequence[str], python: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    calls = committed(tmp_path / "calls", root, names, **{VARIABLE: str(python)})
    with cases() as each:
        for name in names:
            base = folder_of(root, name)
            own = [call for call in calls if call.path.is_relative_to(base)]
            kept = tmp_path / "kept"
            base.rename(kept)
            for keeps_removed in (True, False):
                with each(f"{name}, {'with' if keeps_removed else 'without'} what was removed"):
                    subprocess.run(["cp", "-a", f"{kept}/.", base], check=True)
                    check(CASES[name], base, own, keeps_removed)
            subprocess.run(["rm", "-r", kept], check=True)


def test_a_commit_that_is_not_on_the_disk_fails(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the table all the same, and its files are not removed."""
    sync = Disk.sync

    def sync_files(self: Disk, path: str) -> None:
        if path.endswith(("_delta_log", "_mrflight")):
            raise OSError(errno.EIO, "the disk does not answer")
        sync(self, path)

    monkeypatch.setattr(Disk, "sync", sync_files)
    with refused(UnsyncedCommitError) as raised:
        output.run(NEW, app_id="run 1")
    assert not raised.value.retryable  # a second sync would seem to succeed
    with pytest.raises(UnsyncedCommitError):
        output.open("append", "two", "run 1")
    monkeypatch.undo()
    assert output.open("append", "two", "run 1").was_committed()
    assert output.read() == NEW


def test_files_are_not_named_before_their_folders_are_synced(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_names = Disk.sync_names

    def fail(self: Disk, paths: Iterable[str]) -> None:
        raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr(Disk, "sync_names", fail)
    with refused(UnsyncedCommitError):
        output.run(NEW)
    monkeypatch.setattr(Disk, "sync_names", sync_names)
    assert not output.folder.exists()


@pytest.mark.slow
def test_a_table_is_readable_after_a_power_loss_at_each_step(
    tmp_path: Path, ducklake_python: Path
) -> None:
    check_all(tmp_path, QUICK, ducklake_python)


@pytest.mark.soak
def test_every_table_is_readable_after_a_power_loss_at_each_step(
    tmp_path: Path, ducklake_python: Path
) -> None:
    check_all(tmp_path, [name for name in CASES if name not in QUICK], ducklake_python)


SAMPLE, SOAKED, AT_ONCE = 3, 200, 10


def check_random_commits(tmp_path: Path, numbers: range, python: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    seeds = [str(SOAKED * seed() + number) for number in numbers]
    calls = committed(tmp_path / "calls", root, seeds, "random_commits", **{VARIABLE: str(python)})
    with cases() as each:
        for of in seeds:
            chosen, base = RandomCommits(int(of)), root / of
            with each(f"seed {of}, {chosen.kind}: {[name for name, _ in chosen.steps]}"):
                chosen.check(base, [call for call in calls if call.path.is_relative_to(base)])


@pytest.mark.slow
def test_a_table_survives_power_losses_in_random_commits(
    tmp_path: Path, ducklake_python: Path
) -> None:
    check_random_commits(tmp_path, range(SAMPLE), ducklake_python)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAKED, AT_ONCE))
def test_tables_survive_power_losses_in_many_random_commits(
    first: int, tmp_path: Path, ducklake_python: Path
) -> None:
    check_random_commits(tmp_path, range(first, first + AT_ONCE), ducklake_python)


def test_what_the_server_of_a_catalog_writes_survives_a_power_loss(
    tmp_path: Path, iceberg_rest: IcebergRest
) -> None:
    root, name = iceberg_rest.warehouse, f"rest_{secrets.token_hex(4)}"
    calls = committed(tmp_path / "calls", root, [name], **{REST_URI: iceberg_rest.uri})
    own = [call for call in calls if call.path.is_relative_to(root / name)]
    check(REST, root / name, own, keeps_removed=True)
