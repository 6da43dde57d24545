"""What `make services` takes from the cache of the user, and what it leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GO = """#!/bin/sh
echo "$@" >> {calls}
echo built > "$GOBIN/minio"
chmod u+x "$GOBIN/minio"
"""
TOOLS = [
    "basename",
    "cat",
    "chmod",
    "command",
    "cp",
    "cut",
    "make",
    "mkdir",
    "mv",
    "python3",
    "rm",
    "sh",
    "touch",
    "tr",
    "uname",
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What of a clone make needs for a server, and a folder of few programs."""
    folder = tmp_path / "clone"
    (folder / "tests").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tests" / "services", folder / "tests" / "services")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in TOOLS:
        if (path := shutil.which(name)) is not None:
            (programs / name).symlink_to(path)
    return folder


def make(clone: Path, *services: str) -> str:
    return subprocess.run(
        ["make", "services", f"SERVICES={' '.join(services)}"],
        cwd=clone,
        env={"PATH": str(clone.parent / "programs"), "HOME": str(clone.parent / "home")},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout


def test_minio_is_built_once_for_all_clones(clone: Path) -> None:
    calls = clone.parent / "calls"
    go = clone.parent / "programs" / "go"
    go.write_text(GO.format(calls=calls))
    go.chmod(0o700)
    server = clone / ".services" / "bin" / "minio"

    assert "MinIO is built" in make(clone, "minio")
    assert server.read_text() == "built\n"
    shutil.rmtree(clone / ".services")
    assert "MinIO is built" not in make(clone, "minio")
    assert server.read_text() == "built\n"
    assert os.access(server, os.X_OK)
    version = (ROOT / "tests" / "services" / "minio.txt").read_text().strip()
    assert calls.read_text() == f"install {version}\n"


def test_what_there_are_no_tools_for_is_named(clone: Path) -> None:
    said = make(clone, "minio", "hdfs", "spark", "validators").splitlines()
    assert said == [
        "there is no Go: minio validators left out",
        "there is no Java: spark left out",
        "there is no Java or no Maven: hdfs left out",
    ]
    assert not (clone / ".services").exists()
