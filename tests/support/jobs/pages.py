"""Does what a page of the documentation tells its reader to do."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of a page: a file with its name as the title, a command of bash, or an output."""

    language: str
    title: str
    text: str


class Done(NamedTuple):
    """A command and what it printed, as a terminal shows it; empty for another block."""

    block: Block
    printed: str


def follow(page: Path, folder: Path, programs: Path) -> Iterator[Done]:
    """Write the files of a page and run its commands, in ``folder``.

    ``programs`` is the folder of the commands of the environment in which mrflight is installed.
    """
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        block, printed = Block(*found.groups("")), ""
        if block.title and block.title != "Output":
            (folder / block.title).write_text(block.text)
        elif block.language == "bash":
            printed = _run(block.text, folder, programs)
        yield Done(block, printed)


def _run(command: str, folder: Path, programs: Path) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}{done.stdout}"
    return done.stdout
