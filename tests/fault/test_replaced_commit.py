"""Commits to a store whose rename is check-then-move, like HopsFS: none is lost silently.

The store is a fake (`OverwritingDisk`), the metadata server a real process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import deltalake
import pytest

from mrflight.config.identity import ClientOptions
from mrflight.errors import CommitError, CommitOverwrittenError, OutputError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.storage.delta import entry_name
from mrflight.system.deadlines import NO_DEADLINE, NO_RETRY
from tests.support.clusters.cluster import standing_cluster
from tests.support.clusters.near_cluster import near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.threads import run_threads
from tests.support.faults.overwriting_disk import HeldBackLock, Job, SleepingLock
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

WRITERS, COMMITS = 2, 8


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Every test has a table of its own there."""
    journal = tmp_path_factory.mktemp("metadata") / "journal"
    with standing_cluster(0, journal) as cluster:
        yield cluster.metadata


@pytest.fixture
def lock(metadata: str) -> CommitLock:
    return CommitLock(metadata)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def rows(table: Path) -> list[str]:
    found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(row["job"] for row in found)


def log(table: Path) -> list[str]:
    return sorted(path.name for path in (table / "_delta_log").iterdir())


def parts(table: Path) -> int:
    return len(list(table.glob("part-*")))


def test_without_a_common_fence_a_commit_is_lost_and_nobody_is_told(
    table: Path, lock: CommitLock
) -> None:
    """Each of the jobs has a metadata server of its own, so no lease keeps them apart."""
    with near_metadata(Registry(Clock(), TIMEOUT_S)) as another:
        other = Job("other", table, CommitLock(another))
        assert Job("first", table, lock).commit() == 0
        slow = Job("slow", table, lock, between=lambda: versions.append(other.commit()))
        versions: list[int] = []
        versions.append(slow.commit())
    assert versions == [1, 1]
    assert rows(table) == ["first", "slow"]


def test_with_it_the_other_waits_for_its_turn(table: Path, lock: CommitLock) -> None:
    assert Job("first", table, lock).commit() == 0
    other = Job("other", table, lock)
    versions: list[int] = []
    thread = threading.Thread(target=lambda: versions.append(other.commit()), daemon=True)

    def start_the_other() -> None:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()

    assert Job("slow", table, lock, between=start_the_other).commit() == 1
    thread.join(hang_s())
    assert versions == [2]
    assert rows(table) == ["first", "other", "slow"]


def test_many_commits_at_the_same_time_are_all_there(table: Path, lock: CommitLock) -> None:
    def commit_some(name: str) -> None:
        for number in range(COMMITS):
            Job(f"{name}{number}", table, lock).commit(number)

    run_threads([partial(commit_some, f"job{writer}-") for writer in range(WRITERS)])
    expected = [f"job{writer}-{number}" for writer in range(WRITERS) for number in range(COMMITS)]
    assert rows(table) == sorted(expected)
    assert log(table) == [f"{version:020}.json" for version in range(WRITERS * COMMITS)]
    assert parts(table) == WRITERS * COMMITS


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_run_commits_once(table: Path, lock: CommitLock, mode: str) -> None:
    Job("first", table, lock).commit()
    job = Job("again", table, lock, mode, run_id="monday")
    assert [job.commit(), Job("later", table, lock, mode, run_id="monday").commit()] == [1, 1]
    assert rows(table) == (["again", "first"] if mode == "append" else ["again"])
    assert log(table) == [f"{version:020}.json" for version in range(2)]


def test_an_overwrite_keeps_what_the_table_is(table: Path, lock: CommitLock) -> None:
    Job("first", table, lock).commit()
    before = deltalake.DeltaTable(table).metadata()
    assert Job("second", table, lock, "overwrite").commit() == 1
    after = deltalake.DeltaTable(table)
    assert (after.metadata().id, after.metadata().created_time) == (before.id, before.created_time)
    actions = [json.loads(line) for line in (table / entry_name(1)).read_text().splitlines()]
    assert sorted(key for action in actions for key in action) == [
        *("add", "commitInfo", "remove", "txn")
    ]
    assert after.history(1)[0]["operationParameters"]["mode"] == "Overwrite"


def test_who_slept_beyond_its_turn_is_told_whom_it_replaced(table: Path, metadata: str) -> None:
    sleeping = SleepingLock(metadata, lease_s=0.2)
    Job("first", table, sleeping).commit()
    other = Job("other", table, CommitLock(metadata))
    late = Job("late", table, sleeping, between=lambda: versions.append(other.commit()))
    versions: list[int] = []
    with pytest.raises(CommitOverwrittenError) as raised:
        late.commit()
    assert versions == [1]
    message = str(raised.value)
    assert "this job is committed, as version 1, and has replaced what job " in message
    assert f"job {other.id} had committed as that" in message
    assert rows(table) == ["first", "late"]
    assert parts(table) == 3  # of the one that was replaced as well
    # The next one is told too, once.
    with refused(CommitOverwrittenError) as raised:
        Job("next", table, CommitLock(metadata)).commit()
    assert parts(table) == 3
    assert Job("next", table, CommitLock(metadata)).commit() == 2


