"""Results in the hands of the caller end with what reads them, and survive what is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.feather
import pytest

import mrflight
from mrflight.errors import DeadlineExceededError, JobFailedError
from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.leftovers import nothing_left_over, processes_of, tree
from tests.support.suite.messages import refused
from tests.support.suite.slack import slack
from tests.support.suite.waiting import hang_s

WIDE_ROWS = 40_000
FILES = 8
SMALL = {"cluster.workers": 2, "cluster.memory": "1 GiB"}
SPREAD = {"shuffle.partitions": FILES, "cluster.data_servers": 2}

Dataset = mrflight.Dataset


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Return 40 MB of rows in eight files, which are eight maps."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide").mkdir()
    each = WIDE_ROWS // FILES
    for file in range(FILES):
        numbers = range(file * each, (file + 1) * each)
        table = pa.table({"n": numbers, "text": [f"{n:01000d}" for n in numbers]})
        pa.feather.write_feather(table, f"wide/{file}.arrow", compression="uncompressed")
    return mrflight.read("wide").with_settings(SMALL | SPREAD)


@contextmanager
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the mark of this process's jobs, of which no process and no file may stay."""
    with nothing_left_over(tmp_path / "tmp") as environment, monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", environment["TMPDIR"])
        yield environment["MRFLIGHT_TEST_RUN"]


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch["n"].to_pylist()]


READING = """
import json, sys
from pathlib import Path
import pyarrow as pa
import mrflight

settings, spill = json.loads(sys.argv[1]), Path("spill")
found, has_spilled, most = [], False, 0
for batch in mrflight.read("wide").with_settings(settings):
    found += batch["n"].to_pylist()
    has_spilled |= any(spill.rglob("*.blocks"))
    most = max(most, pa.total_allocated_bytes())
print(json.dumps([found, has_spilled, most]))
"""


@pytest.mark.slow
def test_a_result_larger_than_the_memory_is_spilled_and_read_in_little_of_it(
    wide: Dataset, tmp_path: Path
) -> None:
    """The result has 40 MB, of which the program holds 2 to 3 MB at a time."""
    (spill := tmp_path / "spill").mkdir()
    limits = {"shuffle.memory": "1 MiB", "cluster.spill_dir": "spill"}
    command = [sys.executable, "-c", READING, json.dumps(SMALL | SPREAD | limits)]
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    found, has_spilled, most = json.loads(done.stdout)
    assert found == list(range(WIDE_ROWS))
    assert has_spilled
    assert most < 16 * 2**20
    assert tree(spill) == {}


@pytest.mark.slow
def test_a_job_ends_with_its_iteration(
    wide: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nothing_stays(tmp_path, monkeypatch) as mark:
        for batch in wide:
            assert batch.num_rows
            assert processes_of(mark)
            break
        assert processes_of(mark) == []
        with suppress(ZeroDivisionError):
            for batch in wide:
                _ = batch.num_rows // 0
        assert processes_of(mark) == []
        batches = wide.batches()
        assert next(batches).schema.names == ["n", "text"]
        assert processes_of(mark)
        batches.close()
        assert (processes_of(mark), list(batches)) == ([], [])


SCRIPT = """
import sys
import mrflight

rows = mrflight.read("wide").with_settings({"cluster.workers": 2, "cluster.memory": "1 GiB"})
batches = iter(rows)
next(batches), next(batches)
print("reading", flush=True)
HOW
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "signum", "code"),
    [
        ("", None, 0),
        pytest.param("sys.exit(3)", None, 3, marks=pytest.mark.slow),
        ("sys.stdin.read()", signal.SIGKILL, -signal.SIGKILL),
        pytest.param("sys.stdin.read()", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_job_ends_with_its_program(
    wide: Dataset, tmp_path: Path, how: str, signum: signal.Signals | None, code: int
) -> None:
    with nothing_left_over(tmp_path / "tmp") as environment:
        program = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.replace("HOW", how)],
            env={**os.environ, **environment},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "reading\n"
        if signum is not None:
            program.send_signal(signum)
        _, errors = program.communicate()
        assert program.returncode == code, errors
        assert "Exception ignored" not in errors
        if signum == signal.SIGKILL:  # the next job removes what its fork server did not
            psutil.wait_procs(processes_of(environment["MRFLIGHT_TEST_RUN"]), timeout=hang_s())


@pytest.mark.slow
def test_the_jobs_timeout_counts_while_rows_are_read(
    wide: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout_s = 6.0 * slack()

    def read_slowly() -> None:
        for _ in wide.with_settings({"job.timeout": f"{timeout_s:g} s"}):
            time.sleep(timeout_s)  # which began before there was a first batch

    with (
        nothing_stays(tmp_path, monkeypatch),
        refused(DeadlineExceededError),
    ):
        read_slowly()


@pytest.mark.slow
@pytest.mark.usefixtures("patient_drops")
def test_a_standing_cluster_keeps_nothing_of_a_result(wide: Dataset) -> None:
    with standing_cluster(2) as running, mrflight.connect(running.metadata) as client:
        rows = wide.with_settings({"cluster.metadata": running.metadata})
        with rows.batches() as batches:
            found = numbers(islice(batches, 3))
            assert len(client.status().shuffles) == 1
        assert client.status().shuffles == []
        assert found == list(range(len(found)))
        assert rows.collect()["n"].to_pylist() == list(range(WIDE_ROWS))


def data_servers(mark: str) -> list[psutil.Process]:
    return [each for each in processes_of(mark) if each.name().startswith("mrflight-data")]


@pytest.mark.parametrize(
    ("replicas", "signum", "is_sorted"),
    [
        (1, signal.SIGKILL, False),
        pytest.param(1, signal.SIGKILL, True, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGKILL, False, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGSTOP, False, marks=pytest.mark.slow),
    ],
)
def test_rows_that_are_lost_while_they_are_read_are_made_again(
    wide: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replicas: int,
    signum: signal.Signals,
    is_sorted: bool,
) -> None:
    """With one replica all servers are hit, and the maps run again; with two only one is.

    Before the result, a sort has a shuffle whose rows are lost as well.
    """
    rows = wide.sort_by("n desc") if is_sorted else wide
    rows = rows.with_settings({"shuffle.replicas": replicas})
    if signum == signal.SIGSTOP:  # of which only the silence tells
        rows = rows.with_settings({"cluster.heartbeat_timeout": f"{3 * slack():g} s"})
    with nothing_stays(tmp_path, monkeypatch) as mark, rows.batches() as batches:
        found = numbers(islice(batches, 3))
        for server in data_servers(mark)[: 2 // replicas]:
            server.send_signal(signum)
        found += numbers(batches)
    assert found == sorted(range(WIDE_ROWS), reverse=is_sorted)


def test_rows_that_cannot_be_made_again_as_they_were_are_not_mixed(
    wide: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_each_time(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("at", pa.array([time.time()] * batch.num_rows))

    rows = wide.map(other_each_time)
    with nothing_stays(tmp_path, monkeypatch) as mark, rows.batches() as batches:
        found = numbers(islice(batches, 3))
        for server in data_servers(mark):
            server.kill()
        with pytest.raises(JobFailedError, match="cannot be made again as they were"):
            found += numbers(batches)
        assert found == list(range(len(found)))
        assert list(batches) == []
