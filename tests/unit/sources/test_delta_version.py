"""Tests of the version of a Delta table that an input reads."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.errors import InputError, JobFileError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.sources.delta_version import VersionRange, available_versions

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table with one version a day, whose only row is the version's number."""
    for n in range(4):
        write_deltalake(tmp_path, pa.table({"n": [n]}), mode="overwrite")
        at = (FIRST + n * DAY).timestamp()
        os.utime(tmp_path / "_delta_log" / f"{n:020}.json", (at, at))
    return tmp_path


def open_table(path: Path, **options: Any) -> Source:
    return open_source("rows", InputSpec(path=str(path), **options), Path("/"), {}, 1 << 30)


def read(path: Path, **options: Any) -> tuple[int | None, list[int]]:
    source = open_table(path, **options)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return source.version, [n for batch in batches for n in batch["n"].to_pylist()]


def test_the_newest_version_is_read_by_default(table: Path) -> None:
    assert read(table) == (3, [3])


@pytest.mark.parametrize("version", range(4))
def test_a_version_is_read(table: Path, version: int) -> None:
    assert read(table, version=version) == (version, [version])


@pytest.mark.parametrize(
    ("time", "version"),
    [
        (FIRST, 0),
        (FIRST + 1.5 * DAY, 1),
        (FIRST + 2 * DAY - timedelta(milliseconds=1), 1),
        ((FIRST + 2 * DAY).astimezone(timezone(timedelta(hours=5))), 2),
        (FIRST + 30 * DAY, 3),
    ],
)
def test_a_timestamp_selects_the_version_of_that_time(
    table: Path, time: datetime, version: int
) -> None:
    assert read(table, timestamp=time) == (version, [version])


def refused(kind: type[Exception], path: Path, **options: Any) -> str:
    with pytest.raises(kind) as raised:
        open_table(path, **options)
    return str(raised.value)


def test_the_error_for_a_missing_version_lists_the_available_ones(table: Path) -> None:
    assert refused(InputError, table, version=4) == (
        f"inputs.rows.version: {table} has no version 4; its log has versions 0 to 3"
    )
    DeltaTable(table, version=2).create_checkpoint()
    for n in range(2):
        (table / "_delta_log" / f"{n:020}.json").unlink()
    assert refused(InputError, table, version=1).endswith(
        "no version 1; its log has versions 2 to 3"
    )
    assert read(table, version=2) == (2, [2])
    message = refused(InputError, table, timestamp=FIRST + DAY)
    assert message.startswith(
        "inputs.rows.timestamp: 2026-01-02T00:00:00Z is before 2026-01-03T00:"
    )
    assert f"when version 2, the first in the log of {table}, was committed" in message


def test_a_time_before_the_first_version_is_refused(table: Path) -> None:
    message = refused(InputError, table, timestamp=FIRST - timedelta(seconds=1))
    assert message == (
        "inputs.rows.timestamp: 2025-12-31T23:59:59Z is before 2026-01-01T00:00:00Z, when "
        f"version 0, the first in the log of {table}, was committed"
    )


def test_invalid_versions_and_timestamps_are_refused(table: Path) -> None:
    assert "inputs.rows.version must be 0 or more, not -1" in refused(
        JobFileError, table, version=-1
    )
    both = refused(JobFileError, table, version=1, timestamp=FIRST)
    assert both == "inputs.rows.version and timestamp cannot both be set; remove one"
    without_zone = refused(JobFileError, table, timestamp=FIRST.replace(tzinfo=None))
    assert without_zone.endswith("00:00:00 has no time zone; write 2026-01-01T00:00:00Z for UTC")
    assert "is in the future" in refused(JobFileError, table, timestamp=datetime.now(UTC) + DAY)
    (table / "x.csv").write_text("n\n1\n")
    message = refused(JobFileError, table / "x.csv", version=1)
    assert message == "inputs.rows.version is only for Delta tables; csv files have no versions"


def test_a_vacuumed_version_is_refused(table: Path) -> None:
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    message = refused(InputError, table, version=1)
    assert re.match(rf"version 1 of {table} cannot be read any more: a vacuum", message)
    assert read(table, version=3) == (3, [3])


def test_a_missing_file_of_the_newest_version_is_not_blamed_on_vacuum(table: Path) -> None:
    (file,) = DeltaTable(table).file_uris()
    Path(file).unlink()
    assert "vacuum" not in refused(InputError, table)


@pytest.mark.parametrize("value", ["soon", "2026-01-01", datetime(2026, 1, 1).date(), 7])
def test_the_error_for_an_invalid_timestamp_shows_a_valid_one(value: object) -> None:
    rows = {"path": "t", "timestamp": value}
    job = {"job": {"name": "j"}, "inputs": {"rows": rows}, "output": {"table": "out"}}
    with pytest.raises(JobFileError) as raised:
        decode_job(job)
    message = f"inputs.rows.timestamp: {str(value)!r} is not a time such as '2026-11-21T10:00:00Z'"
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        ([], None),
        (["_last_checkpoint", ".tmp"], None),
        ([f"{n:020}.json" for n in range(3)], VersionRange(0, 2)),
        ([f"{5:020}.checkpoint.parquet", f"{6:020}.json"], VersionRange(5, 6)),
        ([f"{4:020}.json", f"{5:020}.checkpoint.parquet", f"{6:020}.json"], VersionRange(5, 6)),
        ([f"{0:020}.json", f"{10:020}.checkpoint.{1:010}.{2:010}.parquet"], VersionRange(0, 10)),
    ],
)
def test_available_versions_of_a_log(names: list[str], versions: VersionRange | None) -> None:
    assert available_versions(names) == versions
