"""The cells of the fault matrix: a job at a moment, a fault, and what is asserted at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from deltalake import DeltaTable

from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.commands.clean_command import run_clean
from tests.support.commands.driver import DriverRun
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults import place as fault_place
from tests.support.faults.deeds import DO
from tests.support.faults.faulty_run import FaultyRun, faulty_run
from tests.support.queries.oracle import rows


@dataclass(frozen=True)
class Moment:
    """The moment at which a job is stopped for its fault, and what it has done by then."""

    map_function: str
    reduce: str
    stops: tuple[str, str]
    maps_done: int
    reduces_done: int


MOMENTS = {
    # Nothing has been sent, and no worker has connected to a data server.
    "start": Moment("narrow", faulty_job.FUNCTION, ("map 0 batch 0", "map 1 batch 0"), 0, 0),
    "map": Moment("narrow", faulty_job.AGGREGATE, ("map 3 batch 2", "map 4 batch 0"), 3, 0),
    # As "map", with the rows as they are in the blocks, where maps combine none.
    "map of rows": Moment("narrow", faulty_job.FUNCTION, ("map 3 batch 2", "map 4 batch 0"), 3, 0),
    # Maps 3 and 4 have sent blocks, and have not committed them.
    "shuffle": Moment("wide", faulty_job.FUNCTION, ("map 3 batch 4", "map 4 batch 4"), 3, 0),
    # Partitions 0 to 3 are written, 4 and 5 have been read, 6 and 7 have not.
    "reduce": Moment("narrow", faulty_job.FUNCTION, ("reduce 4", "reduce 5"), 5, 4),
    "commit": Moment("narrow", faulty_job.FUNCTION, ("reduce 6", "reduce 7"), 5, 6),
}


@dataclass(frozen=True)
class Cell:
    """One case: a fault, the process and the moment, the attempts that it costs, and a message."""

    who: str
    fault: str
    when: str
    maps: int
    reduces: int
    failed: int = 0
    says: str = ""
    """A regular expression."""
    options: tuple[str, ...] = ()
    may_restart: int = 0
    """The maps that may restart in addition, which the driver then says. It looks every 0.25 s for
    servers that were removed, and a map that uses one restarts, unless it ends before the look."""

    def __str__(self) -> str:
        return "-".join((self.fault, self.who, self.when, *self.options)).replace(" ", "-")


KILLED = (
    r"(map 3 \(rows, .*|reduce of partition \d): attempt 1 of 4 failed and is retried: "
    "a worker process ended in the middle of a task: it was killed"
)
TWICE = ("shuffle.replicas=2",)
OVER_FLIGHT = "cluster.transport=flight"
SPILLING = ("shuffle.memory=1 MiB", "inputs.rows.map=functions:wide")


def over_flight(cell: Cell) -> Cell:
    """Return the cell with blocks over Flight. Without it they are in shared memory."""
    return replace(cell, options=(*cell.options, OVER_FLIGHT))


def over_both(cell: Cell) -> tuple[Cell, Cell]:
    """Return the cell over each transport, where a reader or a writer notices the fault."""
    return cell, over_flight(cell)


def options_of(cell: Cell) -> tuple[str, ...]:
    """Return the options with which the job behaves in its place as it does on this machine."""
    return fault_place.PLACE.options_of(cell)


def check_goes_on(cell: Cell, folder: Path) -> None:
    """Run the cell's fault, and assert that the job succeeds as the cell says."""
    check(cell, done_after(cell, folder), folder)


def check_fails(cell: Cell, folder: Path) -> None:
    """Run the cell's fault, and assert that the job fails as the cell says."""
    check_failed(cell, done_after(cell, folder), folder)


def done_after(cell: Cell, folder: Path) -> DriverRun:
    """Run the job with its fault, and return its result."""
    with at_the_moment(folder, cell.when, *options_of(cell)) as (run, victims):
        hits = run.processes("worker") if cell.who == "workers" else [victims[cell.who]]
        hit(run, cell.when, lambda: [DO[cell.fault](run, victim) for victim in hits])
        return run.finish()


def check(cell: Cell, done: DriverRun, folder: Path) -> None:
    """Assert that all is as the cell says, and the table right and clean."""
    assert done.code == 0, done.stderr
    assert rows_of(folder) == faulty_job.expected_rows()
    check_attempts(cell, done)
    check_said(cell, done.stderr, done)
    assert unlisted(folder) == set()
    assert clean(folder) == ""


