"""Commits by HopsFS's client: run as a script, in the environment that has it, which has no pytest.

Each argument is a commit, of one row, as JSON: its table's URL, the metadata server, its job. What
became of them is printed, a JSON object each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.storage.part_name import PartId
from tests.support.tables.commits import commit_and_cleanup

ROOT = Path(__file__).parents[3]
SCHEMA = pa.schema([("job", pa.string()), ("number", pa.int64())])


def start(python: Path, *commits: dict[str, Any]) -> subprocess.Popen[str]:
    """The script, with ``table``, ``metadata``, ``job`` and more of each commit."""
    command = [str(python), "-m", "tests.support.tables.hopsfs_commits", *map(json.dumps, commits)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for the end of a process, and return what it printed."""
    with process:
        lines, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in lines.splitlines()]


def commit(
    table: str, metadata: str, job: str, mode: str = "append", run_id: str | None = None
) -> int | None:
    from mrflight.config.output_section import OutputSection
    from mrflight.sinks.commit.base import Commit
    from mrflight.sinks.commit.commit_lease import CommitLock
    from mrflight.sinks.delta.sink import DeltaSink
    from mrflight.storage import locate

    output = OutputSection(table=table, mode=mode)  # type: ignore[arg-type]
    job_id = f"20260101T000000-{job.encode().hex():0>12}"
    sink = DeltaSink(locate(table, Path("/")), output, job_id, run_id)
    if sink.was_committed():
        return sink.committed_version()
    row = pa.record_batch({"job": [job], "number": [1]}, schema=SCHEMA)
    parts = sink.part_writer.write(PartId(0, 0), SCHEMA, [row])
    return commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA, lock=CommitLock(metadata)))


def main(*commits: str) -> None:
    from mrflight.errors import MrflightError

    for each in commits:
        try:
            result: dict[str, Any] = {"version": commit(**json.loads(each))}
        except MrflightError as error:
            result = {"error": type(error).__name__, "message": str(error)}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
