"""Random faults under an event log, and a model of the rows that it must have.

Producers append and repeat batches while syncs and writes fail, the process is killed at any of
them, and the power is cut, also while the log is read back. The disk is a `ForgetfulDisk`. A row
that was acknowledged or read stays at its offset, and a batch is there once and whole.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa

from mrflight.errors import EventLogWriteError
from mrflight.shuffle.log.durable_log import NO_MARK, DurableLog
from mrflight.shuffle.log.frame import serialize
from mrflight.shuffle.log.group_commit import Alone, Append, GroupCommit
from mrflight.shuffle.log.log_rows import read_rows
from tests.support.faults.forgetful_disk import ForgetfulDisk
from tests.support.suite.waiting import hang_s

SCHEMA = pa.schema([("producer", pa.string()), ("batch", pa.int64()), ("row", pa.int64())])
Row = tuple[str, int, int]
Key = tuple[str, int]
"""A batch: its producer and its number."""
Answers = SimpleQueue[tuple[Key, Append]]


class KilledError(Exception):
    """The process does nothing from now on."""


class Faults:
    """What happens at the calls of a disk."""

    def __init__(self, others: Callable[[], None]) -> None:
        """``others`` is what other threads may do at any call."""
        self._others = others
        self._kind, self._left = "", 0
        self.had = self.is_killed = False
        """Whether something went wrong since the log was opened."""

    def arm(self, kind: str, calls: int) -> None:
        """Let something happen after so many calls."""
        self._kind, self._left = kind, calls

    def restart(self) -> None:
        self.had = self.is_killed = False

    def at(self, call: str) -> None:
        if self.is_killed:
            raise KilledError
        if self._kind not in (call, "killed", "others"):
            return
        self._left -= 1
        if self._left >= 0:
            return
        kind, self._kind = self._kind, ""
        if kind == "others":
            return self._others()
        self.had, self.is_killed = True, kind == "killed"
        if self.is_killed:
            raise KilledError
        number = errno.EIO if kind == "sync" else errno.ENOSPC
        raise OSError(number, os.strerror(number))


class Turn(Alone):
    """Lets the first batch of a burst alone into the first group, so that a seed does it again."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def prepare(self) -> None:
        self.begun.set()
        assert self.goes_on.wait(hang_s())


