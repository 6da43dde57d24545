"""A stream into Iceberg and DuckLake tables, which stock readers find complete, and upkeep."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo

import mrflight
from mrflight.streams import table_upkeep
from tests.services.iceberg_rest import IcebergRest
from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.support.jobs.job_sections import toml_section
from tests.support.streams.ingest_job import (
    Stream,
    check_once,
    ended,
    ingest,
    ingesting,
    numbered,
)
from tests.support.streams.replays import REJECTS, die_in_replay, ingest_with_rejects, replay
from tests.support.suite.waiting import await_that
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.lakes import Lake

FIRST, EVENTS = 50, 500
COMPACT_EVERY = 5
"""So that a compaction comes soon; the streams of these tests run in this process."""


@pytest.fixture
def compacts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_upkeep, "COMPACT_EVERY", COMPACT_EVERY)


def catch_up(job: Path) -> mrflight.StreamResult:
    return mrflight.ingest(job, until_caught_up=True, progress=False)


@dataclass(frozen=True)
class Target:
    """A table in a catalog: the lines of the job that name it, and its rows."""

    output: str
    rest: str
    rows: Callable[[], list[tuple[Any, ...]]]
    """The producer, number, partition and offset of each row."""
    files: Callable[[], int]
    """The number of data files."""
    append: Callable[[], object]
    """Appends a row of producer -1, as another writer."""
    delete: Callable[[], object]
    """Deletes the rows of producer -1, as another writer."""


def in_iceberg(lake: Lake) -> Target:
    def rows() -> list[tuple[Any, ...]]:
        return lake.rows("producer", "number", "_partition", "_offset", by_polars=False)

    def append() -> None:
        row = pa.table({"producer": [-1], "number": [-1]})
        lake.load().append(row)

    def delete() -> None:
        lake.load().delete(EqualTo("producer", -1))

    return Target(
        lines(lake.section()),
        toml_section("storage", lake.storage),
        rows,
        lambda: len(lake.named_files()),
        append,
        delete,
    )


def in_ducklake(lake: DuckLake) -> Target:
    keys = ("table", "format", "catalog", "data_path")
    section = {key: getattr(lake.section(), key) for key in keys}
    columns = 'producer, number, "_partition", "_offset"'
    files = "SELECT count(*) FROM ducklake_list_files('lake', 'orders', schema => 'sales')"
    table = f"lake.{lake.table}"
    insert = f"INSERT INTO {table} (producer, number) VALUES (-1, -1)"
    return Target(
        lines(section),
        toml_section("storage", lake.options),
        lambda: lake.read(columns),
        lambda: int(lake.query(files)[0][0]),
        lambda: lake.query(insert),
        lambda: lake.query(f"DELETE FROM {table} WHERE producer = -1"),
    )


def lines(section: dict[str, Any]) -> str:
    return "\n".join(toml_section("output", section).splitlines()[1:])


def write_job(
    stream: Stream, target: Target, section: str = "max_rows = 50", input: str = ""
) -> Path:
    path = stream.write_job(input, section, target.output, target.rest)
    path.write_text(path.read_text().replace('table = "out/events"\n', ""))
    return path


def check(stream: Stream, target: Target, *, alone: bool = False) -> None:
    """Ingest with two ingesters beside one another, of which one is killed, and then to the end.

    ``alone``: only one process may have the catalog open.
    """
    stream.produce(numbered(1, range(FIRST)))
    job = write_job(stream, target)
    assert ingest(job).result["rows_in"] == FIRST
    stream.produce(numbered(1, range(FIRST, EVENTS)))
    with ingesting(job) as one:
        if alone:
            assert one.stderr is not None
            assert "version" in one.stderr.readline(), "the first commit is shown"
            one.kill()
        else:
            with ingesting(job) as other:
                await_that(lambda: len(target.rows()) >= EVENTS // 2, "half of the rows")
                one.kill()
                other.terminate()
                _, stderr = other.communicate()
                assert other.returncode == 0, stderr
    run = ingest(job)
    assert run.code == 0, run.stderr
    found = target.rows()
    assert sorted(each[1] for each in found) == list(range(EVENTS))
    assert len({each[2:] for each in found}) == EVENTS


def test_iceberg_tables_get_each_event_once(kafka: Kafka, lake: Lake, tmp_path: Path) -> None:
    check(Stream(kafka, kafka.topic(2), tmp_path), in_iceberg(lake))


def test_ducklake_tables_get_each_event_once(
    kafka: Kafka, ducklake: DuckLake, tmp_path: Path
) -> None:
    alone = ducklake.catalog.startswith("duckdb:")
    check(Stream(kafka, kafka.topic(2), tmp_path), in_ducklake(ducklake), alone=alone)


@pytest.mark.usefixtures("compacts_soon")
def test_the_small_files_of_a_stream_are_compacted_between_its_commits(
    kafka: Kafka, tmp_path: Path
) -> None:
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    count = 10 * (COMPACT_EVERY + 4)
    stream.produce(numbered(1, range(count)))
    assert catch_up(stream.write_job(stream="max_rows = 10")).commits == COMPACT_EVERY + 4
    table = deltalake.DeltaTable(stream.table)
    assert table.version() == COMPACT_EVERY + 4, "one version more: the compaction"
    assert len(table.file_uris()) == 5, "one that was compacted, and those of the commits after it"
    check_once(stream.rows(), {1: count})


_PAUSE_S = 0.1
"""The pace of a foreign writer, which else is always faster than the stream."""
_MAX_APPENDED = 5


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "ducklake, postgres":
        python = request.getfixturevalue("ducklake_python")
        postgres: Postgres = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield in_ducklake(DuckLake(python, tmp_path, postgres.uri(name), "data"))
    elif request.param == "ducklake, sqlite":
        yield in_ducklake(request.getfixturevalue("own_ducklake"))
    elif request.param == "iceberg, rest":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        yield in_iceberg(Lake(tmp_path, rest.uri, None, f"ns_{secrets.token_hex(4)}"))
    else:
        yield in_iceberg(request.getfixturevalue("sqlite_lake"))


def check_proved(job: Path, rows: int) -> None:
    run = ended("ingest", "verify", job, "--json")
    assert run.code == 0, run.stderr + run.stdout
    found = json.loads(run.stdout)
    assert (found["is_proved"], found["notes"], found["rows"]["rows"]) == (True, [], rows)
    assert found["partitions"][0]["is_whole"]


@pytest.mark.parametrize("target", ["iceberg, sqlite", "ducklake, sqlite"], indirect=True)
@pytest.mark.usefixtures("compacts_soon")
def test_small_files_in_a_catalog_are_compacted_between_commits(
    kafka: Kafka, target: Target, tmp_path: Path
) -> None:
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    count = 10 * (COMPACT_EVERY + 4)
    stream.produce(numbered(1, range(count)))
    job = write_job(stream, target, "max_rows = 10")
    assert catch_up(job).commits == COMPACT_EVERY + 4
    assert target.files() == 5, "one that was compacted, and those of the commits after it"
    assert sorted(target.rows()) == [(1, n, 0, n) for n in range(count)]
    check_proved(job, count)


# DuckDB does not wait for others that have a catalog in SQLite open.
@pytest.mark.parametrize("target", ["iceberg, rest", "ducklake, postgres"], indirect=True)
@pytest.mark.usefixtures("compacts_soon")
def test_a_foreign_writer_beside_the_upkeep_fails_neither(
    kafka: Kafka, target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    batches = 2 * COMPACT_EVERY + 4
    count = 10 * batches
    job = write_job(stream, target, "max_rows = 10")
    stream.produce(numbered(1, range(10)))
    assert catch_up(job).commits == 1
    stream.produce(numbered(1, range(10, count)))
    has_ended, appended = threading.Event(), 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(catch_up, job)
        running.add_done_callback(lambda _: has_ended.set())
        while not has_ended.wait(_PAUSE_S) and appended < _MAX_APPENDED:
            try:
                target.append()
                appended += 1
            except CommitFailedException:
                continue  # as pyiceberg itself tries only four times
        assert running.result().commits == batches - 1
    assert "upkeep of the table failed" not in caplog.text
    ours = [(1, n, 0, n) for n in range(count)]
    assert sorted(target.rows(), key=repr) == sorted(
        [*ours, *([(-1, -1, None, None)] * appended)], key=repr
    )
    assert target.files() < batches
    target.delete()
    assert sorted(target.rows()) == ours
    check_proved(job, count)


@pytest.mark.parametrize("target", ["iceberg, sqlite", "ducklake, sqlite"], indirect=True)
def test_dead_letters_are_replayed_into_a_table_in_a_catalog_once(
    kafka: Kafka, target: Target, tmp_path: Path
) -> None:
    stream = Stream(kafka, kafka.topic(2), tmp_path)

    def write(stream_section: str, input: str = "") -> Path:
        return write_job(stream, target, stream_section, input)

    job = ingest_with_rejects(stream, lambda stream, input="": write(stream, input))
    die_in_replay(job, "remove_rows")
    found = replay(job)
    assert (found["replayed"], found["left"]) == (0, 2), "the one that died had committed them"
    assert sorted(each[1] for each in target.rows()) == list(range(20))
    check_proved(write(REJECTS), 20)
    assert ingest(job).result["rows_in"] == 0, "the stream itself is where it was"
