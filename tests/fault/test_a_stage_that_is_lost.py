"""A data server dies with partitions of several stages: what is needed of each is made again."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

import mrflight
from mrflight.progress import ProgressReport
from tests.support.driver import write_job
from tests.support.stages_job import FILES, JOB, JOIN_JOB, expected, joined, result_of, write_rows

SEED = 7


class KillingAServer(ProgressReport):
    """Kills a data server as a stage begins."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self.killed = 0
        self.stages: list[tuple[str, int]] = []
        self.lines: list[str] = []

    def begin(self, stage: str, tasks: int) -> None:
        self.stages.append((stage, tasks))
        if stage == self._stage and not self.killed:
            (server,) = (
                process
                for process in psutil.Process(os.getpid()).children(recursive=True)
                if process.name() == "mrflight-data1"
            )
            server.kill()
            server.wait(10)
            self.killed += 1

    def advance(self) -> None: ...

    def end(self, note: str) -> None: ...

    def tell(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("stage", ["map job.rows", "sample", "map", "reduce"])
def test_a_server_is_lost_as_a_stage_begins(
    stage: str, replicas: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "in", SEED)
    killing = KillingAServer(stage)
    monkeypatch.setattr("mrflight.api.progress_for", lambda stream: killing)
    result = mrflight.run(write_job(tmp_path, JOB.replace("REPLICAS", str(replicas))))
    assert killing.killed == 1
    assert result_of(tmp_path) == expected(rows).cast(result_of(tmp_path).schema)
    assert result.rows_in == rows.num_rows
    named = [name for name, _ in killing.stages]
    assert named == ["map sums", "map job.rows", "sample", "map", "reduce", "commit"]
    again = [line for line in killing.lines if "tasks send again" in line]
    if replicas == 2:
        assert again == []
    else:
        assert any(line.startswith(f"{FILES} of {FILES} map sums tasks") for line in again), again


@pytest.mark.parametrize("stage", ["map rows", "reduce"])
def test_a_server_is_lost_with_a_side_of_a_join(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One side reads an earlier stage, the other one files."""
    rows = write_rows(tmp_path / "in", SEED)
    killing = KillingAServer(stage)
    monkeypatch.setattr("mrflight.api.progress_for", lambda stream: killing)
    result = mrflight.run(write_job(tmp_path, JOIN_JOB.replace("REPLICAS", "1")))
    assert killing.killed == 1
    found = result_of(tmp_path)
    order = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(order) == joined(rows).cast(found.schema)
    assert result.rows_in == 2 * rows.num_rows
    again = [line for line in killing.lines if "tasks send again" in line]
    assert len(again) >= 2, again


def test_without_a_fault_every_task_has_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "in", SEED)
    told = KillingAServer("no stage")
    monkeypatch.setattr("mrflight.api.progress_for", lambda stream: told)
    result = mrflight.run(write_job(tmp_path, JOB.replace("REPLICAS", "1")))
    assert result_of(tmp_path) == expected(rows).cast(result_of(tmp_path).schema)
    maps = sum(tasks for name, tasks in told.stages if name.startswith("map"))
    assert (result.attempts.map, result.attempts.failed) == (maps, 0)
    assert told.lines == []
