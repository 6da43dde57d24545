"""A stream to which much is done while it runs, and whether its tables are right in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pyarrow as pa

from tests.services.kafka import Kafka
from tests.support.ingest_job import INGEST, Stream, await_true
from tests.support.leftovers import nothing_left_over, processes_of
from tests.support.stream_chaos_checks import (
    FOREIGN,
    clean,
    wrong_dead_letters,
    wrong_offsets,
    wrong_rows,
)
from tests.support.stream_chaos_plan import RUN_S, ChaosPlan, Deed
from tests.support.stream_chaos_producers import Sent, producing

_START_S = 10.0
"""For so long a signal may find a process that does not handle it yet."""

_AWAY = "list the topics: the brokers"

_STOP_TIMEOUT_S = 60.0
_SHOWN = 3000
DEAD_LETTER = "out/rejected"


@dataclass
class ChaosOutcome:
    """What came of a run."""

    plan: ChaosPlan
    wrong: list[str] = field(default_factory=list)
    rows: int = 0
    versions: int = 0
    killed: int = 0
    foreign: int = 0
    orphans: int = 0
    """The files of killed ingesters that were removed in the end."""
    stderr: str = ""

    def __str__(self) -> str:
        how = "; ".join(self.wrong) if self.wrong else "right"
        return (
            f"seed {self.plan.seed}: {self.rows:,} rows in {self.versions} versions, "
            f"{self.killed} killed, {self.orphans} orphan files: {how}"
        )


class Ingester:
    """An ingester that is started again whenever it was killed."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self.log = log
        self.wrong: list[str] = []
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        self._was_killed = False
        self._started_at = time.monotonic()

    def kill(self) -> bool:
        """Kill it; return False if it has been killed already."""
        if self._was_killed:
            return False
        self._was_killed = True
        self.process.kill()
        self.process.wait()
        return True

    def stop(self) -> None:
        """End it as an operator does, and note what is wrong with its end."""
        if self._was_killed:
            return
        if self.process.poll() == 1 and _AWAY in self.log.read_text():
            return  # it began while the broker was away, which it may tell and end
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.wrong.append(f"an ingester did not stop within {_STOP_TIMEOUT_S:.0f} s")
            return
        was_starting = time.monotonic() - self._started_at < _START_S
        if code and not (code == -signal.SIGTERM and was_starting):
            self.wrong.append(f"an ingester ended with code {code}")


