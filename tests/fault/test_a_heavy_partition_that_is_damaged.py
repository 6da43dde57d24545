"""A partition that several tasks share is damaged before or after its merge, or has no room."""

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
from tests.support import fault_place
from tests.support.driver import write_job
from tests.support.failing_disk import flip_byte
from tests.support.fault_deeds import fill_disk, spilled_by
from tests.support.faults import await_that
from tests.support.heavy_partition import watch_shares, write_rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit")

JOB = """
[job]
name = "heavy"
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
memory = "64 KiB"
replicas = REPLICAS
[cluster]
workers = 4
data_servers = SERVERS
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
    """What is done before the merge, or after it; what that costs in attempts, and what is said."""

    before: Deed | None
    after: Deed | None
    servers: int
    replicas: int
    maps: int
    reduces: int
    """Merges as well."""
    says: str

    def __str__(self) -> str:
        (deed,) = {self.before, self.after} - {None}
        return f"{deed.__name__}-{self.servers}-servers-{self.replicas}-replicas"  # type: ignore[union-attr]


def damage_mapped(merged: AggregatedOutput) -> None:
    """What the merge reads."""
    (mapped,) = merged.inputs
    damage(mapped.shuffle, merged.tasks[0].info.partition)


def damage_merged(merged: AggregatedOutput) -> None:
    """What came of the merge."""
    damage(merged.shuffle, merged.tasks[0].info.partition)


def fill_disk_of_merged(merged: AggregatedOutput) -> None:
    """Where the merge writes to, which spills nothing that was there before any more."""
    fill_disk(server_of(merged.shuffle, merged.tasks[0].info.partition))


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
    """This process's only job's data server that a partition is read from."""
    return fault_place.PLACE.server_at(shuffle.placement()[partition][0])


SENT_AGAIN = "2 of 2 aggregate tasks run again, as their output was lost with"
HERE = "going on at a replica, as"
WITHOUT = "going on without"
ANEW = "all maps and reduces run again: partition 23 was lost while its slices were sent on"
MAPS_AGAIN = "4 of 4 map tasks run again, as their output was lost with"

# 4 maps, 2 merges and 6 reduces, where nothing is lost.
CELLS = [
    #    before          after       servers replicas maps reduces
    Cell(None, damage_merged, 1, 1, 4, 11, SENT_AGAIN),
    Cell(None, damage_merged, 3, 2, 4, 8, HERE),
    Cell(damage_mapped, None, 1, 1, 12, 10, ANEW),
    Cell(fill_disk_of_merged, None, 3, 1, 8, 10, MAPS_AGAIN),
    Cell(fill_disk_of_merged, None, 3, 2, 4, 8, WITHOUT),
]


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    (tmp_path / "spill").mkdir()
    return write_rows(tmp_path / "in", seed=SEED)


def watch_merges(
    monkeypatch: pytest.MonkeyPatch, before: Deed | None, after: Deed | None
) -> list[AggregatedOutput]:
    """Those of a job, the first of which is hit."""
    watch_shares(monkeypatch)
    merges: list[AggregatedOutput] = []

    class Hit(AggregatedOutput):
        def write(
            self, note: Callable[[list[int]], str] = lambda results: f"{len(results)} done"
        ) -> list[int]:
            merges.append(self)
            is_first = len(merges) == 1
            if before and is_first:
                before(self)
            results = super().write(note)
            if after and is_first:
                after(self)
            return results

    monkeypatch.setattr(reduce_stage, "AggregatedOutput", Hit)
    return merges


def check_nothing_is_left(folder: Path) -> None:
    """Assert that no process of the job runs, and that none of its local files is there."""
    ours = fault_place.PLACE.processes("")
    assert psutil.wait_procs(ours, timeout=10)[1] == []
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
    merges = watch_merges(monkeypatch, cell.before, cell.after)
    result = mrflight.run(write_job(tmp_path, job_of(cell.servers, cell.replicas)))
    said = caplog.text + capfd.readouterr().err  # of the driver, which is this, and of workers
    assert result.attempts == Attempts(cell.maps, cell.reduces, 0), said
    assert re.search(fault_place.PLACE.said(cell.says), said), said
    assert len(merges) == 1 + (cell.says == ANEW)
    check_nothing_is_left(tmp_path)
    parts = [Path(path) for path in DeltaTable(tmp_path / "out").file_uris()]
    assert set((tmp_path / "out").glob("*.parquet")) == set(parts)
    got = pa.concat_tables(pq.read_table(path) for path in parts)
    grouped = rows.group_by("key").aggregate([("value", "sum"), ("value", "count")])
    expected = grouped.rename_columns(["key", "total", "rows"])
    assert got.sort_by("key").cast(expected.schema) == expected.sort_by("key")


def test_a_merge_that_has_no_room_anywhere(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_merges(monkeypatch, fill_disk_of_merged, None)
    with pytest.raises(SpillError, match=r"cannot spill .*File too large; make room") as caught:
        mrflight.run(write_job(tmp_path, job_of(servers=1, replicas=1)))
    assert any("partial aggregate of slice" in note for note in caught.value.__notes__)
    assert not list((tmp_path / "out").glob("*"))
    check_nothing_is_left(tmp_path)
