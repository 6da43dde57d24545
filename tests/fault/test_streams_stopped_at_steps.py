"""An ingester that is killed, or wakes up late, at any step of a batch does no harm."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import deltalake
import psutil
import pytest

from tests.services.kafka import Kafka
from tests.support.ingest_job import Stream, await_true, check_once, ingest, numbered
from tests.support.running_command import running_command
from tests.support.stopped_ingest import STEPS
from tests.support.stream_chaos_checks import clean, wrong_offsets

EVENTS = 100
POISON = [b"poison %d" % number for number in range(8)]
DEAD_LETTERS = "out/rejected"


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    """A stream of four batches, each with two events that cannot be decoded."""
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    events = numbered(1, range(EVENTS))
    for number, poison in enumerate(POISON):
        stream.produce([*events[number * 13 : (number + 1) * 13], poison])
    stream.produce(events[len(POISON) * 13 :])
    return stream


def write_job(stream: Stream) -> Path:
    return stream.write_job(
        stream=f'max_rows = 27\non_bad_row = "dead_letter"\ndead_letter = "{DEAD_LETTERS}"\n'
        'max_bad = "100 %"'
    )


def stopped(job: Path, step: str, number: int, signum: str) -> list[str]:
    program = [sys.executable, "-m", "tests.support.stopped_ingest", step, str(number), signum]
    return [*program, str(job), "--until-caught-up"]


def check(stream: Stream) -> None:
    """Check that every event and every poison is there once, and nothing else is left."""
    check_once(stream.rows(), {1: EVENTS})
    rejected = stream.folder / DEAD_LETTERS
    values = deltalake.DeltaTable(rejected).to_pyarrow_table()["value"].to_pylist()
    assert Counter(values) == Counter(POISON)
    assert wrong_offsets(stream.table, {0: EVENTS + len(POISON)}) == []
    for table in (stream.table, rejected):
        removed, left = clean(table)
        assert removed <= 2
        assert left == []


NUMBERS = [1, pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("step", STEPS)
def test_an_ingester_is_killed(stream: Stream, step: str, number: int) -> None:
    job = write_job(stream)
    killed = subprocess.run(stopped(job, step, number, "SIGKILL"), capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    last = ingest(job)
    assert last.code == 0, last.stderr
    check(stream)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("step", STEPS)
def test_an_ingester_wakes_up_when_another_has_done_its_work(
    stream: Stream, step: str, number: int
) -> None:
    job = write_job(stream)
    with running_command(stopped(job, step, number, "SIGSTOP")) as process:
        zombie = psutil.Process(process.pid)
        await_true(lambda: zombie.status() == psutil.STATUS_STOPPED, "it has come to the step")
        other = ingest(job)
        assert other.code == 0, other.stderr
        zombie.resume()
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
    check(stream)
