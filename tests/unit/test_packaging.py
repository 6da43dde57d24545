"""Tests of the installed package: its folders, its exact dependencies, and how it is found."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed() -> None:
    folders = {folder.parent.relative_to(ROOT) for folder in ROOT.glob("mrflight/**/__init__.py")}
    found = {".".join(folder.parts) for folder in folders} | {"mrflight.servers"}
    assert found == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_every_file_beside_the_modules_is_installed() -> None:
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    listed = {
        path
        for package, patterns in data.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    files = {path for path in (ROOT / "mrflight").rglob("*") if path.is_file()}
    built = {path for path in files if path.suffix in {".py", ".pyc", ".so"}}
    assert files - built - listed == set()


def test_every_dependency_has_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    exact = re.compile(r"([a-z0-9-]+)==[0-9][a-z0-9.]*( ; .+)?")
    assert [pin for pin in pins if not exact.fullmatch(pin)] == []
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in requirements}
    assert names <= {pin.partition("==")[0] for pin in pins}


def test_the_kernels_crates_come_from_crates_io() -> None:
    lock = tomllib.loads((ROOT / "kernel" / "Cargo.lock").read_text())
    sources = {package.get("source") for package in lock["package"]}
    assert sources == {None, "registry+https://github.com/rust-lang/crates.io-index"}


@pytest.fixture
def parent_of_clone(tmp_path: Path) -> Path:
    """Return a folder that contains a clone named mrflight."""
    (tmp_path / "mrflight").symlink_to(ROOT)
    return tmp_path


def python(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_servers_are_found_from_anywhere(parent_of_clone: Path) -> None:
    for here in (ROOT, Path("/"), parent_of_clone):
        done = python(here, "-m", "mrflight.servers.metadata", "--help")
        assert done.returncode == 0, (here, done.stderr)
        assert "--port" in done.stdout


def test_a_clone_in_the_working_directory_does_not_hide_the_package(parent_of_clone: Path) -> None:
    done = python(
        parent_of_clone,
        "-c",
        "import mrflight.compute.kernel; mrflight.connect, mrflight.partition_ids",
    )
    assert done.returncode == 0, f"{done.stderr}\nwas `make install` run?"


@pytest.mark.parametrize("name", ["servers", "kernel", "tests", "experiments", "_kernel"])
def test_nothing_but_the_package_is_installed(name: str) -> None:
    assert f"No module named '{name}'" in python(Path("/"), "-c", f"import {name}").stderr
