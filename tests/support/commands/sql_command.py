"""Runs ``mrflight sql``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.commands.leftovers import nothing_left_over
from tests.support.commands.mrflight import mrflight


def command(*words: str) -> list[str]:
    """Return the words of a command that starts cold, without progress."""
    return [sys.executable, "-m", "mrflight", "sql", "-q", *words]


def answer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, whose own folder ``tmp`` it leaves empty."""
    with nothing_left_over(folder / "tmp"):
        spill_dir = f"cluster.spill_dir={folder / 'tmp'}"
        return mrflight("sql", "-q", "--set", spill_dir, *words, cwd=folder)