def test_who_slept_before_the_store_looked_commits_nothing_else(table: Path, metadata: str) -> None:
    """It finds the version of the other, and commits the next one."""
    Job("first", table, CommitLock(metadata)).commit()
    late = Job("late", table, SleepingLock(metadata, lease_s=0.2))
    assert Job("other", table, CommitLock(metadata)).commit() == 1
    assert late.commit() == 2
    assert rows(table) == ["first", "late", "other"]


def test_who_replaces_a_commit_that_is_not_recorded_yet_is_told(table: Path, metadata: str) -> None:
    """The other has read back its own by then, and as the holder of the lease it records first."""
    sleeping = SleepingLock(metadata, lease_s=0.2)
    Job("first", table, sleeping).commit()
    recording, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        recording.set()
        assert go_on.wait(hang_s())

    other = Job("other", table, HeldBackLock(metadata).held_back_by(hold))
    versions: list[int] = []
    thread = threading.Thread(target=lambda: versions.append(other.commit()), daemon=True)

    def between() -> None:
        thread.start()
        assert recording.wait(hang_s())

    late = Job("late", table, sleeping, between=between, after=go_on.set)
    with pytest.raises(CommitOverwrittenError) as raised:
        late.commit()
    thread.join(hang_s())
    assert f"has replaced what job {other.id} had committed as that" in str(raised.value)
    assert versions == [1]
    assert (rows(table), parts(table)) == (["first", "late"], 3)
    with pytest.raises(CommitOverwrittenError):
        Job("next", table, CommitLock(metadata)).commit()
    assert Job("next", table, CommitLock(metadata)).commit() == 2


def test_who_slept_and_replaced_nothing_records_its_commit_with_a_new_lease(
    table: Path, metadata: str
) -> None:
    sleeping = SleepingLock(metadata, lease_s=0.2)
    Job("first", table, sleeping).commit()

    def wait_for_its_end() -> None:
        with CommitLock(metadata).acquire(f"fake:/{table}", NO_DEADLINE):
            pass

    late = Job("late", table, sleeping, between=wait_for_its_end)
    assert late.commit() == 1
    (table / entry_name(1)).write_text('{"commitInfo": {"operation": "WRITE"}}\n')
    with pytest.raises(CommitOverwrittenError, match=f"which job {late.id} committed"):
        Job("next", table, CommitLock(metadata)).commit()


def test_another_programs_entry_in_the_place_of_ours_is_told(table: Path, lock: CommitLock) -> None:
    Job("first", table, lock).commit()
    theirs = json.dumps({"commitInfo": {"operation": "WRITE"}})
    ours = Job("ours", table, lock, after=lambda: write(table / entry_name(1), theirs))
    with refused(CommitOverwrittenError):
        ours.commit()
    assert parts(table) == 1


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_a_commit_that_is_replaced_later_is_told_to_the_next_one(
    table: Path, lock: CommitLock
) -> None:
    first = Job("first", table, lock)
    first.commit()
    ours = Job("ours", table, lock)
    ours.commit()
    (table / entry_name(1)).write_text('{"commitInfo": {"operation": "WRITE"}}\n')
    with pytest.raises(CommitOverwrittenError) as raised:
        Job("next", table, lock).commit()
    message = str(raised.value)
    assert f"version 1, which job {ours.id} committed, was replaced by another program" in message
    assert Job("next", table, lock).commit() == 2


def test_a_table_that_is_made_anew_alarms_nobody(table: Path, lock: CommitLock) -> None:
    for name in ("a", "b", "c"):
        Job(name, table, lock).commit()
    table.rename(table.with_name("aside"))
    for version, name in enumerate(("d", "e", "f", "g")):
        assert Job(name, table, lock).commit() == version
    assert rows(table) == ["d", "e", "f", "g"]


def test_who_finds_no_metadata_server_commits_nothing(table: Path, metadata: str) -> None:
    Job("first", table, CommitLock(metadata)).commit()
    with refused(CommitError):
        Job("second", table, CommitLock("grpc+tcp://127.0.0.1:1", ClientOptions(NO_RETRY))).commit()
    with refused(OutputError):
        Job("third", table, None).commit()  # type: ignore[arg-type]
    assert rows(table) == ["first"]
    assert parts(table) == 1
