"""Group commit: one sync for many batches, in order, and each batch once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pytest

from mrflight.errors import (
    EventLogWriteError,
    MrflightError,
    ProducerSequenceError,
    SchemaMismatchError,
    ServerUnavailableError,
)
from mrflight.shuffle.log.durable_log import SEGMENT_BYTES, DurableLog
from mrflight.shuffle.log.frame import Frame, serialize
from mrflight.shuffle.log.group_commit import Alone, Append, GroupCommit
from mrflight.shuffle.log.log_totals import LogTotals
from mrflight.system.closeable import Closeable
from tests.support.faults.forgetful_disk import ForgetfulDisk
from tests.support.faults.full_disk import largest_file
from tests.support.faults.random_log import RandomLog
from tests.support.suite.messages import refused
from tests.support.suite.soak import seed
from tests.support.suite.waiting import hang_s

SCHEMA = pa.schema([("n", pa.int64())])


class Gate(Alone):
    """Replicas that answer when the test lets them, or with an error."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.error: MrflightError | None = None
        self.sent: list[int] = []

    def send(self, frames: Sequence[Frame]) -> None:
        self.sent.append(len(frames))

    def confirm(self) -> None:
        self.waiting.set()
        self.open.wait(hang_s())
        if self.error is not None:
            raise self.error


class Log(Closeable):
    """A log, and what became of the batches that were submitted."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.durable = DurableLog(folder, segment_bytes)
        self.gate, self.totals = Gate(), LogTotals()
        self.done: SimpleQueue[Append] = SimpleQueue()
        self.commit = GroupCommit(self.durable, self.gate, self.totals)
        self.commit.check_schema(SCHEMA)

    def submit(self, rows: int, producer: str = "", sequence: int = -1, first: int = 0) -> None:
        batch = pa.record_batch([list(range(first, first + rows))], schema=SCHEMA)
        self.commit.submit(Append(serialize(batch), rows, self.done.put, producer, sequence))

    def next(self) -> int | MrflightError:
        """The offset of the next batch that is answered, or its error."""
        append = self.done.get(timeout=hang_s())
        return append.start if append.error is None else append.error

    def acknowledged(self) -> int:
        """The offset of the next batch that is answered; raises its error."""
        answer = self.next()
        if isinstance(answer, MrflightError):
            raise answer
        return answer

    def close(self) -> None:
        self.gate.open.set()
        self.commit.close()
        self.durable.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path) as found:
        yield found


def test_batches_that_come_during_a_sync_share_the_next(log: Log) -> None:
    log.gate.open.clear()
    log.submit(1)
    assert log.gate.waiting.wait(hang_s())
    for rows in range(1, 51):
        log.submit(rows)
    assert log.done.empty()
    assert log.commit.durable == 0
    log.gate.open.set()
    assert [log.next() for _ in range(51)] == [0, *(1 + n * (n - 1) // 2 for n in range(1, 51))]
    assert (log.totals.syncs, log.totals.appends, log.totals.rows) == (2, 51, 1276)
    assert log.commit.durable == 1276


def test_a_repeated_batch_is_answered_and_not_stored(log: Log) -> None:
    for sequence in (0, 1, 1, 2, 0, 2):
        log.submit(10, "p", sequence)
    assert [log.next() for _ in range(6)] == [0, 10, 10, 20, 0, 20]
    log.submit(1, "q", 0)
    assert log.next() == 30
    assert log.durable.high == 31


@pytest.mark.parametrize(
    ("sent", "last"),
    [
        ((0, 1, 3), "batch 2 is the next one"),
        ((5,), "batch 0 is the next"),
        ((*range(12), 1), "12"),
    ],
)
def test_a_batch_out_of_turn_is_refused(log: Log, sent: tuple[int, ...], last: str) -> None:
    for sequence in sent:
        log.submit(1, "p", sequence)
    answers = [log.next() for _ in sent]
    assert answers[:-1] == list(range(len(sent) - 1))
    assert isinstance(answers[-1], ProducerSequenceError)
    assert last in str(answers[-1])


@pytest.mark.parametrize(("rows", "first"), [(10, 1), (9, 0), (11, 0)])
@pytest.mark.parametrize("between", ["nothing", "a restart", "a segment and a restart"])
def test_a_number_is_not_taken_for_other_rows(
    rows: int, first: int, between: str, tmp_path: Path
) -> None:
    """Another program uses the producer's name, or a program that was started again lacks rows."""
    log = Log(tmp_path)
    log.submit(10, "p", 0)
    assert log.next() == 0
    if between != "nothing":
        log.close()
        log = Log(tmp_path, segment_bytes=1 if "segment" in between else SEGMENT_BYTES)
        log.submit(10, "q", 0)
        assert log.next() == 10
        log.close()
        log = Log(tmp_path)
    high = log.durable.high
    with log:
        log.submit(rows, "p", 0, first)
        with refused(ProducerSequenceError):
            log.acknowledged()
        log.submit(10, "p", 0)
        assert log.next() == 0
        assert log.durable.high == high


