"""A sliced partition is damaged before or after its partial aggregation, or a disk is full."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.errors import SpillError
from mrflight.result import Attempts
from mrflight.scheduler import reduce_stage
from mrflight.scheduler.reduce_stage import AggregatedOutput
from mrflight.shuffle.client.shuffle import Shuffle
from tests.support.commands.driver import write_job
from tests.support.faults import place as fault_place
from tests.support.faults.deeds import fill_disk, spilled_by
from tests.support.faults.failing_disk import flip_byte
from tests.support.faults.faulty_run import await_that
from tests.support.queries.skewed_partition import watch_slices, write_rows

pytestmark = [
    pytest.mark.runs_on_ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="prlimit"),
]

JOB = """
[job]
name = "heavy"
speculation = false
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
memory = "64 KiB"
replicas = REPLICAS
[cluster]
workers = 4
data_servers = SERVERS
heartbeat_timeout = "10 min"
spill_dir = "spill"
[reduce]
group_by = ["key"]
aggregate = { total = "sum(value)", rows = "count(*)" }
[output]
table = "out"
"""

SEED = 12

Deed = Callable[[AggregatedOutput], None]


@dataclass(frozen=True)
class Cell:
    """A fault before or after the partial aggregation, what it costs, and what is reported."""

    before: Deed | None
    after: Deed | None
    servers: int
    replicas: int
    maps: int
    reduces: int
    """Attempts of partial aggregates and of reduces."""
    says: str

    def __str__(self) -> str:
        (deed,) = {self.before, self.after} - {None}
        return f"{deed.__name__}-{self.servers}-servers-{self.replicas}-replicas"  # type: ignore[union-attr]


def damage_mapped(aggregated: AggregatedOutput) -> None:
    """Damage what the partial aggregation reads."""
    (mapped,) = aggregated.inputs
    damage(mapped.shuffle, aggregated.tasks[0].info.partition)


def damage_aggregated(aggregated: AggregatedOutput) -> None:
    """Damage what the partial aggregation has written."""
    damage(aggregated.shuffle, aggregated.tasks[0].info.partition)


def fill_disk_of_aggregated(aggregated: AggregatedOutput) -> None:
    """Fill the disk of the server that the partial aggregation writes to."""
    fill_disk(server_of(aggregated.shuffle, aggregated.tasks[0].info.partition))


def damage(shuffle: Shuffle, partition: int) -> None:
    """Flip a byte of what a partition's first server has spilled, which is all or nearly all."""
    server = server_of(shuffle, partition)

    def spilled() -> list[Path]:
        files = spilled_by(server)
        return [path for path in files if shuffle_of(path) == shuffle.id and is_of(path, partition)]

    (path,) = await_that(spilled, f"blocks of partition {partition} of {shuffle.id} on the disk")
    flip_byte(path, path.stat().st_size // 2)


def shuffle_of(path: Path) -> str:
    return path.parent.name.partition("-")[2]


def is_of(path: Path, partition: int) -> bool:
    return path.stem == str(partition)


def server_of(shuffle: Shuffle, partition: int) -> psutil.Process:
    """Return the data server that a partition is read from."""
    return fault_place.PLACE.server_at(shuffle.placement()[partition][0])


RUN_AGAIN = "2 of 2 aggregate tasks run again, as their output was lost with"
HERE = "going on at a replica, as"
WITHOUT = "going on without"
ALL_AGAIN = "all maps and reduces run again: partition 23 was lost while its slices were sent on"
MAPS_RUN_AGAIN = "4 of 4 map tasks run again, as their output was lost with"

# Without a loss there are 4 maps, 2 partial aggregates and 6 reduces.
CELLS = [
    #    before          after       servers replicas maps reduces
    Cell(None, damage_aggregated, 1, 1, 4, 11, RUN_AGAIN),
    Cell(None, damage_aggregated, 3, 2, 4, 8, HERE),
    Cell(damage_mapped, None, 1, 1, 12, 10, ALL_AGAIN),
    Cell(fill_disk_of_aggregated, None, 3, 1, 8, 10, MAPS_RUN_AGAIN),
    Cell(fill_disk_of_aggregated, None, 3, 2, 4, 8, WITHOUT),
]


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    (tmp_path / "spill").mkdir()
    return write_rows(tmp_path / "in", seed=SEED)


def watch_aggregations(
    monkeypatch: pytest.MonkeyPatch, before: Deed | None, after: Deed | None
) -> list[AggregatedOutput]:
    """Collect the partial aggregations of a job, and do the fault to the first."""
    watch_slices(monkeypatch)
    aggregations: list[AggregatedOutput] = []

    class Hit(AggregatedOutput):
        def write(
            self, note: Callable[[list[int]], str] = lambda results: f"{len(results)} done"
        ) -> list[int]:
            aggregations.append(self)
            is_first = len(aggregations) == 1
            if before and is_first:
                before(self)
            results = super().write(note)
            if after and is_first:
                after(self)
            return results

    monkeypatch.setattr(reduce_stage, "AggregatedOutput", Hit)
    return aggregations


def check_nothing_is_left(folder: Path) -> None:
    """Assert that no process of the job runs and that none of its local files is left."""
    await_that(lambda: not fault_place.PLACE.processes(""), "the end of the job's processes")
    assert not list((folder / "spill").iterdir())


def job_of(servers: int, replicas: int) -> str:
    return JOB.replace("SERVERS", str(servers)).replace("REPLICAS", str(replicas))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_job_goes_on(
    cell: Cell,
    tmp_path: Path,
    rows: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    aggregations = watch_aggregations(monkeypatch, cell.before, cell.after)
    result = mrflight.run(write_job(tmp_path, job_of(cell.servers, cell.replicas)))
    output = caplog.text + capfd.readouterr().err  # of the driver, which is this, and of workers
    assert result.attempts == Attempts(cell.maps, cell.reduces, 0), output
    assert re.search(fault_place.PLACE.message_here(cell.says), output), output
    assert len(aggregations) == 1 + (cell.says == ALL_AGAIN)
    check_nothing_is_left(tmp_path)
    parts = [Path(path) for path in DeltaTable(tmp_path / "out").file_uris()]
    assert set((tmp_path / "out").glob("*.parquet")) == set(parts)
    got = pa.concat_tables(pq.read_table(path) for path in parts)
    grouped = rows.group_by("key").aggregate([("value", "sum"), ("value", "count")])
    expected = grouped.rename_columns(["key", "total", "rows"])
    assert got.sort_by("key").cast(expected.schema) == expected.sort_by("key")


def test_a_partial_aggregation_without_room_on_any_server_fails_the_job(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_aggregations(monkeypatch, fill_disk_of_aggregated, None)
    with pytest.raises(SpillError, match=r"cannot spill .*File too large; make room") as caught:
        mrflight.run(write_job(tmp_path, job_of(servers=1, replicas=1)))
    assert any("partial aggregate of slice" in note for note in caught.value.__notes__)
    assert not list((tmp_path / "out").glob("*"))
    check_nothing_is_left(tmp_path)