class RandomLog:
    """The log of one seed."""

    def __init__(self, folder: Path, disk: ForgetfulDisk, seed: int) -> None:
        self._random = random.Random(seed)
        self._folder, self._disk = folder, disk
        self._faults = Faults(self._others)
        disk.at = self._faults.at
        self._segment_bytes = self._random.choice((1000, 3000, 2**20))
        self.steps: list[str] = []
        """What was done, for whoever looks for the reason of a failure."""
        self._batches: dict[Key, int] = {}
        """The rows of each batch that was sent."""
        self._next: dict[str, int] = defaultdict(int)
        """The number of each producer's next batch: those before it are acknowledged or found."""
        self._rows: dict[int, Row] = {}
        """All that were acknowledged or read, by their offsets."""
        self._marks: dict[int, int] = {}
        self._is_open = False
        self._open()

    def step(self) -> None:
        """Do one thing, and check what there is to read."""
        choose = ((self._send, 8), (self._arm, 3), (self._trim, 2), (self._restart, 2))
        doing, weights = zip(*choose, strict=True)
        self._random.choices(doing, weights)[0]()
        if self._faults.is_killed:
            self._restart()
        self.check()

    def end(self) -> None:
        """Lose the power a last time, and check that all is there."""
        self._faults.arm("", 0)
        self._open(cuts=True)
        self.check()
        self._check_batches()
        self.close()

    def close(self) -> None:
        self._is_open = False
        self._commit.close()
        self._log.close()

    def check(self) -> None:
        """Compare all that may be read with what was ever there."""
        low, high = self._log.low, self._commit.durable
        self._check_rows(self._random.choice((low, self._random.randint(low, high))))

    def _check_rows(self, start: int) -> None:
        high = self._commit.durable
        assert all(offset < high for offset in self._rows), "acknowledged rows are gone"
        for offset, row in enumerate(self._read(start, high), start):
            assert self._rows.setdefault(offset, row) == row, f"row {offset} is another one"
        for offset in self._random.choices(range(start, high + 1), k=3):
            mark = self._log.mark(offset)
            assert mark == NO_MARK or self._marks.setdefault(offset, mark) == mark

    def _check_batches(self) -> None:
        by_batch: dict[Key, list[int]] = defaultdict(list)
        for offset, (producer, batch, row) in sorted(self._rows.items()):
            assert len(by_batch[producer, batch]) == row
            by_batch[producer, batch].append(offset)
        for key, offsets in by_batch.items():
            assert len(offsets) == self._batches[key]
            assert offsets[-1] - offsets[0] + 1 == len(offsets)
        for producer in {producer for producer, _ in by_batch}:
            numbers = [batch for each, batch in by_batch if each == producer]
            assert numbers == list(range(len(numbers))), "in the order in which they were sent"

    def _read(self, start: int, stop: int) -> list[Row]:
        found: list[Row] = []
        for first, batch in read_rows(self._log.read(start, stop), SCHEMA, start, stop):
            assert first == start + len(found)
            found += [tuple(row.values()) for row in batch.to_pylist()]  # type: ignore[misc]
        assert len(found) == stop - start
        return found

    def _send(self) -> None:
        """Send a burst of several producers, with some batches that are known."""
        burst: list[Key] = []
        for producer in self._random.sample("abc", self._random.randint(1, 3)):
            first = self._next[producer] - self._random.choice((0, 0, 1))
            burst += [
                (producer, number)
                for number in range(max(0, first), first + self._random.randint(1, 5))
            ]
        self._random.shuffle(burst)
        burst.sort(key=lambda key: key[1])  # that of each producer in its order
        self.steps.append(f"send {burst}")
        done: Answers = SimpleQueue()
        self._turn.begun.clear()
        self._turn.goes_on.clear()
        for key in burst:
            rows = self._batches.setdefault(key, self._random.choice((1, 2, 7, 40)))
            table = {"producer": [key[0]] * rows, "batch": [key[1]] * rows, "row": range(rows)}
            payload = serialize(pa.RecordBatch.from_pydict(table, SCHEMA))
            self._commit.submit(Append(payload, rows, partial(_say, done, key), *key))
            if key == burst[0] and not self._log_is_broken():
                assert self._turn.begun.wait(hang_s())
        self._turn.goes_on.set()
        for _ in burst:
            self._answered(*done.get(timeout=hang_s()))

    def _log_is_broken(self) -> bool:
        try:
            self._log.check_writable()
        except EventLogWriteError:
            return True
        return False

    def _answered(self, key: Key, append: Append) -> None:
        if append.error is not None:
            assert self._faults.had, append.error
            return
        producer, number = key
        assert number <= self._next[producer]
        self._next[producer] = max(number + 1, self._next[producer])
        for row in range(self._batches[key]):
            value = (producer, number, row)
            assert self._rows.setdefault(append.start + row, value) == value

    def _arm(self) -> None:
        kind = self._random.choice(("sync", "sync", "write", "killed", "others"))
        calls = self._random.choice((0, 1, self._random.randrange(12)))
        self.steps.append(f"{kind} after {calls} calls")
        self._faults.arm(kind, calls)

    def _trim(self) -> None:
        durable = self._commit.durable
        offset = self._random.choice((durable, self._random.randint(0, durable)))
        self.steps.append(f"trim {offset}")
        assert self._log.trim(offset) <= max(offset, self._log.low)

    def _others(self) -> None:
        """What other threads do while the log is written."""
        if self._is_open:
            self._trim()
            self.check()
            self._arm()

    def _restart(self) -> None:
        self._open(cuts=self._random.random() < 0.5)

    def _open(self, *, cuts: bool = False) -> None:
        """End the process, and start it until the log can be read back."""
        if self._is_open:
            self.close()
        while True:
            if cuts:
                self._disk.cut_power(self._random)
            self.steps.append(f"open{' after a cut' if cuts else ''}")
            self._faults.restart()
            try:
                self._log = DurableLog(self._folder, self._segment_bytes)
                break
            except (EventLogWriteError, KilledError):
                assert self._faults.had
                cuts = self._random.random() < 0.5
        self._turn = Turn()
        self._commit = GroupCommit(self._log, self._turn)
        self._commit.check_schema(SCHEMA)
        self._is_open = True
        for producer in "abc":
            last = self._log.last_sequence(producer, self._log.high)
            assert last + 1 >= self._next[producer], "acknowledged batches are gone"
            self._next[producer] = last + 1
        self._check_rows(self._log.low)  # rows that were found may be trimmed before they are read


def _say(answers: Answers, key: Key, append: Append) -> None:
    answers.put((key, append))
