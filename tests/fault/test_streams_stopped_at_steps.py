"""An ingester that is killed, or wakes up late, at any step of a batch does no harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import mrflight as mrflight_api
from mrflight.errors import CatalogLockedError
from mrflight.streams import outage
from tests.services.kafka import Kafka
from tests.support.chaos.checks import wrong_moves
from tests.support.chaos.delta import DeltaChaosTable
from tests.support.chaos.plan import Place
from tests.support.chaos.servers import ChaosServers
from tests.support.chaos.table import ChaosTable
from tests.support.chaos.tables import tables_at, write_job
from tests.support.commands.mrflight import mrflight, started
from tests.support.streams import stopped_ingest
from tests.support.streams.ingest_job import Stream, numbered
from tests.support.streams.stopped_ingest import LOCKED, OWN_STEPS, STEPS
from tests.support.suite.waiting import await_that

ROOT = Path(__file__).parents[2]
MODULE = stopped_ingest.__name__
EVENTS = 100
POISON = [b"poison %d" % number for number in range(8)]
PLACES = {
    "delta": Place("delta", "", "disk"),
    "iceberg": Place("iceberg", "sqlite", "disk"),
    "ducklake": Place("ducklake", "postgres", "disk"),
}
"""DuckLake's catalog is no file of SQLite here, which an open transaction locks for all others."""

KILLED = [
    pytest.param(format, step, number, marks=[] if number == 1 else [pytest.mark.soak])
    for number in (1, 3)
    for format, steps in STEPS.items()
    for step in steps
]
WOKEN = [
    pytest.param(
        format,
        step,
        number,
        marks=[pytest.mark.slow if number == 1 and step in OWN_STEPS[format] else pytest.mark.soak],
    )
    for number in (1, 3)
    for format, steps in STEPS.items()
    for step in steps
]
"""What stops the commit of a format is in its own steps; the others are the same for all."""


@dataclass(frozen=True)
class Target:
    """A stream of four batches, each with two events that cannot be decoded, and its tables."""

    job: Path
    table: ChaosTable
    dead_letters: DeltaChaosTable
    environment: dict[str, str]

    def stopped(self, step: str, number: int, signum: str) -> tuple[str, ...]:
        """Return the words of `tests.support.streams.stopped_ingest`."""
        format = str(self.table.output["format"])
        return "ingest", format, step, str(number), signum, str(self.job), "--until-caught-up"

    def ingest(self) -> None:
        """Run it to the end."""
        done = mrflight("ingest", self.job, "--until-caught-up", environment=self.environment)
        assert done.returncode == 0, done.stderr

    def check(self) -> None:
        """Check that every event and every poison is there once, and nothing else is left."""
        rows = self.table.rows()
        assert sorted((row.producer, row.number) for row in rows) == [(1, n) for n in range(EVENTS)]
        assert len({(row.partition, row.offset) for row in rows}) == EVENTS
        values = self.dead_letters.load().to_pyarrow_table()["value"].to_pylist()
        assert Counter(values) == Counter(POISON)
        ends = {0: EVENTS + len(POISON)}
        assert wrong_moves(self.table.moves(), self.table.recorded(), ends) == []
        for table in (self.table, self.dead_letters):
            removed, left = table.clean()
            assert removed <= 2
            assert left == []


@pytest.fixture
def target(
    request: pytest.FixtureRequest, kafka: Kafka, format: str, tmp_path: Path
) -> Iterator[Target]:
    servers = ChaosServers(kafka)
    if format == "ducklake":
        request.getfixturevalue("needs_ducklake")
        servers = ChaosServers(kafka, postgres=request.getfixturevalue("postgres"))
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    events = numbered(1, range(EVENTS))
    for number, poison in enumerate(POISON):
        stream.produce([*events[number * 13 : (number + 1) * 13], poison])
    stream.produce(events[len(POISON) * 13 :])
    with tables_at(servers, tmp_path, PLACES[format]) as (table, dead_letters):
        job = write_job(stream, table, dead_letters, max_rows=27)
        yield Target(job, table, dead_letters, table.environment)


@pytest.mark.parametrize(("format", "step", "number"), KILLED)
def test_an_ingester_is_killed(target: Target, step: str, number: int) -> None:
    words = target.stopped(step, number, "SIGKILL")
    killed = mrflight(*words, module=MODULE, cwd=ROOT, environment=target.environment)
    assert killed.returncode == -9, killed.stderr
    target.ingest()
    target.check()


@pytest.mark.parametrize(("format", "step", "number"), WOKEN)
def test_an_ingester_wakes_up_when_another_has_done_its_work(
    target: Target, step: str, number: int
) -> None:
    words = target.stopped(step, number, "SIGSTOP")
    with started(*words, module=MODULE, cwd=ROOT, environment=target.environment) as process:
        zombie = psutil.Process(process.pid)
        await_that(lambda: zombie.status() == psutil.STATUS_STOPPED, "the step", beside=process)
        target.ingest()
        zombie.resume()
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
    target.check()


@pytest.mark.parametrize("format", ["iceberg"])
def test_an_ingester_names_the_one_that_was_stopped_in_a_transaction(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "MAX_LOCKED_S", 0.0)
    with started(*target.stopped(LOCKED, 2, "SIGSTOP"), module=MODULE, cwd=ROOT) as process:
        zombie = psutil.Process(process.pid)
        await_that(lambda: zombie.status() == psutil.STATUS_STOPPED, "the step", beside=process)
        locked = f"is locked: process {process.pid} holds its lock, and is stopped; let it go on"
        with pytest.raises(CatalogLockedError, match=locked):
            mrflight_api.ingest(
                target.job,
                {"output.catalog": "sqlite:///catalog.db?timeout=0.05"},
                until_caught_up=True,
                progress=False,
            )
        zombie.resume()
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
    target.check()
