"""The cost of a sink of every output format, and what it returns about its files."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.formats import OutputFormat
from tests.support.tables.outputs import NEW, SCHEMA, Output, table_of, written


@pytest.mark.every_format
def test_a_pickled_part_writer_is_small(output: Output) -> None:
    assert len(pickle.dumps(output.open().part_writer)) < 1_000


@pytest.mark.every_format
def test_a_part_file_has_the_size_and_values_of_its_file(output: Output) -> None:
    for part in written(output.open(), NEW):
        path = output.folder / part.path
        assert part.size_bytes == path.stat().st_size
        assert part.rows == (1 if output.partition_by else 2)
        assert part.partition_values == (
            {"k": None if "HIVE" in part.path else part.path[2]} if output.partition_by else {}
        )


@pytest.mark.slow
@pytest.mark.every_format
def test_no_format_imports_slow_modules(tmp_path: Path, format: OutputFormat) -> None:
    stream = tmp_path / "rows"
    with pa.ipc.new_stream(stream, SCHEMA) as writer:
        writer.write_table(table_of(NEW))
    script = f"""
import sys
from pathlib import Path
import pyarrow as pa
import pytest
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.config.output_section import OutputSection
from mrflight.storage.part_name import PartId
rows = pa.ipc.open_stream({str(stream)!r}).read_all()
for mode in ("error", "append", "overwrite"):
    section = OutputSection(table="t", format={format!r}, mode=mode, partition_by=["k"])
    sink = open_sink(section, Path({str(tmp_path)!r}), {{}}, mode, None)
    parts = sink.part_writer.write(PartId(0, 0), rows.schema, rows.to_batches())
    commit = Commit(tuple(parts), rows.schema)
    sink.setup(commit)
    sink.commit(commit)
    sink.cleanup()
print([name for name in ("pyarrow.dataset", "pyarrow.acero", "pandas") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
