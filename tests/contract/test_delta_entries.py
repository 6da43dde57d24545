"""Log entries that are put there by us, where deltalake's own transactions cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.storage import Location, hopsfs, locate
from mrflight.storage.delta import (
    TableWrite,
    entry_name,
    first_entry,
    storage_options,
    table_uri,
)
from mrflight.storage.delta_entry import append_entry
from mrflight.storage.part_name import PartId
from tests.services.minio import Bucket
from tests.support.clusters.near_cluster import near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.faults.overwriting_disk import SCHEMA, Job, OverwritingDisk
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup


@pytest.fixture
def lock() -> Iterator[CommitLock]:
    with near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata:
        yield CommitLock(metadata)


def rows(table: deltalake.DeltaTable) -> list[str]:
    return sorted(row["job"] for row in table.to_pyarrow_table().to_pylist())


def test_an_overwrite_removes_what_a_checkpoint_has(tmp_path: Path, lock: CommitLock) -> None:
    """The log's older entries are cleaned up, and there are newer ones after the checkpoint."""
    table = tmp_path / "table"
    for name in ("a", "b"):
        Job(name, table, lock).commit()
    deltalake.DeltaTable(table).create_checkpoint()
    for version in range(2):
        (table / entry_name(version)).unlink()
    assert Job("c", table, lock).commit() == 2
    assert rows(deltalake.DeltaTable(table)) == ["a", "b", "c"]
    assert Job("d", table, lock, "overwrite").commit() == 3
    assert rows(deltalake.DeltaTable(table)) == ["d"]
    assert (table / entry_name(3)).read_text().count('{"remove"') == 3


def test_paths_are_encoded_as_deltalake_does(tmp_path: Path) -> None:
    """Else a file of ours could not be removed again; see `removable_paths`."""
    names = [chr(code) for code in range(1, 0x180) if chr(code) != "/"] + ["€", "\U0001f600"]
    actions = [
        deltalake.transaction.AddAction(f"job={name}/part.parquet", 1, {"job": "1"}, 1, True, "{}")
        for name in names
    ]
    write = TableWrite(SCHEMA, actions, ["job"], deltalake.CommitProperties())
    theirs = first_entry(Location(str(tmp_path), OverwritingDisk()), write)
    added = [
        [json.loads(line)["add"]["path"] for line in entry.splitlines() if line[:6] == b'{"add"']
        for entry in (theirs, append_entry(write))
    ]
    assert len(added[0]) == len(names)
    assert added[0] == added[1]


def sink_of(table: Location, job: int, mode: str) -> tuple[DeltaSink, Commit]:
    """A job that is about to commit a row."""
    output = OutputSection(table=table.url, mode=mode)  # type: ignore[arg-type]
    sink = DeltaSink(table, output, f"20260101T000000-{job:012x}", None)
    row = pa.record_batch({"job": [str(job)], "number": [job]}, schema=SCHEMA)
    return sink, Commit(tuple(sink.part_writer.write(PartId(0, 0), SCHEMA, [row])), SCHEMA)


@pytest.mark.parametrize("below", ["/table", ""])
def test_in_a_bucket_the_second_of_two_looks_again(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """With hops-deltalake, whose transactions lack what is removed and whose they are."""
    table = locate(f"{bucket.url}{below}", tmp_path, bucket.options)
    first, commit = sink_of(table, 0, "append")
    assert commit_and_cleanup(first, commit) == 0
    monkeypatch.setattr(hopsfs, "is_client", lambda: True)
    waiting = [sink_of(table, job, mode) for job, mode in ((1, "append"), (2, "overwrite"))]
    other, commit = sink_of(table, 3, "append")
    assert commit_and_cleanup(other, commit) == 1
    (appends, append), (overwrites, overwrite) = waiting
    assert commit_and_cleanup(appends, append) == 2
    with pytest.raises(CommitError, match="another writer was faster"):
        commit_and_cleanup(overwrites, overwrite)
    overwrites.abort()
    last, commit = sink_of(table, 4, "overwrite")
    assert commit_and_cleanup(last, commit) == 3
    found = deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))
    assert rows(found) == ["4"]
    assert found.transaction_version(f"mrflight-20260101T000000-{4:012x}") == 3


def test_a_partition_value_that_the_client_would_not_find_again_is_refused(tmp_path: Path) -> None:
    """hops-deltalake decodes the names of files, as if they were parts of a URL."""
    output = OutputSection(table=str(tmp_path / "table"), partition_by=["job"])
    sink = DeltaSink(Location(str(tmp_path / "table"), OverwritingDisk()), output, "j", None)
    rows = pa.record_batch({"job": ["plain", "a b"], "number": [1, 2]}, schema=SCHEMA)
    with refused(OutputError):
        sink.part_writer.write(PartId(0, 0), SCHEMA, [rows])
    assert not list(tmp_path.rglob("part-*"))
