"""Pages do what they say: their files are written, their commands run, their output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = {"tutorial/first-job.md": 8, "how-to/recipes.md": 6}
"""The pages that are complete, with the number of their commands."""
FOLDER = "/home/ann/first-job"
"""The folder in which the reader of a page works."""


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    fence = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
    for found in fence.finditer(page.read_text(encoding="utf-8")):
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
    """A line of a page's output, with any times and sizes."""
    text = re.escape(line.replace(FOLDER, str(folder)))
    return re.sub(r"\d+\\?\.\d+(?=\\ (?:s|KiB|MiB)|,|;)", r"[\\d.,]+", text)


@pytest.mark.slow
@pytest.mark.timeout(240)  # the tutorial ends with a job that starts a Ray
@pytest.mark.parametrize("page", COMMANDS)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    printed, commands = "", 0
    for block in blocks(DOCS / page):
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
    assert commands == COMMANDS[page]
