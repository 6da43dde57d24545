"""How many part files one attempt has open, by what an open one holds back in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.sinks.encoding import Encoding
from mrflight.sinks.file_part_writer import FEWEST_OPEN_FILES, FilePartWriter
from mrflight.sinks.part_files import BOUNDS
from mrflight.sinks.stored_schema import TableSchema
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
