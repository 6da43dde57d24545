"""With CI=true a skipped test fails, however it is skipped; an expected failure does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

pytestmark = pytest.mark.slow

@pytest.mark.skipif(True, reason="by a mark")
def test_marked(): ...

def test_in_its_body():
    pytest.skip("by itself")

@pytest.fixture
def nothing():
    pytest.skip("by a fixture")

def test_of_a_fixture(nothing): ...

@pytest.mark.xfail(reason="known")
def test_known():
    raise ValueError

@pytest.mark.xfail(reason="known", run=False)
def test_known_and_not_run(): ...

def test_that_passes(): ...
"""
FILE = 'import pytest; pytest.importorskip("no_such_module")'
REASONS = ["by a mark", "by itself", "by a fixture", "No module named 'no_such_module'"]


def run(folder: Path, ci: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder, with the hooks of this suite."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(folder)],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-n0"], ["-n1"]], ids=["one process", "xdist"])
def test_a_skipped_test_fails_in_ci_with_its_reason(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_file.py").write_text(FILE)
    options = [*options, "--continue-on-collection-errors"]
    done = run(tmp_path, "true", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 2 xfailed, 3 errors" in done.stdout
    for reason in REASONS:
        assert f"{reason}; with CI=true nothing may be skipped" in done.stdout
    done = run(tmp_path, "", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 4 skipped, 2 xfailed" in done.stdout
