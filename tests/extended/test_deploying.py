"""The files of deploy/ are what the tools that read them take, and nothing in them is unsafe."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MAX_EXPOSURE = 20
"""Tenths of systemd's score, from 0 to 100: up to 20 is safe in its own words (OK)."""


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program in the root of the repository; its output is in ``stdout``."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_the_dockerfile_has_no_warnings(needs_validators: Path) -> None:
    done = run([needs_validators / "bin/hadolint", "--no-color", DEPLOY / "Dockerfile"])
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there_and_is_not_ignored() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {"mrflight", "servers", "kernel", "pyproject.toml"} < names
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    kept = {pattern.removeprefix("!") for pattern in ignored if pattern.startswith("!")}
    assert ignored[0] == "*"
    assert names == kept
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_last_stage_of_the_image_is_not_run_by_root() -> None:
    stage = (DEPLOY / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", stage, re.MULTILINE)
    assert fnmatch(stage, "python:*-slim-*")


@pytest.fixture
def validating(needs_validators: Path) -> list[str | Path]:
    return [needs_validators / "bin/python", "-m", "tests.support.clusters.validate_deployments"]


def test_compose_and_kubernetes_take_their_files(
    validating: list[str | Path], needs_validators: Path
) -> None:
    done = run([*validating, DEPLOY, needs_validators / "rayjobs.yaml"])
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("compose.yaml", "stop_grace_period", "stop_grace"),
        ("kubernetes/data.yaml", "terminationGracePeriodSeconds", "terminationGraceSeconds"),
        ("kubernetes/data.yaml", "containerPort: 5006", "containerPort: flight"),
        ("kubernetes/ray-job.yaml", "shutdownAfterJobFinishes", "shutdownAfterwards"),
        ("kubernetes/ray-job.yaml", "containerPort: 6379", "containerPorts: 6379"),
    ],
)
def test_a_mistake_would_be_found(
    name: str,
    old: str,
    new: str,
    validating: list[str | Path],
    needs_validators: Path,
    tmp_path: Path,
) -> None:
    copied = shutil.copytree(DEPLOY, tmp_path / "deploy")
    text = (copied / name).read_text()
    assert old in text
    (copied / name).write_text(text.replace(old, new))
    done = run([*validating, copied, needs_validators / "rayjobs.yaml"])
    assert done.returncode != 0
    assert new.partition(":")[0] in done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="install systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units_and_finds_them_safe(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "mrflight"
    program.symlink_to("/bin/true")  # a unit whose program is not there is wrong
    copied = tmp_path / unit.name
    copied.write_text(unit.read_text().replace("/opt/mrflight/bin/mrflight", str(program)))
    verified = run(["systemd-analyze", "verify", "--man=no", copied])
    assert (verified.returncode, verified.stdout) == (0, "")
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={MAX_EXPOSURE}"]
    judged = run([*command, copied])
    assert judged.returncode == 0, judged.stdout
