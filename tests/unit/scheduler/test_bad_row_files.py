"""The clean-up of files of bad rows: only the job's own files go, and what stays is said."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mrflight.scheduler.bad_row_files import BadRowFiles
from mrflight.sinks.orphan_bad_rows import find_orphan_bad_rows
from mrflight.sinks.orphan_files import OrphanFiles
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.storage import Location, locate
from mrflight.storage.bad_rows_name import bad_rows_name, mark_name

JOB = "20261124T122123-513bd5106947"
OTHER = "20261124T122123-513bd5106948"


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return locate("bad", tmp_path)


def put(folder: Location, *names: str) -> None:
    for name in names:
        with folder.child(name).create() as out:
            out.write(b"{}")


def test_only_files_of_other_attempts_of_the_job_are_removed(folder: Location) -> None:
    counted = bad_rows_name(0, 1, JOB), bad_rows_name(123_456, 0, f"{JOB}-1-sums-0")
    others = "notes.txt", "bad-0-0-x.jsonl", bad_rows_name(0, 0, OTHER), f"bad-00000-0-{JOB}.csv"
    put(folder, *others)
    files = BadRowFiles([BadRowPolicy("visits", folder), BadRowPolicy("users")], JOB)
    files.begin()
    put(folder, *counted, bad_rows_name(0, 0, JOB), bad_rows_name(1, 0, f"{JOB}-sums"))
    files.counted = {"visits": [counted[0]], "users": [counted[1]]}
    files.commit_begins()
    files.keep()
    files.clean_up()
    assert set(os.listdir(folder.path)) == {*counted, *others}


def test_a_job_without_success_leaves_nothing(folder: Location) -> None:
    files = BadRowFiles([BadRowPolicy("visits", folder)], JOB)
    files.begin()
    put(folder, bad_rows_name(0, 0, JOB))
    files.counted = {"visits": [bad_rows_name(0, 0, JOB)]}
    files.clean_up()
    assert not os.path.exists(folder.path)


def test_a_job_that_may_be_committed_yet_leaves_its_mark(folder: Location) -> None:
    counted = bad_rows_name(0, 1, JOB)
    files = BadRowFiles([BadRowPolicy("visits", folder)], JOB)
    files.begin()
    put(folder, counted, bad_rows_name(0, 0, JOB))
    files.counted = {"visits": [counted]}
    files.commit_begins()
    files.keep(is_undecided=True)
    files.clean_up()
    assert set(os.listdir(folder.path)) == {counted, mark_name(JOB)}
    orphans = find_orphan_bad_rows(folder, datetime.now(UTC) + timedelta(days=1))
    assert orphans is not None
    assert [file.path for file in orphans.files] == [mark_name(JOB)]
    assert orphans.undecided == (counted,)


def test_without_a_mark_nothing_is_an_orphan(folder: Location) -> None:
    put(folder, bad_rows_name(0, 0, JOB), bad_rows_name(0, 0, OTHER), mark_name(OTHER), "notes.txt")
    assert find_orphan_bad_rows(folder, datetime.now(UTC) - timedelta(days=1)) == OrphanFiles(
        (), 2, is_proven=True
    )
    folder.child(mark_name(OTHER)).delete_file()
    later = datetime.now(UTC) + timedelta(days=1)
    assert find_orphan_bad_rows(folder, later) == OrphanFiles((), 0, is_proven=True)
    assert find_orphan_bad_rows(folder.child("none"), later) is None


def test_a_mark_of_a_part_of_an_id_is_none(folder: Location) -> None:
    """It would be of all jobs that began in that second."""
    part = [mark_name(JOB[:length]) for length in (15, 16, len(JOB) - 1)]
    put(folder, bad_rows_name(0, 0, JOB), bad_rows_name(0, 0, f"{JOB}-sums"), *part)
    later = datetime.now(UTC) + timedelta(days=1)
    assert find_orphan_bad_rows(folder, later) == OrphanFiles((), 0, is_proven=True)


def test_files_that_cannot_be_removed_are_named(
    folder: Location, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BadRowFiles([BadRowPolicy("visits", folder)], JOB)
    files.begin()
    put(folder, bad_rows_name(0, 0, JOB))

    def refuse(location: Location, below: Location | None = None) -> None:
        raise PermissionError(location.path)

    monkeypatch.setattr(Location, "delete_file", refuse)
    files.clean_up()
    assert caplog.messages == [
        f"{folder.url}: these files could not be removed, and may repeat rows of others; remove "
        f"them, or let mrflight clean do it: {bad_rows_name(0, 0, JOB)}"
    ]
    assert set(os.listdir(folder.path)) == {bad_rows_name(0, 0, JOB), mark_name(JOB)}
