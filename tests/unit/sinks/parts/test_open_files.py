"""The number of part files that an attempt may have open, by the memory of an open file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.open_files import DEFAULT_LIMITS
from mrflight.sinks.parts.part_writer import MIN_OPEN_FILES, FilePartWriter
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import locate


@pytest.mark.parametrize(
    ("url", "memory_mib", "max_open_files"),
    [
        ("table", 16, DEFAULT_LIMITS.max_open_files),
        ("s3://bucket/table", 16, MIN_OPEN_FILES),
        ("s3://bucket/table", 160, 10),
        ("s3://bucket/table", 16_000, DEFAULT_LIMITS.max_open_files),
        ("hdfs://node:8020/table", 80, 10),
    ],
)
def test_open_files_share_the_memory(
    url: str, memory_mib: int, max_open_files: int, tmp_path: Path
) -> None:
    schema = TableSchema(url, True, ("k",), None)
    writer = FilePartWriter(locate(url, tmp_path), "job", schema, FileFormat("delta"))
    assert writer.with_memory_limit(memory_mib << 20).limits.max_open_files == max_open_files


@pytest.mark.parametrize(
    ("url", "memory_mib", "max_closing_files"),
    [
        ("table", 16_000, 0),
        ("s3://bucket/table", 16, 0),
        ("s3://bucket/table", 96, 3),
        ("s3://bucket/table", 16_000, DEFAULT_LIMITS.max_closing_files),
        ("hdfs://node:8020/table", 16, 1),
    ],
)
def test_files_that_are_being_closed_share_half_of_the_memory(
    url: str, memory_mib: int, max_closing_files: int, tmp_path: Path
) -> None:
    schema = TableSchema(url, True, ("k",), None)
    writer = FilePartWriter(locate(url, tmp_path), "job", schema, FileFormat("delta"))
    assert writer.with_memory_limit(memory_mib << 20).max_closing_files == max_closing_files
