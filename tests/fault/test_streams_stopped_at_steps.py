"""An ingester that is killed, or wakes up late, at any step of a batch does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.services.kafka import Kafka
from tests.support.chaos.checks import wrong_moves
from tests.support.chaos.delta import DeltaChaosTable
from tests.support.chaos.plan import Place
from tests.support.chaos.servers import ChaosServers
from tests.support.chaos.table import ChaosTable
from tests.support.chaos.tables import tables_at, write_job
from tests.support.commands.running_command import running_command
from tests.support.streams.ingest_job import INGEST, Stream, await_true, numbered
from tests.support.streams.stopped_ingest import OWN_STEPS, STEPS

EVENTS = 100
POISON = [b"poison %d" % number for number in range(8)]
PLACES = {
    "delta": Place("delta", "", "disk"),
    "iceberg": Place("iceberg", "sqlite", "disk"),
    "ducklake": Place("ducklake", "postgres", "disk"),
}
"""DuckLake's catalog is no file of SQLite here, which an open transaction locks for all others."""

CASES = [
    pytest.param(format, step, number, marks=[] if is_quick else [pytest.mark.slow])
    for format, steps in STEPS.items()
    for step in steps
    for number in (1, 3)
    for is_quick in [number == 1 and (format == "delta" or step in OWN_STEPS[format])]
]


@dataclass(frozen=True)
class Target:
    """A stream of four batches, each with two events that cannot be decoded, and its tables."""

    stream: Stream
    job: Path
    table: ChaosTable
    dead_letters: DeltaChaosTable
    environment: dict[str, str]

    def stopped(self, step: str, number: int, signum: str) -> list[str]:
        program = [sys.executable, "-m", "tests.support.streams.stopped_ingest"]
        format = str(self.table.output["format"])
        return [*program, format, step, str(number), signum, str(self.job), "--until-caught-up"]

    def ingest(self) -> None:
        """Run it to the end."""
        command = [*INGEST, str(self.job), "--until-caught-up"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
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
        yield Target(stream, job, table, dead_letters, {**os.environ, **table.environment})


@pytest.mark.parametrize(("format", "step", "number"), CASES)
def test_an_ingester_is_killed(target: Target, step: str, number: int) -> None:
    command = target.stopped(step, number, "SIGKILL")
    killed = subprocess.run(command, env=target.environment, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    target.ingest()
    target.check()


@pytest.mark.parametrize(("format", "step", "number"), CASES)
def test_an_ingester_wakes_up_when_another_has_done_its_work(
    target: Target, step: str, number: int
) -> None:
    with running_command(target.stopped(step, number, "SIGSTOP"), target.environment) as process:
        zombie = psutil.Process(process.pid)
        await_true(lambda: zombie.status() == psutil.STATUS_STOPPED, "it has come to the step")
        target.ingest()
        zombie.resume()
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
    target.check()
