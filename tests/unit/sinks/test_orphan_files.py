"""If a log cannot be read completely, no file beside it is taken for an orphan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mrflight.errors import OutputError
from mrflight.sinks.orphan_files import find_orphan_files
from mrflight.storage import locate
from tests.support.suite.messages import refused


@pytest.mark.parametrize(
    "line", ["[]", "7", '"add"', '{"add": "x"}', '{"add": {"path": 7}}', '{"remove": [1]}', "{"]
)
def test_a_log_with_invalid_lines_is_refused(tmp_path: Path, line: str) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text(f"{line}\n")
    (tmp_path / "part-00000-0-20200101T000000-abcdefabcdef.parquet").write_bytes(b"mine")
    with refused(OutputError):
        find_orphan_files(locate(".", tmp_path), datetime.now(UTC))
