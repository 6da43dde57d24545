"""A stream into Iceberg and DuckLake tables, which stock readers find complete, and upkeep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake

from mrflight.streams.table_upkeep import COMPACT_EVERY
from tests.services.kafka import Kafka
from tests.support.ducklakes import DuckLake
from tests.support.ingest_job import INGEST, Stream, await_true, check_once, ingest, numbered
from tests.support.job_sections import toml_section
from tests.support.lakes import Lake
from tests.support.running_command import running_command

FIRST, EVENTS = 100, 1200


@dataclass(frozen=True)
class Target:
    """A table in a catalog: the lines of the job that name it, and its rows."""

    output: str
    rest: str
    rows: Callable[[], list[tuple[Any, ...]]]
    """The producer, number, partition and offset of each row."""


def in_iceberg(lake: Lake) -> Target:
    def rows() -> list[tuple[Any, ...]]:
        return lake.rows("producer", "number", "_partition", "_offset", by_polars=False)

    return Target(lines(lake.section()), toml_section("storage", lake.storage), rows)


def in_ducklake(lake: DuckLake) -> Target:
    keys = ("table", "format", "catalog", "data_path")
    section = {key: getattr(lake.section(), key) for key in keys}
    columns = 'producer, number, "_partition", "_offset"'
    return Target(lines(section), toml_section("storage", lake.options), lambda: lake.read(columns))


def lines(section: dict[str, Any]) -> str:
    return "\n".join(toml_section("output", section).splitlines()[1:])


def write_job(stream: Stream, target: Target) -> Path:
    path = stream.write_job(output=target.output, stream="max_rows = 200", rest=target.rest)
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
    command = [*INGEST, str(job)]
    with running_command(command) as one:
        if alone:
            assert one.stderr is not None
            assert "version" in one.stderr.readline(), "the first commit is shown"
            one.kill()
        else:
            with running_command(command) as other:
                await_true(lambda: len(target.rows()) >= EVENTS // 2, "half of the rows are there")
                one.kill()
                other.terminate()
                _, stderr = other.communicate()
                assert other.returncode == 0, stderr
    run = ingest(job)
    assert run.code == 0, run.stderr
    assert ingest(job).result["commits"] == 0
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


def test_the_small_files_of_a_stream_are_compacted_between_its_commits(
    kafka: Kafka, tmp_path: Path
) -> None:
    stream = Stream(kafka, kafka.topic(1), tmp_path)
    count = 10 * (COMPACT_EVERY + 5)
    stream.produce(numbered(1, range(count)))
    run = ingest(stream.write_job(stream="max_rows = 10"))
    assert run.code == 0, run.stderr
    assert run.result["commits"] == COMPACT_EVERY + 5
    table = deltalake.DeltaTable(stream.table)
    assert table.version() == COMPACT_EVERY + 5, "one version more: the compaction"
    assert len(table.file_uris()) == 6, "one that was compacted, and those of the commits after it"
    check_once(stream.rows(), {1: count})
