"""Tests of maintenance, time travel and schema evolution of a table on every store."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import InputError
from mrflight.frontend import cli
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.job_files import relative_path
from mrflight.sinks.commit.maintenance_report import MaintenanceReport
from mrflight.sinks.delta.maintenance import MaintenanceOptions, maintain
from mrflight.sinks.delta.vacuum import Retention
from mrflight.sources import open_source
from mrflight.storage import Location, locate
from mrflight.storage.delta import storage_options, table_uri
from mrflight.storage.part_name import PartId
from tests.services.minio import Bucket
from tests.support.faults.faulty_run import await_that
from tests.support.tables.commits import commit_and_cleanup

ODD = "50% a=b"
NO_RETRY = MaintenanceOptions(retention=Retention(timedelta(0), is_forced=True))


def begin(table: Location, *numbers: int) -> tuple[Sink, Commit]:
    """Return a job that has written a part per row, with a new column, and has not committed."""
    job_id = f"20260101T000000-{numbers[0]:012x}"
    output = OutputSection(table=table.url, mode="append", schema="evolve", partition_by=["p"])
    sink = open_sink(output, Path("/"), table.options, job_id, None)
    parts = []
    for number in numbers:
        row = pa.record_batch({"p": [ODD], "n": [number], f"of{numbers[0]}": [True]})
        parts += sink.part_writer.write(PartId(number, 0), row.schema, [row])
    return sink, Commit(tuple(parts), row.schema)


def append(table: Location, *numbers: int) -> None:
    sink, commit = begin(table, *numbers)
    commit_and_cleanup(sink, commit)


def opened(table: Location) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))


def numbers(table: Location) -> list[int]:
    """Read the numbers with deltalake."""
    found = opened(table).to_pyarrow_table()
    assert set(found["p"].to_pylist()) == {ODD}
    return sorted(found["n"].to_pylist())


def input_numbers(table: Location, **settings: Any) -> list[int]:
    """Read the numbers as an input, in a version or at a time."""
    spec = InputSpec(path=table.url, **settings)
    source = open_source("rows", spec, Path("/"), table.options, 1 << 30)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return sorted(number for batch in batches for number in batch["n"].to_pylist())


def files(table: Location) -> set[str]:
    return {
        relative_path(table, info.path)
        for info in table.walk()
        if info.is_file and not relative_path(table, info.path).startswith("_delta_log/")
    }


def counts(report: MaintenanceReport) -> tuple[int, int, int]:
    """Return the numbers of files compacted, of files they became, and of files deleted."""
    assert report.compaction is not None
    assert report.vacuum is not None
    return report.compaction.files, report.compaction.into_files, report.vacuum.files


@pytest.mark.everywhere
def test_a_table_is_maintained_while_a_job_runs(place: Location) -> None:
    """The files of the running job are in no log yet, and they have a new column."""
    table = place.child("table")
    append(table, 0, 1)
    old = files(table)
    assert input_numbers(table, version=0) == [0, 1]
    running, commit = begin(table, 2)
    done = maintain(table, NO_RETRY)
    assert (counts(done), done.version, done.checkpoint) == ((2, 1, 2), 3, 3)
    assert table.child(f"_delta_log/{3:020}.checkpoint.parquet").info().is_file
    commit_and_cleanup(running, commit)
    assert numbers(table) == [0, 1, 2]
    assert opened(table).to_pyarrow_table().select(["of0", "of2"]).sort_by("of2").to_pylist() == [
        {"of0": None, "of2": True},
        {"of0": True, "of2": None},
        {"of0": True, "of2": None},
    ]
    assert input_numbers(table, version=1) == [0, 1]
    assert input_numbers(table, timestamp=datetime.now(UTC)) == [0, 1, 2]
    gone = rf"version 0 of {re.escape(table.url)} cannot be read any more: .* read a later version"
    with pytest.raises(InputError, match=gone):
        input_numbers(table, version=0)
    with pytest.raises(InputError, match=r"2020-01-01T00:00:00Z is before .* when version 0, "):
        input_numbers(table, timestamp=datetime(2020, 1, 1, tzinfo=UTC))
    left = files(table)
    assert (len(left), left & old) == (2, set())
    assert left >= {part.path for part in commit.parts}
    rest = MaintenanceOptions(target_bytes=1, retention=NO_RETRY.retention, checkpoints=False)
    nothing = maintain(table, rest)  # the log still has the deleted files
    assert (counts(nothing), nothing.version) == ((0, 0, 0), 5)


@pytest.mark.everywhere
def test_a_timestamp_between_two_commits_selects_the_earlier_one(place: Location) -> None:
    """At that time the table had neither its first version nor its newest one."""
    table = place.child("table")
    append(table, 0)
    append(table, 1)
    between = datetime.now(UTC)
    # S3 has the time of an object in seconds.
    await_that(lambda: int(datetime.now(UTC).timestamp()) > between.timestamp(), "another second")
    append(table, 2)
    assert input_numbers(table, timestamp=between) == [0, 1]
    assert input_numbers(table, timestamp=datetime.now(UTC)) == [0, 1, 2]


def test_the_command_takes_a_buckets_options_from_the_environment(
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = locate(f"{bucket.url}/table", tmp_path, bucket.options)
    append(table, 0, 1)
    for name, value in bucket.options.items():
        monkeypatch.setenv(name.upper(), value)
    assert cli.main(["maintain", table.url]) == 0
    out, message = capsys.readouterr()
    assert message == ""
    assert out.startswith("compact     2 files, ")
    assert numbers(table) == [0, 1]
