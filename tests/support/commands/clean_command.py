"""Runs ``mrflight clean`` in the test's own process, because a new one takes 0.5 s to start.

tests/fault/test_clean_orphan_files.py tests the command as a process.
"""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from mrflight.frontend import cli


@dataclass(frozen=True)
class Cleaned:
    """The result of the command."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def files(self) -> set[str]:
        """The files that it lists."""
        return {line.split("  ")[0] for line in self.stdout.splitlines()}


def run_clean(table: Path, *options: str) -> Cleaned:
    return run_command("clean", str(table), *options)


def run_clean_in(catalog: str, table: str, *options: str, prefix: str = "") -> Cleaned:
    """Clean a table of a catalog, whose URI may have a password, which is no argument."""
    with patch.dict(os.environ, CATALOG=catalog):
        return run_command("clean", table, "--catalog", f"{prefix}env:CATALOG", *options)


def run_command(name: str, *options: str) -> Cleaned:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main([name, *options])
    return Cleaned(code, out.getvalue(), err.getvalue())
