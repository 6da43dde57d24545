"""The server of a partition that several tasks share dies while they read or merge it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight import reduce_stage
from mrflight.progress import ProgressReport
from mrflight.reduce_plan import PlannedReduce, plan_shares
from tests.support.driver import write_job

FILES = 4
ROWS = 150_000  # of each file: more than the first look of a map's combiner

JOB = """
[job]
name = "heavy"
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
replicas = REPLICAS
[cluster]
workers = 4
data_servers = 3
[output]
table = "out"
"""

GROUPS = """
[reduce]
group_by = ["key"]
aggregate = { total = "sum(value)", rows = "count(*)" }
"""

SEED = 12


class Killing(ProgressReport):
    """Kills the server of the first share when a stage has come so far."""

    def __init__(self, stage: str, after: int, shares: list[PlannedReduce]) -> None:
        self._stage, self._after, self._shares = stage, after, shares
        self._now = ""
        self.killed: list[str] = []
        self.lines: list[str] = []

    def begin(self, stage: str, tasks: int) -> None:
        self._now = stage
        self._done = 0
        self._look()

    def advance(self) -> None:
        self._done += 1
        self._look()

    def end(self, note: str) -> None:
        pass

    def tell(self, line: str) -> None:
        self.lines.append(line)

    def _look(self) -> None:
        if self.killed or (self._now, self._done) != (self._stage, self._after):
            return
        name = Path(self._shares[0].partition.locations[0]).stem
        (server,) = [
            process
            for process in psutil.Process(os.getpid()).children(recursive=True)
            if process.name() == f"mrflight-{name}"
        ]
        server.kill()
        server.wait(10)
        self.killed.append(name)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[PlannedReduce]:
    """What is shared, of small partitions as well."""
    found: list[PlannedReduce] = []

    def plan(*arguments: object) -> list[PlannedReduce]:
        planned = partial(plan_shares, least_bytes=10_000)(*arguments)  # type: ignore[arg-type]
        found.extend(planned)
        return planned

    monkeypatch.setattr(reduce_stage, "plan_shares", plan)
    monkeypatch.setattr("mrflight.plan.AUTO_PARTITION_BYTES", 600_000)
    return found


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    """A fifth of the rows have key 7, which is too few to be combined; the others one each."""
    (tmp_path / "in").mkdir()
    random = np.random.default_rng(SEED)
    tables = []
    for file in range(FILES):
        key = random.permutation(ROWS) + file * ROWS + 8
        key[random.random(ROWS) < 0.2] = 7
        tables.append(pa.table({"key": key, "value": np.arange(ROWS) + file * ROWS}))
        pq.write_table(tables[-1], tmp_path / f"in/{file}.parquet")
    return pa.concat_tables(tables)


def run(folder: Path, job: str, killing: Killing, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    monkeypatch.setattr("mrflight.api.progress_for", lambda stream: killing)
    result = mrflight.run(write_job(folder, job))
    assert killing.killed, "the fault did not hit"
    assert result.rows_in == FILES * ROWS
    table = DeltaTable(folder / "out")
    assert table.version() == 0
    parts = {Path(path).name: path for path in table.file_uris()}
    assert {path.name for path in (folder / "out").glob("*.parquet")} == parts.keys()
    return pa.concat_tables(pq.read_table(path) for path in parts.values())


ORDER = [("key", "ascending"), ("value", "ascending")]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("after", [0, 1])
def test_rows_that_are_read_in_shares(
    replicas: int,
    after: int,
    tmp_path: Path,
    rows: pa.Table,
    shares: list[PlannedReduce],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killing = Killing("reduce", after, shares)
    job = JOB.replace("REPLICAS", str(replicas))
    assert run(tmp_path, job, killing, monkeypatch).sort_by(ORDER) == rows.sort_by(ORDER)
    assert any("send again" in line for line in killing.lines) == (replicas == 1)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("stage", "after"), [("merge", 0), ("merge", 1), ("reduce", 0)])
def test_groups_that_are_merged(
    replicas: int,
    stage: str,
    after: int,
    tmp_path: Path,
    rows: pa.Table,
    shares: list[PlannedReduce],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killing = Killing(stage, after, shares)
    job = JOB.replace("REPLICAS", str(replicas)) + GROUPS
    got = run(tmp_path, job, killing, monkeypatch)
    grouped = rows.group_by("key").aggregate([("value", "sum"), ("value", "count")])
    expected = grouped.rename_columns(["key", "total", "rows"])
    assert got.sort_by("key").cast(expected.schema) == expected.sort_by("key")