class ChaosRun:
    """Does to the ingesters of a stream what a plan says."""

    def __init__(self, stream: Stream, plan: ChaosPlan, mark: str) -> None:
        self._stream = stream
        self._plan = plan
        self._mark = mark
        self._randomly = random.Random(plan.seed)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.foreign = 0
        self.killed = 0
        self.wrong: list[str] = []

    def run(self, ingesters: list[Ingester]) -> None:
        """Do all of it, and return once everything that was killed is back, or awake."""
        began = time.monotonic()
        for deed in self._plan.deeds:
            time.sleep(max(0.0, began + deed.at_s - time.monotonic()))
            if deed.what == "kill broker":
                self._kill_broker(deed)  # one that is started in a thread ends with it
                continue
            thread = threading.Thread(target=self._do, args=(deed, ingesters))
            thread.start()
            self._threads.append(thread)
        time.sleep(max(0.0, began + RUN_S - time.monotonic()))
        for thread in self._threads:
            thread.join()

    def _do(self, deed: Deed, ingesters: list[Ingester]) -> None:
        ingester = ingesters[deed.whom % len(ingesters)]
        if deed.what == "kill driver":
            if ingester.kill():
                self.killed += 1
                time.sleep(deed.for_s)
                ingester.start()
        elif deed.what == "freeze driver":
            self._freeze(psutil.Process(ingester.process.pid), deed.for_s)
        elif deed.what in ("kill worker", "freeze worker"):
            if workers := self._workers():
                worker = workers[deed.whom % len(workers)]
                if deed.what == "kill worker":
                    worker.kill()
                    self.killed += 1
                else:
                    self._freeze(worker, deed.for_s)
        elif deltalake.DeltaTable.is_deltatable(str(self._stream.table)):
            self._append() if deed.what == "foreign append" else self._compact()

    def _kill_broker(self, deed: Deed) -> None:
        self._stream.kafka.server.kill()
        self.killed += 1
        time.sleep(deed.for_s)
        self._stream.kafka.restart()

    def _workers(self) -> list[psutil.Process]:
        found = []
        for process in processes_of(self._mark):
            try:
                if process.name().startswith("mrflight-worker"):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _freeze(self, process: psutil.Process, for_s: float) -> None:
        try:
            process.suspend()
            time.sleep(for_s)
            process.resume()
        except psutil.NoSuchProcess:
            return

    def _append(self) -> None:
        with self._lock:
            first, self.foreign = self.foreign, self.foreign + 10
        numbers = list(range(first, first + 10))
        rows = {"producer": [FOREIGN] * 10, "number": numbers, "text": ["foreign"] * 10}
        deltalake.write_deltalake(
            self._stream.table, pa.table(rows), mode="append", schema_mode="merge"
        )

    def _compact(self) -> None:
        command = [sys.executable, "-m", "mrflight", "maintain", str(self._stream.table)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.wrong.append(f"mrflight maintain failed: {done.stderr[-_SHOWN:]}")


def run_chaos(kafka: Kafka, folder: Path, plan: ChaosPlan) -> ChaosOutcome:
    """Run a plan with a broker of its own, and check the tables in the end."""
    outcome = ChaosOutcome(plan)
    folder.mkdir(parents=True, exist_ok=True)
    stream = Stream(kafka, kafka.topic(plan.partitions), folder)
    job = stream.write_job(
        stream=f'max_rows = {plan.max_rows}\non_bad_row = "dead_letter"\n'
        f'dead_letter = "{DEAD_LETTER}"\nmax_bad = "100 %"'
    )
    try:
        with nothing_left_over(folder / f"tmp-{plan.seed}") as environment:
            sent = _disturbed(stream, plan, job, environment, outcome)
            _check(stream, sent, outcome)
    except AssertionError as error:
        outcome.wrong.append(f"something was left over: {error}")
    return outcome


def _disturbed(
    stream: Stream, plan: ChaosPlan, job: Path, environment: dict[str, str], outcome: ChaosOutcome
) -> Sent:
    """Run the stream until it is caught up after all that is done to it."""
    run = ChaosRun(stream, plan, environment["MRFLIGHT_TEST_RUN"])
    with ExitStack() as stack:
        ingesters = [
            stack.enter_context(_ingesting(job, environment, number))
            for number in range(plan.ingesters)
        ]
        with producing(stream.kafka, stream.topic, plan.seed) as sent:
            run.run(ingesters)
        for ingester in ingesters:
            ingester.stop()
            outcome.wrong += ingester.wrong
        outcome.stderr = "".join(each.log.read_text()[-_SHOWN:] for each in ingesters)
    outcome.killed = run.killed
    outcome.wrong += run.wrong + sent.errors
    _await_transactions(stream)
    last = subprocess.run(
        [*INGEST, str(job), "--until-caught-up", "--set", "stream.max_rows=5000"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=2 * _STOP_TIMEOUT_S,
    )
    if last.returncode:
        outcome.wrong.append(f"the last run ended with code {last.returncode}: {last.stderr}")
    outcome.foreign = run.foreign
    return sent


@contextmanager
def _ingesting(job: Path, environment: dict[str, str], number: int) -> Iterator[Ingester]:
    ingester = Ingester([*INGEST, str(job)], environment, job.parent / f"ingester-{number}.log")
    try:
        yield ingester
    finally:
        ingester.kill()


def _await_transactions(stream: Stream) -> None:
    """Wait until no transaction holds back readers."""
    await_true(
        lambda: _ends(stream, committed=True) == _ends(stream, committed=False),
        "all transactions have ended",
    )


def _ends(stream: Stream, *, committed: bool) -> dict[int, int]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = stream.kafka.admin()
    partitions = admin.list_topics(stream.topic, timeout=30).topics[stream.topic].partitions
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(stream.topic, each): OffsetSpec.latest() for each in partitions}
    found: dict[Any, Any] = admin.list_offsets(asked, isolation_level=level)
    return {each.partition: answer.result(30).offset for each, answer in found.items()}


def _check(stream: Stream, sent: Sent, outcome: ChaosOutcome) -> None:
    checks: list[Callable[[], list[str]]] = [
        lambda: wrong_rows(stream.table, sent, outcome.foreign),
        lambda: wrong_dead_letters(stream.folder / DEAD_LETTER, sent),
        lambda: wrong_offsets(stream.table, _ends(stream, committed=True)),
    ]
    for check in checks:
        outcome.wrong += check()
    table = deltalake.DeltaTable(stream.table)
    outcome.rows, outcome.versions = table.to_pyarrow_table().num_rows, table.version() + 1
    for each in (stream.table, stream.folder / DEAD_LETTER):
        if each.exists():
            removed, left = clean(each)
            outcome.orphans += removed
            outcome.wrong += left
