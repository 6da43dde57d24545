"""How many part files one attempt has open, by what an open one holds back in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.sinks.parts.encoding import Encoding
from mrflight.sinks.parts.part_files import BOUNDS
from mrflight.sinks.parts.part_writer import FEWEST_OPEN_FILES, FilePartWriter
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import locate


@pytest.mark.parametrize(
    ("url", "memory_mib", "open_files"),
    [
        ("table", 16, BOUNDS.open_files),
        ("s3://bucket/table", 16, FEWEST_OPEN_FILES),
        ("s3://bucket/table", 160, 10),
        ("s3://bucket/table", 16_000, BOUNDS.open_files),
        ("hdfs://node:8020/table", 80, 10),
    ],
)
def test_open_files_share_the_memory(
    url: str, memory_mib: int, open_files: int, tmp_path: Path
) -> None:
    schema = TableSchema(url, True, ("k",), None)
    writer = FilePartWriter(locate(url, tmp_path), "job", schema, Encoding("delta"))
    assert writer.within(memory_mib << 20).bounds.open_files == open_files


@pytest.mark.parametrize(
    ("url", "memory_mib", "closing_files"),
    [
        ("table", 16_000, 0),
        ("s3://bucket/table", 16, 0),
        ("s3://bucket/table", 96, 3),
        ("s3://bucket/table", 16_000, BOUNDS.closing_files),
        ("hdfs://node:8020/table", 16, 1),
    ],
)
def test_files_that_are_being_closed_share_half_of_that(
    url: str, memory_mib: int, closing_files: int, tmp_path: Path
) -> None:
    schema = TableSchema(url, True, ("k",), None)
    writer = FilePartWriter(locate(url, tmp_path), "job", schema, Encoding("delta"))
    assert writer.within(memory_mib << 20).closing_files == closing_files
