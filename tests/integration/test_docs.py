"""The tutorial does what it says: its files are written, its commands run, its output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial/first-job.md"
FOLDER = "/home/ann/first-job"
"""The folder in which the reader of the tutorial works."""


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks() -> Iterator[Block]:
    fence = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
    for found in fence.finditer(TUTORIAL.read_text(encoding="utf-8")):
        yield Block(*found.groups(""))


def run(command: str, folder: Path) -> str:
    """Return what a command prints, as a terminal shows it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{command}{done.stdout}"
    return done.stdout


def pattern_of(line: str, folder: Path) -> str:
    """A line of the tutorial's output, with any times and sizes."""
    text = re.escape(line.replace(FOLDER, str(folder)))
    return re.sub(r"\d+\\?\.\d+(?=\\ (?:s|KiB|MiB)|,|;)", r"[\\d.,]+", text)


@pytest.mark.slow
@pytest.mark.timeout(240)  # it ends with a job that starts a Ray
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    printed, commands = "", 0
    for block in blocks():
        if block.title == "Output":
            for line in block.text.splitlines():
                assert re.search(rf"^{pattern_of(line, tmp_path)}$", printed, re.MULTILINE), (
                    f"{line!r} is not in:\n{printed}"
                )
        elif block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "bash":
            printed = run(block.text, tmp_path)
            commands += 1
    assert commands >= 8
