"""Check the table of a disturbed job: its rows, its number of commits, and its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from experiments import mrflight_job, oracle

_CLEAN_TIMEOUT_S = 60.0


def table_is_untouched(table: Path) -> bool:
    """Return whether a table that did not exist before the job has no log."""
    return not (table / "_delta_log").exists()


def result_of(table: Path, expected: pa.Table) -> list[str]:
    """Return what is wrong with the rows and versions of a table that should have one commit."""
    versions = len(list((table / "_delta_log").glob("*.json")))
    wrong = [] if versions == 1 else [f"{versions} commits instead of one"]
    try:
        oracle.check(mrflight_job.read_table(table), expected, "the table")
    except oracle.WrongResultError as error:
        wrong.append(str(error))
    return wrong


def files_left(table: Path) -> tuple[int, list[str]]:
    """Return the number of files that ``mrflight clean`` removed, and the files that it left over.

    A file is left over if the log does not name it. If ``clean`` fails, the second value is its
    error.
    """
    before = _unnamed(table)
    command = [sys.executable, "-m", "mrflight.frontend.cli", "clean", str(table)]
    done = subprocess.run(
        [*command, "--older-than", "0 s", "--remove"],
        capture_output=True,
        text=True,
        timeout=_CLEAN_TIMEOUT_S,
    )
    if done.returncode:
        return 0, [f"mrflight clean failed: {done.stderr}"]
    left = _unnamed(table)
    return len(before) - len(left), [f"file {name}" for name in sorted(left)]


def _unnamed(table: Path) -> set[str]:
    """Return the files in a table's folder that its log does not name, except the log itself."""
    from deltalake import DeltaTable

    named = {Path(unquote(uri)).name for uri in DeltaTable(str(table)).file_uris()}
    files = [path for path in table.rglob("*") if path.is_file()]
    log = table / "_delta_log"
    return {path.name for path in files if log not in path.parents} - named
