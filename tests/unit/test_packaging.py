"""Tests of the installed package: its folders, its exact dependencies, and how it is found."""

from __future__ import annotations

import os
import re
import shutil
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


@pytest.mark.slow
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


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return what `make` looks at of a clone, in which nothing is installed."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )


def install_nothing(clone: Path, *stamps: str) -> None:
    """Make an environment whose Python does nothing, in which parts are said to be installed."""
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(shutil.which("true") or "/bin/true")
    (clone / ".venv/pyvenv.cfg").write_text(f"command = python3 -m venv {clone}/.venv\n")
    has_cargo = shutil.which("cargo") is not None
    for stamp in (".package-with-kernel" if has_cargo else ".package", *stamps):
        (clone / ".venv" / stamp).touch()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["PYTHON="], "no Python 3.11 or newer was found: install one"),
        (["PYTHON=false"], "false does not run, or is older than Python 3.11: name another one"),
        (["--makefile", str(ROOT / "Makefile"), "-C", "/"], "this is not the folder of mrflight"),
    ],
)
def test_make_says_what_to_do_where_it_cannot_start(
    clone: Path, words: list[str], message: str
) -> None:
    done = make(clone, *words, "demo")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("damage", ["the Python is gone", "the clone was moved"])
def test_make_says_what_to_do_with_an_environment_that_does_not_work(
    clone: Path, damage: str
) -> None:
    install_nothing(clone, ".demo")
    if damage == "the Python is gone":
        (clone / ".venv/bin/python").unlink()
        (clone / ".venv/bin/python").symlink_to("/nowhere/python3.11")
    else:
        (clone / ".venv/pyvenv.cfg").write_text("command = python3 -m venv /elsewhere/.venv\n")
    done = make(clone, "demo")
    assert done.returncode == 2
    assert "run make again: rm -rf .venv" in done.stderr
    assert make(clone, "--dry-run", "clean").returncode == 0


@pytest.mark.parametrize(
    ("stamps", "target", "installs"),
    [
        ([], "demo", ["delta sql"]),
        ([".demo"], "demo", []),
        ([".installed"], "demo", []),
        (
            [".demo"],
            "install",
            ["avro delta hdfs iceberg kafka protobuf ray-data s3 tls sql bench dev"],
        ),
        ([".installed"], "install", []),
    ],
)
def test_make_installs_what_a_target_needs_and_nothing_twice(
    clone: Path, stamps: list[str], target: str, installs: list[str]
) -> None:
    install_nothing(clone, *stamps)
    planned = make(clone, "--dry-run", target).stdout
    assert re.findall(r'"installing mrflight into \.venv, with (.*)"', planned) == installs
    assert planned.count("pip install") == len(installs)
