"""The server of a sliced partition is killed while tasks read or aggregate the slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.planner.reduce_tasks import ReduceTaskPlan, check_slices
from mrflight.scheduler.reduce_stage import AggregatedOutput
from mrflight.system.progress import NO_WORK, ProgressReport, Work
from tests.support.commands.driver import write_job
from tests.support.faults import faulty_run as faults
from tests.support.faults import place as fault_place
from tests.support.queries.skewed_partition import FILES, ORDER, ROWS, watch_slices, write_rows

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

JOB = """
[job]
name = "heavy"
speculation = false
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
replicas = REPLICAS
[cluster]
workers = 4
data_servers = 3
heartbeat_timeout = "10 min"
[output]
table = "out"
"""

GROUPS = """
[reduce]
group_by = ["key"]
aggregate = { total = "sum(value)", rows = "count(*)" }
"""

JOIN = """
[inputs.others]
path = "others.parquet"
key = ["key"]
broadcast = false
[reduce]
join = "full"
"""

SEED = 12


ALL = -1
"""All tasks of a stage."""


class Killing(ProgressReport):
    """Kills the server of the first slice when a stage has come so far.

    Until then other workers are held up: otherwise all tasks might have read their rows.
    """

    def __init__(self, stage: str, after: int, slices: list[ReduceTaskPlan]) -> None:
        self._stage, self._after, self._slices = stage, after, slices
        self._now = ""
        self._held: list[psutil.Process] = []
        self.killed: list[str] = []
        self.lines: list[str] = []

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._now = stage
        self._done = 0
        if stage == self._stage and not self.killed:
            if self._after == ALL:
                self._after = tasks
            workers = fault_place.PLACE.processes("worker")
            self._held = workers[: max(min(tasks, len(workers)) - self._after, 0)]
            for worker in self._held:
                faults.stop(worker)
        self._look()

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        self._done += 1
        self._look()

    def end(self, note: str) -> None:
        pass

    def notify(self, line: str) -> None:
        self.lines.append(line)

    def _look(self) -> None:
        if self.killed or (self._now, self._done) != (self._stage, self._after):
            return
        location = self._slices[0].partition.infos[0].locations[0]
        kill(location)
        self.killed.append(location)
        for worker in self._held:
            worker.resume()


def kill(location: str) -> None:
    """Kill the data server at a location."""
    faults.kill(fault_place.PLACE.server_at(location))


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[ReduceTaskPlan]:
    return watch_slices(monkeypatch)


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    return write_rows(tmp_path / "in", seed=SEED)


def run(
    folder: Path,
    job: str,
    killing: Killing,
    monkeypatch: pytest.MonkeyPatch,
    rows_in: int = FILES * ROWS,
) -> pa.Table:
    monkeypatch.setattr("mrflight.frontend.api.progress_here", lambda shown: killing)
    result = mrflight.run(write_job(folder, job))
    assert killing.killed, "the fault did not hit"
    assert result.rows_in == rows_in
    table = DeltaTable(folder / "out")
    assert table.version() == 0
    parts = {Path(path).name: path for path in table.file_uris()}
    assert {path.name for path in (folder / "out").glob("*.parquet")} == parts.keys()
    return pa.concat_tables(pq.read_table(path) for path in parts.values())


@pytest.mark.parametrize(("after", "replicas"), [(0, 1), (1, 1), (ALL, 1), (1, 2)])
def test_rows_that_are_read_in_slices(
    replicas: int,
    after: int,
    tmp_path: Path,
    rows: pa.Table,
    slices: list[ReduceTaskPlan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killing = Killing("reduce", after, slices)
    job = JOB.replace("REPLICAS", str(replicas))
    assert run(tmp_path, job, killing, monkeypatch).sort_by(ORDER) == rows.sort_by(ORDER)
    has_run_again = any("run again, as their output" in line for line in killing.lines)
    assert has_run_again == (replicas == 1 and after != ALL)


@pytest.mark.parametrize(
    ("stage", "after", "replicas"),
    [("aggregate", 0, 2), ("aggregate", 1, 1), ("reduce", 0, 1), ("reduce", 0, 2)],
)
def test_groups_that_are_aggregated_in_slices(
    replicas: int,
    stage: str,
    after: int,
    tmp_path: Path,
    rows: pa.Table,
    slices: list[ReduceTaskPlan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killing = Killing(stage, after, slices)
    job = JOB.replace("REPLICAS", str(replicas)) + GROUPS
    got = run(tmp_path, job, killing, monkeypatch)
    grouped = rows.group_by("key").aggregate([("value", "sum"), ("value", "count")])
    expected = grouped.rename_columns(["key", "total", "rows"])
    assert got.sort_by("key").cast(expected.schema) == expected.sort_by("key")


@pytest.mark.parametrize(("after", "replicas"), [(0, 2), (1, 1)])
def test_rows_that_are_joined_in_slices(
    replicas: int,
    after: int,
    tmp_path: Path,
    rows: pa.Table,
    slices: list[ReduceTaskPlan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unmatched rows are made by one more task, which reads the whole partition."""
    keys = [7, 7, *range(8, FILES * ROWS, 3), *range(-1000, 0)]
    others = pa.table({"key": keys, "name": [f"name {number}" for number in range(len(keys))]})
    pq.write_table(others, tmp_path / "others.parquet")
    killing = Killing("reduce", after, slices)
    job = JOB.replace("REPLICAS", str(replicas)) + JOIN
    got = run(tmp_path, job, killing, monkeypatch, len(rows) + len(others))
    assert [each.partition_slice for each in slices].count(None) == 1  # the first task to begin
    expected = rows.join(others, "key", join_type="full outer")
    order = [*ORDER, ("name", "ascending")]
    assert got.sort_by(order) == expected.select(got.column_names).sort_by(order)


