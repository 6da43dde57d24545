"""Tests of concurrent commits to one table: on every store, each job's rows are in it once."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.job_files import relative_path
from mrflight.sinks.orphan_files import find_orphan_files, remove_orphan_files
from mrflight.storage import Location, locate
from mrflight.storage.delta import FIRST_ENTRY, storage_options, table_uri
from mrflight.storage.part_name import PartId
from tests.services.hdfs import Hdfs
from tests.support.commands.threads import run_threads
from tests.support.tables.commits import commit_and_cleanup

WRITERS, COMMITS = 2, 4
SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])


def commit_one(table: Location, writer: int, number: int) -> None:
    """Commit one row like a job."""
    job_id = f"20260101T00000{number}-{writer:012x}"
    output = OutputSection(table=table.url, mode="append")
    sink = open_sink(output, Path("/"), table.options, job_id, None)
    row = pa.record_batch({"writer": [writer], "number": [number]}, schema=SCHEMA)
    parts = sink.part_writer.write(PartId(0, 0), SCHEMA, [row])
    commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))


def commit_some(table: Location, writer: int) -> None:
    """Commit like several jobs. The first one creates the table, unless the other writer has."""
    for number in range(COMMITS):
        commit_one(table, writer, number)


@pytest.mark.everywhere
def test_concurrent_appends_are_all_kept(place: Location) -> None:
    table = place.child("table")
    run_threads([partial(commit_some, table, writer) for writer in range(WRITERS)])
    found = deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted((row["writer"], row["number"]) for row in rows) == [
        (writer, number) for writer in range(WRITERS) for number in range(COMMITS)
    ]
    assert found.version() == WRITERS * COMMITS - 1
    names = {info.base_name for info in table.walk() if info.base_name.startswith("part-")}
    assert names == {uri.rpartition("/")[2] for uri in found.file_uris()}


BEGUN = """
import os, sys
from pathlib import Path
from mrflight.storage import locate
files = [locate(url, Path("/")).create() for url in sys.argv[1:]]
for file in files:
    file.write(b"half a file")
os._exit(9)
"""


def test_unfinished_files_of_a_killed_writer_in_hdfs_do_not_block_commits(
    hdfs: Hdfs, tmp_path: Path
) -> None:
    """Until a file is closed it has a temporary name, which does not count as a table."""
    table = locate(hdfs.folder(), tmp_path).child("table")
    part = "part-00000-0-20260101T000000-aaaaaaaaaaaa.parquet"
    urls = [table.child(name).url for name in (part, FIRST_ENTRY)]
    assert subprocess.run([sys.executable, "-c", BEGUN, *urls]).returncode == 9
    begun = {relative_path(table, info.path) for info in table.walk() if info.is_file}
    assert begun == {f".{part}.tmp.1", f"_delta_log/.{0:020}.json.tmp.1"}
    commit_one(table, 0, 0)
    left = find_orphan_files(table, datetime.now(UTC) + timedelta(minutes=1))
    assert {file.path for file in left.files} == begun
    assert {file.job_id for file in left.files} == {"20260101T000000-aaaaaaaaaaaa", None}
    remove_orphan_files(table, left)
    found = deltalake.DeltaTable(table_uri(table)).to_pyarrow_table()
    assert found.to_pylist() == [{"writer": 0, "number": 0}]
    assert sum(info.is_file for info in table.walk()) == 2
