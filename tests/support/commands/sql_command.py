"""Runs ``mrflight sql``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.commands.leftovers import nothing_left_over


def command(*words: str) -> list[str]:
    """The words of the command, without progress."""
    return [sys.executable, "-m", "mrflight", "sql", "-q", *words]


def answer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, whose own folder ``tmp`` it leaves empty."""
    with nothing_left_over(folder / "tmp"):
        return subprocess.run(
            command("--set", f"cluster.spill_dir={folder / 'tmp'}", *words),
            cwd=folder,
            capture_output=True,
            text=True,
        )