class LosingAnotherServer(AggregatedOutput):
    """Loses a server without a slice as its tasks start, and recovers from that at once."""

    killed: list[str] = []  # noqa: RUF012

    def write(
        self, note: Callable[[list[int]], str] = lambda results: f"{len(results)} done"
    ) -> list[int]:
        (mapped,) = self.inputs
        home = self.tasks[0].info.locations
        other = next(at for at in mapped.shuffle.placement() if at != home)[0]
        kill(other)
        self.killed.append(other)
        for produced in (mapped, self):
            produced.shuffle.report_loss(other, insists=True)
        mapped.repair()
        return super().write(note)


def test_reduces_use_the_output_that_was_repaired_during_the_partial_aggregation(
    tmp_path: Path,
    rows: pa.Table,
    slices: list[ReduceTaskPlan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mrflight.scheduler.reduce_stage.AggregatedOutput", LosingAnotherServer)
    job = JOB.replace("REPLICAS", "1") + GROUPS
    result = mrflight.run(write_job(tmp_path, job))
    assert len(LosingAnotherServer.killed) == 1
    assert result.attempts.failed == 0
    assert result.rows_out == len(rows["key"].unique())


@pytest.mark.parametrize("groups", ["", GROUPS], ids=["rows", "groups"])
def test_if_slices_miss_rows_all_stages_run_again(
    groups: str,
    tmp_path: Path,
    rows: pa.Table,
    slices: list[ReduceTaskPlan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No server knows what others were asked for: only the sum of all slices shows the loss."""
    checked = 0

    def miss_rows(read: Sequence[tuple[ReduceTaskPlan, int]]) -> None:
        nonlocal checked
        checked += 1
        missing = 1 if checked == 1 else 0
        check_slices([(slice_, count - missing) for slice_, count in read])

    monkeypatch.setattr("mrflight.scheduler.reduce_stage.check_slices", miss_rows)
    job = JOB.replace("REPLICAS", "1") + groups
    result = mrflight.run(write_job(tmp_path, job))
    assert checked == (3 if groups else 2)  # groups are checked twice: slices, and then reduces
    assert slices
    assert "all maps and reduces run again" in capsys.readouterr().err
    expected = len(rows["key"].unique()) if groups else len(rows)
    assert result.rows_out == expected
