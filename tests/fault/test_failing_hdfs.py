"""The servers of HDFS die or hang while a job writes or reads: it commits everything or nothing."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hdfs_native
import psutil
import pytest

from mrflight.config.formats import OutputFormat
from mrflight.errors import CommitError, DeadlineExceededError, JobFailedError
from mrflight.sinks.commit import commit_guard
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.delta import commit as delta_commit
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location, locate
from mrflight.storage.part_name import PartId
from mrflight.system.deadlines import Deadline
from tests.services.hdfs import Hdfs, running_hdfs
from tests.support.faults import stepped_jobs
from tests.support.faults.failing_reads import (
    check_reads_tell,
    check_told,
    put_formats,
    reading_job,
)
from tests.support.faults.failing_reads import opened as opened_input
from tests.support.faults.lossy_proxy import Loss, LossyProxy, Then, lossy_proxy
from tests.support.faults.stepped_jobs import (
    LARGE_ROWS,
    SCHEMA,
    large_batches,
    opened,
    parts,
    remove_left,
    rows_of,
    run,
)
from tests.support.suite.waiting import hang_s
from tests.support.tables.commits import commit_and_cleanup

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

MOVE = "rename2"
"""The name node's operation that gives a log entry its name."""


@pytest.fixture(scope="module")
def hdfs(needs_hdfs: None) -> Iterator[Hdfs]:
    """Return an HDFS for these tests alone. A test that kills a server starts it again."""
    with running_hdfs(replication=2) as hdfs:
        yield hdfs


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as a job does, but for less time."""
    monkeypatch.setattr(delta_commit, "MAX_LOG_READS", 3)
    monkeypatch.setattr(commit_guard, "GRACE_S", 0.3)


@pytest.fixture
def table(hdfs: Hdfs) -> Location:
    hdfs.restart()  # who was killed by a test that failed
    return locate(hdfs.folder(), Path("/"))


def behind(table: Location, proxy: LossyProxy) -> Location:
    return locate(f"hdfs://127.0.0.1:{proxy.port}{table.path}", Path("/"))


def left_of(table: Location) -> set[str]:
    """But for the number in the name that a file has until it is closed."""
    return {re.sub(r"\.tmp\.\d+$", ".tmp", path) for path in stepped_jobs.left_of(table)}


def entry(table: Location, format: OutputFormat, number: int) -> Location:
    """Return the entry that a commit writes. A folder of files keeps only the newest one."""
    name = f"_delta_log/{number:020}.json" if format == "delta" else f"_mrflight/{number:08}.json"
    return table.child(name)


def move_to(table: Location, format: OutputFormat, number: int) -> tuple[str, str]:
    """Return the operation and the path of the request that commits."""
    return MOVE, entry(table, format, number).path


def check_run_again(table: Location, format: OutputFormat, rows: list[int]) -> None:
    """The run that brings the last of the rows commits once, and ``clean`` takes what was left."""
    for job in ("again", "and-again"):
        run(table, format, job, rows[-1], "monday")
    assert rows_of(table) == rows
    remove_left(table)
    assert left_of(table) == set()
    assert rows_of(table) == rows


@pytest.mark.parametrize(
    ("format", "number", "loss", "then"),
    [
        ("delta", 0, "answer", "goes on"),
        ("delta", 0, "answer", "is gone"),
        ("delta", 1, "request", "is gone"),
        ("csv", 0, "answer", "goes on"),
        ("csv", 0, "request", "is gone"),
    ],
)
def test_a_commit_whose_move_is_lost(
    hdfs: Hdfs, table: Location, format: OutputFormat, number: int, loss: Loss, then: Then
) -> None:
    """The answer to the commit is lost, so the job looks it up where it can, and commits once."""
    before = [1] * number
    for n in before:
        run(table, format, "old", n)
    message = ""
    with lossy_proxy(hdfs.port, move_to(table, format, number), loss, then) as proxy:
        try:
            run(behind(table, proxy), format, "new", 2, "monday")
        except CommitError as error:
            message = str(error)
        assert proxy.end() == 1
    asks_again = format == "delta" and then == "goes on"  # deltalake's client does
    has_landed = loss == "answer" or asks_again
    if has_landed:
        assert rows_of(table) == [*before, 2]
        assert left_of(table) == set()
    else:
        assert any(path.startswith("part-00000-0-20260101T000000-new") for path in left_of(table))
        assert not entry(table, format, number).info().is_file
    if then == "is gone":
        assert f"127.0.0.1:{proxy.port}{table.path}" in message
        assert "with a job.run_id it commits once in any case" in message
    else:
        assert has_landed == (message == "")
    check_run_again(table, format, [*before, 2])


def test_a_commit_of_which_nothing_is_heard(hdfs: Hdfs, table: Location) -> None:
    """It may land yet, so that its files stay. Only the wait for its outcome has a bound."""
    needles = move_to(table, "delta", 0)
    with lossy_proxy(hdfs.port, needles, "request", "hangs") as proxy:
        sink = opened(behind(table, proxy), "delta", "new", "monday")
        commit = parts(sink, 2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_guard, "MAX_WAIT_S", 0.5)
            with pytest.raises(DeadlineExceededError, match="the store does not answer the commit"):
                commit_and_cleanup(sink, commit)
        sink.abort()
    (part,) = commit.parts
    assert part.path in left_of(table)
    check_run_again(table, "delta", [2])


def write(table: Location, sink: Sink, *deeds: Callable[[], None]) -> Commit:
    """A part; the deeds are done when half of it has gone to the data nodes."""

    def half_way() -> None:
        names = [info.base_name for info in table.walk()]
        assert any(name.startswith(".part-") for name in names), names  # it is being written
        for deed in deeds:
            deed()

    return Commit(
        tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, large_batches(half_way))), SCHEMA
    )


def check_that_a_small_file_fails_at_once(table: Location) -> None:
    """To close it is tried for half a minute, also as Python collects what was to write it."""
    closed: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdfs_native.FileWriter, "close", lambda writer: closed.append(writer.inner))
        with pytest.raises(OSError, match="Connection refused"):
            table.child("small").put_if_absent(b"x")
        gc.collect()
        assert closed == []


def test_data_nodes_that_are_killed_as_parts_are_written(hdfs: Hdfs, table: Location) -> None:
    """With one of two both go on, in blocks that they began before; with none the other fails."""
    one, other = hdfs.data_nodes
    done = opened(table, "csv", "done")
    commits: list[Commit] = []
    killed = opened(table, "csv", "killed", "monday")
    with pytest.raises(JobFailedError) as raised:
        write(table, killed, lambda: commits.append(write(table, done, one.kill)), other.kill)
    killed.abort()
    assert f"{table.url}/part-00000-0-20260101T000000-killed" in str(raised.value)
    assert re.search("All nodes failed|Connection refused", str(raised.value)), raised.value
    check_that_a_small_file_fails_at_once(table)
    hdfs.restart()
    commit_and_cleanup(done, *commits)
    assert left_of(table) == set()
    assert rows_of(table) == list(range(LARGE_ROWS))
    check_run_again(table, "csv", [*range(LARGE_ROWS), LARGE_ROWS])


def test_servers_that_are_killed_are_told_by_who_reads(hdfs: Hdfs, table: Location) -> None:
    """Data nodes by their addresses, which may be what is wrong; then the name node as well."""
    inputs = put_formats(table)
    sources = [opened_input(place) for place in inputs]
    for node in hdfs.data_nodes:
        node.kill()
    why = r"All DataNodes failed: 127\.0\.0\.1:\d+(, 127\.0\.0\.1:\d+)*; "
    check_reads_tell(sources, inputs, why, r"at the addresses that the name node has for them")
    hdfs.name_node.kill()
    check_reads_tell(sources, inputs, "Connection refused", "that its name node")


def test_data_nodes_that_are_killed_in_the_middle_of_a_map(
    hdfs: Hdfs, table: Location, tmp_path: Path
) -> None:
    with reading_job(tmp_path, table, attempts=2) as job:
        for node in hdfs.data_nodes:
            node.kill()
        job.go_on()
        check_told(job, 2, f"{table.url}/", "All DataNodes failed: 127.0.0.1:")


def test_a_name_node_that_is_gone_as_a_part_is_closed(hdfs: Hdfs, table: Location) -> None:
    with lossy_proxy(
        hdfs.port, ("complete", f"{table.path}/.part-"), "request", "is gone"
    ) as proxy:
        sink = opened(behind(table, proxy), "csv", "killed", "monday")
        with pytest.raises(JobFailedError) as raised:
            parts(sink, 2)
        sink.abort()
        assert proxy.end() == 1
    assert f"{table.path}/part-00000-0-20260101T000000-killed" in str(raised.value)
    why = "Connection refused|reset by peer|disconnected"  # its end may meet another connection
    assert re.search(why, str(raised.value)), raised.value
    (left,) = left_of(table)
    assert left.startswith(".part-00000-0-20260101T000000-killed")
    assert left.endswith(".tmp")
    check_run_again(table, "csv", [2])  # as it commits, it removes what its run left


def test_a_name_node_that_stands_still_is_given_up(hdfs: Hdfs, table: Location) -> None:
    """Whatever is asked of it: the call lets the thread go on that looks at the clock."""
    file = table.child("file")
    calls: list[Callable[[], object]] = [
        lambda: DeltaTable.load(table),
        table.info,
        table.walk,
        file.read_bytes,
        file.delete_file,
        file.create,
        lambda: file.put_if_absent(b"x"),
    ]
    with unresponsive(hdfs.name_node.pid):
        for call in calls:
            with pytest.raises(DeadlineExceededError, match="while it stood still"):
                Deadline(time.monotonic() + 0.1).run(call, "it stood still")
        assert psutil.Process(hdfs.name_node.pid).status() == psutil.STATUS_STOPPED


@contextmanager
def unresponsive(pid: int) -> Iterator[None]:
    """It goes on by itself after a while, so that a test that cannot do anything fails."""
    os.kill(pid, signal.SIGSTOP)
    guard = ["sh", "-c", f"sleep {hang_s()}; kill -CONT {pid}"]
    with subprocess.Popen(guard, start_new_session=True) as process:
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGKILL)