def test_nothing_is_acknowledged_without_its_replica(log: Log) -> None:
    log.gate.error = ServerUnavailableError("gone")
    log.submit(3, "p", 0)
    assert log.next() is log.gate.error
    assert (log.commit.durable, log.durable.last_sequence("p", log.commit.durable)) == (0, -1)
    log.gate.error = None
    log.submit(3, "p", 0)  # it is in the log, and only now on all replicas
    assert log.next() == 0
    assert (log.commit.durable, log.durable.high) == (3, 3)
    assert log.durable.last_sequence("p", 3) == 0


def test_a_batch_whose_sync_failed_is_not_acknowledged_when_it_is_sent_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.submit(3, "p", 0)
    assert log.next() == 0
    disk = ForgetfulDisk(monkeypatch)
    disk.fails_next = True
    for sequence in (1, 1, 0):
        log.submit(2, "p", sequence)
        assert isinstance(log.next(), EventLogWriteError)
    assert (log.commit.durable, log.durable.last_sequence("p", log.commit.durable)) == (3, 0)


def test_the_last_batch_of_a_producer_is_told_below_an_offset(log: Log) -> None:
    for sequence in range(20):
        log.submit(2, "p", sequence)
        assert log.next() == 2 * sequence
    told = [log.durable.last_sequence("p", stop) for stop in (40, 39, 30, 26, 2)]
    assert told == [19, 18, 14, 12, 11], "11 is the last before those that are remembered"
    assert log.durable.last_sequence("q", 40) == -1


def test_a_batch_does_not_overtake_one_that_failed(log: Log) -> None:
    log.submit(3, "p", 0)
    assert log.next() == 0
    with largest_file(log.durable.size_bytes):
        log.gate.open.clear()
        for sequence in (1, 2, 3):
            log.submit(1, "p", sequence)
        errors = [log.next() for _ in range(3)]
        assert isinstance(errors[0], EventLogWriteError)
        assert not any(isinstance(error, int) for error in errors)
    log.gate.open.set()
    log.submit(1, "p", 2)
    assert isinstance(log.next(), ProducerSequenceError)
    log.submit(1, "p", 1)
    assert log.next() == 3


def test_another_schema_is_refused_with_the_difference(log: Log) -> None:
    with refused(SchemaMismatchError):
        log.commit.check_schema(pa.schema([("n", pa.int32())]))


def test_a_closed_log_refuses_and_a_queue_is_written_first(log: Log) -> None:
    for _ in range(20):
        log.submit(1)
    log.commit.close()
    assert [log.next() for _ in range(20)] == list(range(20))
    log.submit(1)
    assert isinstance(log.next(), ServerUnavailableError)


SAMPLE, SOAKED, STEPS = 10, 700, 40


@pytest.mark.parametrize(
    "number",
    [
        *range(SAMPLE),
        *(pytest.param(number, marks=pytest.mark.soak) for number in range(SAMPLE, SOAKED)),
    ],
)
def test_acknowledged_rows_survive_random_faults_of_the_disk(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = SOAKED * seed() + number
    log = RandomLog(tmp_path / "log", ForgetfulDisk(monkeypatch), of)
    try:
        for _ in range(STEPS):
            log.step()
        log.end()
    except BaseException as error:
        error.add_note("\n".join([f"seed {of}", *log.steps]))
        raise