def check_failed(cell: Cell, done: DriverRun, folder: Path) -> None:
    """Assert that the job failed as the cell says, and left the table alone."""
    check_failure(cell, done)
    check_table_untouched(folder)


def check_failure(cell: Cell, done: DriverRun) -> None:
    assert done.code == 1, done.stderr
    assert done.result["state"] == "failed"
    check_said(cell, done.message, done)
    check_attempts(cell, done)


def check_rerun(folder: Path, cell: Cell, standing: str | None = None) -> None:
    """Assert that the job, run again, makes the table what it should be, in one version."""
    clean(folder, "--remove")
    with faulty_run(folder / "job.toml", (), standing=standing) as run:
        done = run.finish()
    check(cell, done, folder)
    assert log_entry(folder, 1).exists()
    assert not log_entry(folder, 2).exists()


def check_said(cell: Cell, text: str, done: DriverRun) -> None:
    """Assert that a text of the driver's says what the cell says."""
    assert re.search(fault_place.PLACE.message_here(cell.says), text), done.stderr


def check_attempts(cell: Cell, done: DriverRun) -> None:
    restarted = 0
    if cell.may_restart:
        restarted = sum(map(int, re.findall(r"(\d+) of \d+ map tasks restart", done.stderr)))
        assert restarted <= cell.may_restart, done.stderr
    expected = {"map": cell.maps + restarted, "reduce": cell.reduces, "failed": cell.failed}
    assert done.result["attempts"] == expected, done.stderr


def check_table_untouched(folder: Path) -> None:
    """Assert that the table is as it was, and that nothing lies beside it."""
    assert rows_of(folder) == [faulty_job.BEFORE]
    assert unlisted(folder) == set()
    assert clean(folder) == ""


def hit(run: FaultyRun, when: str, do: Callable[[], object], *, is_its_end: bool = False) -> None:
    """Call ``do`` at the moment, and let the job go on, before that or afterwards."""
    if when != "commit":
        do()
        run.go_on()
        return
    with faults.slow_commit(run.folder / "out") as let_through:
        run.go_on()
        run.has_said("rows written")
        do()
        assert not log_entry(run.folder, 1).exists()
        if not is_its_end:
            let_through()


@contextmanager
def at_the_moment(
    folder: Path,
    when: str,
    *options: str,
    later: tuple[str, ...] = (),
    standing: str | None = None,
    lease_s: float | None = None,
) -> Iterator[tuple[FaultyRun, dict[str, psutil.Process]]]:
    """Yield a job that stopped at a moment, and its processes; it stops at ``later`` as well."""
    moment = MOMENTS[when]
    job = faulty_job.write_faulty_job(folder, moment.map_function, moment.reduce)
    stops = (*moment.stops, *later)
    with faulty_run(job, stops, *options, standing=standing, lease_s=lease_s) as run:
        here = run.at(*moment.stops)
        check_moment(run, when)
        yield (
            run,
            {
                "worker": here[0],
                "driver": psutil.Process(run.driver.pid),
            }
            | (
                {}
                if standing
                else {
                    "data server": run.server_of(6),
                    "metadata server": run.processes("metadata")[0],
                }
            ),
        )


def check_moment(run: FaultyRun, when: str) -> None:
    """Assert that the job has done what it should have, and no more."""
    moment, shuffle = MOMENTS[when], run.shuffle()
    assert shuffle.maps == moment.maps_done
    if moment.reduces_done:
        assert run.read() == set(range(moment.reduces_done + 2))
    with run.connect() as cluster, Connections(run.client) as connections:
        servers = [server.location for server in cluster.status().servers]
        stored = [
            call(connections, at, DataAction.STATS, Done(), ServerStats).size_bytes
            for at in servers
        ]
    if when == "shuffle":
        assert sum(stored) > shuffle.size_bytes


def log_entry(folder: Path, version: int) -> Path:
    return folder / "out" / "_delta_log" / f"{version:020}.json"


def rows_of(folder: Path) -> list[tuple[object, ...]]:
    table = DeltaTable(folder / "out").to_pyarrow_table().select(["k", "v", "n"])
    return sorted(rows(table))


def part_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "out").glob("part-*")}


def unlisted(folder: Path) -> set[str]:
    """Files that the table's log does not name."""
    named = {Path(uri).name for uri in DeltaTable(folder / "out").file_uris()}
    return part_files(folder) - named


def clean(folder: Path, *options: str) -> str:
    """Return what ``mrflight clean`` lists."""
    done = run_clean(folder / "out", *options, "--older-than", "0 s")
    assert done.returncode == 0, done.stderr
    return done.stdout
