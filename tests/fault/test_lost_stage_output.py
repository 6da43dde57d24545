"""A data server with partitions of several stages is killed: the needed output is recovered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.errors import ServerUnavailableError
from mrflight.scheduler.attempts import Attempt, StageAttempts
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from mrflight.system.progress import NO_WORK, ProgressReport, Work
from tests.support.commands.driver import write_job
from tests.support.faults import faulty_run as faults
from tests.support.faults import place as fault_place
from tests.support.jobs.stages_job import (
    FILES,
    JOB,
    JOIN_JOB,
    expected,
    joined,
    result_of,
    write_rows,
)

pytestmark = pytest.mark.runs_on_ray

SEED = 7


class KillingAServer(ProgressReport):
    """Kills a data server as a stage begins, and asks the others what they hold at the end."""

    def __init__(self, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self.killed = 0
        self.held_bytes = 0
        """The bytes on all data servers before the commit, while the job keeps its shuffles."""
        self.committed_bytes = 0
        """The bytes of committed attempts. Any others were sent without need."""
        self._metadata = ""
        self._client = ClientOptions()
        monkeypatch.setattr("mrflight.frontend.api.progress_here", lambda shown: self)
        make = JobShuffles.create

        def made(shuffles: JobShuffles, name: str, partitions: int) -> Shuffle:
            shuffle = make(shuffles, name, partitions)
            self._metadata, self._client = shuffle.metadata, shuffle.client
            return shuffle

        monkeypatch.setattr(JobShuffles, "create", made)
        self.withdrawn: Counter[str] = Counter()
        """Cancelled attempts that no worker had begun, by stage."""
        self._running: list[str] = []
        """The task sets that run, each within the one before it."""
        run, cancel_pending = StageRunner._run, StageAttempts.cancel_pending

        def running(stages: StageRunner, stage: str, *others: Any, within: bool) -> list[Any]:
            self._running.append(stage)
            try:
                return run(stages, stage, *others, within=within)
            finally:
                self._running.pop()

        def withdrawn(attempts: StageAttempts, attempt: Attempt) -> None:
            self.withdrawn[self._running[-1]] += 1
            cancel_pending(attempts, attempt)

        monkeypatch.setattr(StageRunner, "_run", running)
        monkeypatch.setattr(StageAttempts, "cancel_pending", withdrawn)
        self.stages: list[tuple[str, int]] = []
        self.lines: list[str] = []

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self.stages.append((stage, tasks))
        if stage == self._stage and not self.killed:
            faults.kill(self._second_server())
            self.killed += 1
        if stage == "commit":
            self._look()

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None: ...

    def end(self, note: str) -> None: ...

    def notify(self, line: str) -> None:
        self.lines.append(line)

    @property
    def again(self) -> set[tuple[str, int]]:
        """The stages whose tasks ran again, each with the number of these tasks."""
        found = (re.match(r"(\d+) of \d+ (.*) tasks run again", line) for line in self.lines)
        stages = [(each[2], int(each[1])) for each in found if each]
        assert len(set(stages)) == len(stages), stages
        return set(stages)

    @property
    def maps(self) -> int:
        """The number of map tasks of all stages."""
        return of_maps(self.stages)

    def check(self, result: mrflight.JobResult, again: set[tuple[str, int]], begun: int) -> None:
        """Check that these tasks ran again and no others, and that ``begun`` maps were restarted.

        A map that no worker had begun when another one noticed the loss is cancelled, and its
        attempt does not count.
        """
        assert self.again == again
        attempts = self.maps + sum(tasks for _, tasks in again) + begun
        withdrawn = of_maps(self.withdrawn.items())
        counted = result.attempts.map + withdrawn, result.attempts.failed
        assert counted == (attempts, 0), self.lines
        assert self.held_bytes == self.committed_bytes > 0

    def _connect(self) -> mrflight.Cluster:
        return mrflight.connect(self._metadata, identity=self._client.identity)

    def _second_server(self) -> psutil.Process:
        """Return a server with partitions of every shuffle that has more than one."""
        with self._connect() as cluster:
            status = cluster.status()
        return fault_place.PLACE.server_at(status.servers[1].location)

    def _look(self) -> None:
        with self._connect() as cluster, Connections(self._client) as connections:
            status = cluster.status()
            self.committed_bytes = sum(each.size_bytes for each in status.shuffles)
            for server in status.servers:
                question = connections, server.location, DataAction.STATS, Done(), ServerStats
                with suppress(ServerUnavailableError):  # of the server that was killed
                    self.held_bytes += call(*question).size_bytes


def of_maps(counts: Iterable[tuple[str, int]]) -> int:
    """Return the sum for the stages of maps."""
    return sum(count for stage, count in counts if stage.startswith("map"))


# Each map of a stage has rows for every server, so that all maps run again if one server is lost. A
# map that reads or writes while the server is killed is restarted as well.
SUMS, ROWS_OF_SUMS, SORTED = ("map sums", FILES), ("map", 1), ("map sort_by", 1)
LOST = [
    ("map", {SUMS}, 1),
    ("sample", {SUMS, ROWS_OF_SUMS}, 0),
    ("map sort_by", {SUMS, ROWS_OF_SUMS}, 1),
    ("reduce", {SUMS, ROWS_OF_SUMS, SORTED}, 0),
]
LOST_OF_A_JOIN = [
    ("map rows", {SUMS, ("map sums", 1)}, FILES),
    ("reduce", {SUMS, ("map sums", 1), ("map rows", FILES)}, 0),
]
NO_CLOCKS = {"job.speculation": False, "cluster.heartbeat_timeout": "10 min"}
"""Tasks notice what is lost, and nobody else; none gets a second attempt beside the first."""


@pytest.mark.slow
@pytest.mark.also_on_ray("reduce-2")
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stage", "again", "begun"), LOST, ids=[stage for stage, *_ in LOST])
def test_a_server_is_lost_as_a_stage_begins(
    stage: str,
    again: set[tuple[str, int]],
    begun: int,
    replicas: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = write_rows(tmp_path / "in", SEED)
    killing = KillingAServer(stage, monkeypatch)
    job = write_job(tmp_path, JOB.replace("REPLICAS", str(replicas)))
    result = mrflight.run(job, NO_CLOCKS)
    assert killing.killed == 1
    assert result_of(tmp_path) == expected(rows).cast(result_of(tmp_path).schema)
    assert result.rows_in == rows.num_rows
    named = [name for name, _ in killing.stages]
    assert named == ["map sums", "map", "sample", "map sort_by", "reduce", "commit"]
    if replicas == 2:
        assert (killing.again, result.attempts.map) == (set(), killing.maps)
    else:
        killing.check(result, again, begun)


@pytest.mark.slow
def test_a_stage_without_lost_output_does_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only partition is on the first server, and the second one is killed."""
    rows = write_rows(tmp_path / "in", SEED)
    killing = KillingAServer("reduce", monkeypatch)
    job = write_job(tmp_path, JOB.replace("REPLICAS", "1"))
    result = mrflight.run(job, {**NO_CLOCKS, "stages.sums.shuffle.partitions": 1})
    assert result_of(tmp_path) == expected(rows).cast(result_of(tmp_path).schema)
    killing.check(result, {ROWS_OF_SUMS, SORTED}, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "again", "begun"), LOST_OF_A_JOIN, ids=[stage for stage, *_ in LOST_OF_A_JOIN]
)
def test_a_server_with_a_side_of_a_join_is_lost(
    stage: str,
    again: set[tuple[str, int]],
    begun: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One side reads an earlier stage, the other one files."""
    rows = write_rows(tmp_path / "in", SEED)
    killing = KillingAServer(stage, monkeypatch)
    result = mrflight.run(write_job(tmp_path, JOIN_JOB.replace("REPLICAS", "1")), NO_CLOCKS)
    assert killing.killed == 1
    found = result_of(tmp_path)
    order = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(order) == joined(rows).cast(found.schema)
    assert result.rows_in == 2 * rows.num_rows
    killing.check(result, again, begun)


def test_without_a_fault_every_task_has_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "in", SEED)
    watching = KillingAServer("no stage", monkeypatch)
    result = mrflight.run(write_job(tmp_path, JOB.replace("REPLICAS", "1")), NO_CLOCKS)
    assert result_of(tmp_path) == expected(rows).cast(result_of(tmp_path).schema)
    assert (result.attempts.map, result.attempts.failed) == (watching.maps, 0)
    assert watching.lines == []


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reduce", "map sums"])
def test_maps_that_run_again_do_not_count_bad_rows_twice(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        rows = "".join(f"{n},{n % 7},1\n" if n % 100 else "bad\n" for n in range(20_000))
        (tmp_path / "in" / f"{file}.csv").write_text(f"key,group,value\n{rows}")
    killing = KillingAServer(stage, monkeypatch)
    monkeypatch.setattr("mrflight.planner.stage_plan._MIN_SPLIT_BYTES", 100_000)
    monkeypatch.setattr("mrflight.planner.stage_plan._PACKS_PER_WORKER", 1_000)
    text = JOB.replace("REPLICAS", "1").replace('"in/*.parquet"', '"in/*.csv"\nbad_rows = "bad"')
    result = mrflight.run(write_job(tmp_path, text), NO_CLOCKS)
    assert killing.killed == 1
    assert result.bad_rows == {"sums.rows": FILES * 200}
    assert result.rows_in == FILES * 19_800
    bad = mrflight.read_table(tmp_path / "bad")
    found = sorted(zip(bad["file"].to_pylist(), bad["line"].to_pylist(), strict=True))
    files = [str(tmp_path / "in" / f"{file}.csv") for file in range(FILES)]
    assert found == [(file, n + 2) for file in files for n in range(0, 20_000, 100)]
