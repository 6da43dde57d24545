"""A stream to which much is done while it runs, and whether its tables are right in the end."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chaos.checks import by_partition, compared, wrong_moves, wrong_rows
from tests.support.chaos.deeds import ChaosDeeds
from tests.support.chaos.delta import DeltaChaosTable
from tests.support.chaos.ingester import Ingester
from tests.support.chaos.plan import ChaosPlan
from tests.support.chaos.producers import Sent, producing
from tests.support.chaos.servers import ChaosServers
from tests.support.chaos.table import ChaosTable
from tests.support.chaos.tables import tables_at, write_job
from tests.support.commands.leftovers import nothing_left_over
from tests.support.streams.ingest_job import INGEST, Stream
from tests.support.suite.waiting import await_that, hang_s

INGESTERS = 2
_SHOWN = 3000


@dataclass
class ChaosOutcome:
    """What came of a run."""

    plan: ChaosPlan
    wrong: list[str] = field(default_factory=list)
    rows: int = 0
    commits: int = 0
    """Those of the stream."""
    done: Counter[str] = field(default_factory=Counter)
    """What was done, and how often."""
    orphans: int = 0
    """The files of killed ingesters that were removed in the end."""
    caught_up_s: float = 0.0
    """How long it took to come to the ends once nothing was done any more."""
    seconds: float = 0.0
    stderr: str = ""

    @property
    def faults(self) -> int:
        """How many processes and servers were killed or frozen."""
        return sum(count for what, count in self.done.items() if what.startswith(("kill", "fre")))

    def __str__(self) -> str:
        how = "; ".join(self.wrong) if self.wrong else "right"
        return (
            f"seed {self.plan.seed}: {self.plan.place}, {self.rows:,} rows in {self.commits} "
            f"commits, {self.faults} faults, {self.orphans} orphan files, caught up after "
            f"{self.caught_up_s:.1f} s, {self.seconds:.0f} s in all: {how}"
        )


def run_chaos(servers: ChaosServers, folder: Path, plan: ChaosPlan) -> ChaosOutcome:
    """Run a plan with servers of which it kills some, and check the tables in the end."""
    outcome, began = ChaosOutcome(plan), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    stream = Stream(servers.kafka, servers.kafka.topic(plan.partitions), folder)
    try:
        with tables_at(servers, folder, plan.place) as (table, dead_letters):
            job = write_job(
                stream,
                table,
                dead_letters,
                max_rows=plan.max_rows,
                workers=plan.workers,
                input='key = ["producer"]' if plan.shuffles else "",
            )
            with nothing_left_over(folder / f"tmp-{plan.seed}") as environment:
                environment |= table.environment
                run = _Run(stream, plan, servers, table, outcome)
                sent = run.disturb(job, environment)
                _check(table, dead_letters, sent, run.ends, outcome)
    except AssertionError as error:
        outcome.wrong.append(str(error) or traceback.format_exc())
    outcome.seconds = time.monotonic() - began
    return outcome


class _Run:
    """A run from its first event to its last commit."""

    def __init__(
        self,
        stream: Stream,
        plan: ChaosPlan,
        servers: ChaosServers,
        table: ChaosTable,
        outcome: ChaosOutcome,
    ) -> None:
        self._stream = stream
        self._plan = plan
        self._servers = servers
        self._table = table
        self._outcome = outcome
        self.ends: dict[int, int] = {}
        """The ends of the partitions after the last event."""

    def disturb(self, job: Path, environment: dict[str, str]) -> Sent:
        """Run the stream until it is caught up after all that is done to it."""
        mark = environment["MRFLIGHT_TEST_RUN"]
        with ExitStack() as stack:
            ingesters = [
                stack.enter_context(_ingesting(job, environment, number))
                for number in range(INGESTERS)
            ]
            with producing(self._stream.kafka, self._stream.topic, self._plan.seed) as sent:
                deeds = ChaosDeeds(self._plan, self._servers, self._table, mark, sent)
                if self._plan.waits:
                    self._await(lambda: any(map(_has_committed, ingesters)))
                deeds.run(ingesters)
            self._catch_up(ingesters)
            for ingester in ingesters:
                ingester.stop()
                self._outcome.wrong += ingester.wrong
            self._outcome.stderr = "\n".join(each.words(_SHOWN) for each in ingesters)
        self._outcome.done = deeds.done
        self._outcome.wrong += deeds.wrong + sent.errors
        return sent

    def _catch_up(self, ingesters: list[Ingester]) -> None:
        await_that(
            lambda: _ends(self._stream, committed=True) == _ends(self._stream, committed=False),
            "the ends of all transactions",
        )
        self.ends = _ends(self._stream, committed=True)
        wanted = {partition: end for partition, end in self.ends.items() if end}
        if self._plan.survivor is not None:
            ingesters[1 - self._plan.survivor].kill()
        began = time.monotonic()
        reached: list[dict[int, int]] = [{}]

        def goes_on() -> bool:
            before, reached[0] = reached[0], by_partition(self._table.recorded())
            return reached[0] != before

        while reached[0] != wanted:
            if not self._await(goes_on):
                self._outcome.wrong.append("no commit came until it hung: it is stuck")
                break
        self._outcome.caught_up_s = time.monotonic() - began

    def _await(self, check: Callable[[], bool]) -> bool:
        """Wait until something is true of the table, which may not exist yet; False if it hangs.

        On a busy machine an ingester that was killed takes minutes to start again and commit.
        """
        began = time.monotonic()
        while time.monotonic() - began < hang_s():
            with suppress(Exception):  # of any reader: there is no table yet, or a commit is on
                if check():
                    return True
            time.sleep(self._table.look_every_s)
        return False


@contextmanager
def _ingesting(job: Path, environment: dict[str, str], number: int) -> Iterator[Ingester]:
    ingester = Ingester([*INGEST, str(job)], environment, job.parent / f"ingester-{number}.log")
    try:
        yield ingester
    finally:
        ingester.kill()


def _has_committed(ingester: Ingester) -> bool:
    """Return whether an ingester has shown a commit."""
    return "version" in ingester.words(_SHOWN)


def _ends(stream: Stream, *, committed: bool) -> dict[int, int]:
    from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    until = time.monotonic() + hang_s()
    while True:
        try:
            admin = stream.kafka.admin()
            partitions = (
                admin.list_topics(stream.topic, timeout=hang_s()).topics[stream.topic].partitions
            )
            level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            asked = {TopicPartition(stream.topic, each): OffsetSpec.latest() for each in partitions}
            found: dict[Any, Any] = admin.list_offsets(asked, isolation_level=level)
            return {
                each.partition: answer.result(hang_s()).offset for each, answer in found.items()
            }
        except KafkaException as error:
            # A new client may have met a broker that still had the epoch of before.
            is_fenced = error.args[0].code() == KafkaError.FENCED_LEADER_EPOCH
            if not is_fenced or time.monotonic() > until:
                raise


def _check(
    table: ChaosTable,
    dead_letters: DeltaChaosTable,
    sent: Sent,
    ends: dict[int, int],
    outcome: ChaosOutcome,
) -> None:
    if not table.exists():
        outcome.wrong.append("there is no table")
        return
    rows, moves = table.rows(), table.moves()
    outcome.rows, outcome.commits = len(rows), len(moves)
    outcome.wrong += wrong_rows(rows, sent)
    outcome.wrong += wrong_moves(moves, table.recorded(), ends)
    rejected = dead_letters.load().to_pyarrow_table()["value"] if dead_letters.exists() else []
    values = [each.as_py() for each in rejected]
    outcome.wrong += compared("dead letter", Counter(values), sent.poison)
    for each in (table, dead_letters):
        if each.exists():
            removed, left = each.clean()
            outcome.orphans += removed
            outcome.wrong += left
