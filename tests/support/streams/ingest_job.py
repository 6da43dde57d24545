"""Streams for tests: events with numbers, the job that ingests them, and what its table has."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from tests.services.kafka import Kafka
from tests.support.commands.driver import DriverRun
from tests.support.commands.mrflight import Running, mrflight, started
from tests.support.suite.waiting import await_that

INGEST = (sys.executable, "-m", "mrflight", "ingest")
"""The command as an interpreter of its own; `ingest` and `ingesting` fork it."""

JOB = """
[job]
name = "events"
[inputs.events]
kafka = "{brokers}"
topic = "{topic}"
format = "json"
metadata = true
types = {{ producer = "int64", number = "int64", text = "string" }}
{input}
[stream]
commit = "100 ms"
{stream}
[output]
table = "out/events"
{output}
[cluster]
workers = 2
memory = "1 GiB"
{rest}
"""


@dataclass(frozen=True)
class Ended(DriverRun):
    """An ingest command that has ended."""

    @property
    def message(self) -> str:
        """The message with which it failed."""
        return self.stderr.rpartition("mrflight: ")[2]


@dataclass(frozen=True)
class Stream:
    """A topic, and the folder of the job that ingests it."""

    kafka: Kafka
    topic: str
    folder: Path

    def write_job(
        self, input: str = "", stream: str = "", output: str = "", rest: str = ""
    ) -> Path:
        """Write the job file, with further lines of its sections; it appends by default."""
        if "mode = " not in output:
            output = f'mode = "append"\n{output}'
        path = self.folder / "job.toml"
        path.write_text(
            JOB.format(
                brokers=self.kafka.brokers,
                topic=self.topic,
                input=input,
                stream=stream,
                output=output,
                rest=rest,
            )
        )
        return path

    def produce(self, values: Iterable[Any], partition: int | None = None) -> None:
        """Send events, as json if they are not bytes, and wait until the broker has them."""
        producer = self.kafka.producer()
        for value in values:
            payload = value if isinstance(value, bytes) else json.dumps(value).encode()
            where = {} if partition is None else {"partition": partition}
            while True:
                try:
                    producer.produce(self.topic, payload, **where)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    @property
    def table(self) -> Path:
        return self.folder / "out" / "events"

    def rows(self) -> pa.Table:
        """Return the rows of the table; none if there is no table."""
        if not deltalake.DeltaTable.is_deltatable(str(self.table)):
            return pa.table({"producer": [], "number": [], "_partition": [], "_offset": []})
        return deltalake.DeltaTable(self.table).to_pyarrow_table()

    def recorded(self, name: str = "events") -> dict[int, int]:
        """Return the next offsets that the table's log has, by partition."""
        found: dict[int, int] = {}
        for entry in sorted((self.table / "_delta_log").glob("*.json")):
            for line in entry.read_text().splitlines():
                transaction = json.loads(line).get("txn", {})
                if transaction.get("appId", "").startswith(f"mrflight/{name}/"):
                    found[int(transaction["appId"].rpartition("/")[2])] = transaction["version"]
                    assert "lastUpdated" not in transaction or transaction["lastUpdated"] is None
        return found


def numbered(producer: int, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return events of a producer, which numbers them."""
    return [{"producer": producer, "number": n, "text": f"event {n}"} for n in numbers]


def ingest(job: Path, *options: str) -> Ended:
    """Run the command until it is caught up."""
    return ended("ingest", job, "--until-caught-up", "--json", *options)


def ended(*words: str | Path) -> Ended:
    """Run a command of mrflight to its end."""
    run = mrflight(*words)
    return Ended(run.returncode, run.stdout, run.stderr)


@contextmanager
def ingesting(
    job: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run the command beside the test; it is killed at the end if it has not ended by itself."""
    with started("ingest", job, *options, environment=environment) as process:
        yield process


def await_rows(stream: Stream, count: int, beside: Running | None = None) -> None:
    """Wait until the table of a stream has so many rows, or more."""
    await_that(lambda: len(stream.rows()) >= count, f"{count} rows", beside=beside)


def check_once(rows: pa.Table, sent: Mapping[int, int]) -> None:
    """Check that every producer's numbers are there once, in the order of its partition.

    ``sent`` is how many events each producer has sent, from 0 on.
    """
    counts = Counter(zip(rows["producer"].to_pylist(), rows["number"].to_pylist(), strict=True))
    wanted = Counter({(who, n): 1 for who, count in sent.items() for n in range(count)})
    lost, more = wanted - counts, counts - wanted
    assert not lost, f"{len(lost)} events are lost, such as {min(lost)}"
    assert not more, f"{len(more)} events are doubled or invented, such as {min(more)}"
    places = list(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places), "an offset is there twice"
