"""The cells of the fault matrix: a job at a moment, a fault, and what is asserted at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from deltalake import DeltaTable
from msgspec.structs import asdict

from mrflight.result import Attempts
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.commands.clean_command import run_clean
from tests.support.commands.driver import DriverRun
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults import place as fault_place
from tests.support.faults.attempt_log import AttemptLog
from tests.support.faults.deeds import DO
from tests.support.faults.faulty_run import BLIND, FaultyRun, faulty_run
from tests.support.faults.stopped_driver import Plan
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


BEGINNING = {"map done": faulty_job.FILES, "reduce done": faulty_job.PARTITIONS}
"""The attempts of a job that goes on without a fault: see `AttemptLog.reasons`."""


@dataclass(frozen=True)
class Cell:
    """One case: a fault, the process and the moment, the attempts that it costs, and a message."""

    who: str
    fault: str
    when: str
    costs: Mapping[str, int] | Attempts = field(default_factory=dict)
    """The attempts by their reasons, in addition to those without a fault. Those of a run of all
    stages that ends early, as the job fails or runs all again, are only known together."""
    says: str = ""
    """A regular expression."""
    options: tuple[str, ...] = ()
    first: Callable[[FaultyRun], object] | None = None
    """What is awaited between the deed and the end of the places where the job stands: the driver
    is the first to notice."""
    last: Callable[[FaultyRun], object] | None = None
    """What is awaited, after the job goes on, before the driver sees that a server is gone: tasks
    are the first to notice."""

    def __str__(self) -> str:
        who_notices = [name for name in ("first", "last") if getattr(self, name) is not None]
        parts = (self.fault, self.who, self.when, *self.options, *map(NOTICES.get, who_notices))
        return "-".join(map(str, parts)).replace(" ", "-")

    @property
    def attempts(self) -> dict[str, int]:
        """All attempts by their reasons."""
        assert not isinstance(self.costs, Attempts)
        return dict(Counter(BEGINNING) + Counter(self.costs))


NOTICES = {"first": "driver notices", "last": "tasks notice"}

KILLED = (
    r"(map 3 \(rows, .*|reduce of partition \d): attempt 1 of 4 failed and is retried: "
    "a worker process ended in the middle of a task: it was killed"
)
TWICE = ("shuffle.replicas=2",)
OVER_FLIGHT = "cluster.transport=flight"
SPILLING = ("shuffle.memory=1 MiB", "inputs.rows.map=functions:wide")


def driver_says(text: str) -> Callable[[FaultyRun], object]:
    """Return what waits until the driver has said this."""
    return lambda run: run.has_said(text)


def maps_end(run: FaultyRun) -> None:
    """Wait until the driver knows that the maps are done at which the job stood."""
    run.await_done("map 3")
    run.await_done("map 4")


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
    plan = None if cell.last is None else Plan(blind_while=str(folder / BLIND))
    with at_the_moment(folder, cell.when, *options_of(cell), plan=plan) as (run, victims):
        hits = run.processes("worker") if cell.who == "workers" else [victims[cell.who]]

        def do() -> None:
            for victim in hits:
                DO[cell.fault](run, victim)
            if cell.first is not None:
                cell.first(run)

        hit(run, cell.when, do)
        if cell.last is not None:
            cell.last(run)
            run.see()
        return run.finish()


def check(cell: Cell, done: DriverRun, folder: Path) -> None:
    """Assert that all is as the cell says, and the table right and clean."""
    assert done.code == 0, done.stderr
    assert rows_of(folder) == faulty_job.expected_rows()
    if isinstance(cell.costs, Attempts):
        assert done.result["attempts"] == asdict(cell.costs), done.stderr
    else:
        log = AttemptLog(folder, done.result["job_id"])
        assert log.reasons() == cell.attempts, done.stderr
        assert done.result["attempts"] == asdict(log.total())
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
    assert isinstance(cell.costs, Attempts)
    assert done.result["attempts"] == asdict(cell.costs), done.stderr


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
    plan: Plan | None = None,
) -> Iterator[tuple[FaultyRun, dict[str, psutil.Process]]]:
    """Yield a job that stopped at a moment, and its processes; it stops at ``later`` as well."""
    moment = MOMENTS[when]
    job = faulty_job.write_faulty_job(folder, moment.map_function, moment.reduce)
    stops = (*moment.stops, *later)
    with faulty_run(job, stops, *options, standing=standing, plan=plan) as run:
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
