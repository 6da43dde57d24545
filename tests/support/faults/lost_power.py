"""A disk that loses its power: what is left of a folder after each step of what wrote to it.

The calls of the processes are recorded by a library that is preloaded into them. A replay has the
content of each file as it was last synced, and the names of each folder as they were last synced.
A name that was removed may be there or not, because a file system may note that at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

Names = dict[str, tuple[str, bool]]
"""The names in a folder, each with what it stands for and whether that is a folder."""

_FOLDER, _ROOT = "LOST_POWER", "LOST_POWER_ROOT"


def recording(calls: Path, root: Path) -> dict[str, str]:
    """Return the environment of processes whose syncs below a folder are recorded in another.

    Skips the test without a compiler.
    """
    if shutil.which("cc") is None:
        pytest.skip("no C compiler, cc, is installed")
    calls.mkdir()
    library, source = calls / "lost_power.so", Path(__file__).with_suffix(".c")
    options = ["-O2", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run(["cc", *options, "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), _FOLDER: str(calls), _ROOT: str(root)}


def mark(what: str, path: Path) -> None:
    """Note in a recorded process that it has come so far with what is in a folder."""
    with open(f"{os.environ[_FOLDER]}/log", "a", encoding="utf-8") as log:
        log.write(f"{what}\t\t\t{path}\n")


def sync_all(folder: Path) -> None:
    """Sync a folder with all that is in it, so that it survives."""
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class Call(NamedTuple):
    """A recorded call, or a mark."""

    what: str
    id: str
    copy: Path
    path: Path


def recorded(calls: Path) -> list[Call]:
    """Return all calls in their order."""
    lines = (calls / "log").read_text().splitlines()
    found = (line.split("\t") for line in lines)
    return [Call(what, id, calls / copy, Path(path)) for what, id, copy, path in found]


class Power:
    """What of one folder would be there after a power loss, call by call."""

    def __init__(self, root: Path, *, keeps_removed: bool) -> None:
        """``keeps_removed``: a removed name is there until its folder is synced."""
        self._root = root
        self._root_id = ""
        self._keeps_removed = keeps_removed
        self._content: dict[str, Path] = {}
        self._names: dict[str, Names] = {}

    def apply(self, call: Call) -> None:
        if call.what == "content":
            self._content[call.id] = call.copy
        elif call.what == "names":
            if call.path == self._root:
                self._root_id = call.id
            lines = (line.split("\t") for line in call.copy.read_text().splitlines())
            self._names[call.id] = {name: (id, kind == "d") for id, kind, name in lines}
        elif call.what == "removed" and not self._keeps_removed:
            folder = self._find(call.path.parent)
            if folder is not None:
                folder.pop(call.path.name, None)

    def files(self) -> dict[Path, Path | None]:
        """Return the files that are left, each with its content; None stands for an empty file."""
        return dict(self._below(self._root, self._root_id))

    def _below(self, folder: Path, id: str) -> Iterator[tuple[Path, Path | None]]:
        for name, (each, is_folder) in self._names.get(id, {}).items():
            if is_folder:
                yield from self._below(folder / name, each)
            else:
                yield folder / name, self._content.get(each)

    def _find(self, folder: Path) -> Names | None:
        """Return the names of a folder; None if it would not be there."""
        id = self._root_id
        for name in folder.relative_to(self._root).parts:
            id = self._names.get(id, {}).get(name, ("", False))[0]
        return self._names.get(id)


def restore(files: dict[Path, Path | None], root: Path) -> None:
    """Make a folder hold these files and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if content is None else content.read_bytes())
