"""Tests what a run of the suite does with tests that leave something, or are too slow.

Each is a real run of pytest over a file of its own, with the suite's plugins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.suite import timing
from tests.support.suite.messages import refused
from tests.support.suite.waiting import TooSlow, await_that, communicate

ROOT = Path(__file__).parents[3]

PLUGINS = ("run", "marks", "timing", "left_by_files")
INI = f"""
[pytest]
addopts = -ra --strict-markers {" ".join(f"-p tests.support.suite.{name}" for name in PLUGINS)}
markers =
    quick
    smoke
    slow
    soak
    ray
    services
    timing(why)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a file of tests, and return what pytest said."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text(INI)
        (tmp_path / "test_it.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


LEAVES_A_PROCESS = """
import subprocess, sys
from tests.support.suite import left_by_files

left_by_files.LEAVING_S = 0.1  # it would stay for longer

def test_it():
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
"""

LEAVES_A_FILE = """
import tempfile

def test_it():
    tempfile.mkstemp(suffix="-left")
"""


@pytest.mark.slow_but("file")
@pytest.mark.parametrize(
    ("text", "says"),
    [(LEAVES_A_PROCESS, "has left processes"), (LEAVES_A_FILE, "has left files")],
    ids=["process", "file"],
)
def test_what_a_file_leaves_fails_it(run: Run, text: str, says: str) -> None:
    done = run(text)
    assert done.returncode == 1
    assert f"test_it.py {says}" in done.stdout
    assert "1 passed, 1 error" in done.stdout


TOO_SLOW = """
import pytest
from pathlib import Path
from tests.support.suite.waiting import TooSlow

SEEN = Path(__file__).with_name("seen")

{mark}
def test_it():
    if {again}SEEN.exists():
        return
    SEEN.touch()
    raise TooSlow("waited 120 s for a server")
"""
MARK = '@pytest.mark.timing("it is about time")'


def test_a_test_about_time_that_passes_alone_passes_and_is_told(run: Run, tmp_path: Path) -> None:
    done = run(TOO_SLOW.format(mark=MARK, again=""))
    assert done.returncode == 0, done.stdout
    assert "test_it.py::test_it: waited 120 s for a server" in done.stdout
    assert "alone it passed" in done.stdout
    (line,) = (tmp_path / timing.RECORD).read_text().splitlines()
    assert json.loads(line)["reason"] == "waited 120 s for a server"


def test_one_that_is_too_slow_again_fails(run: Run) -> None:
    done = run(TOO_SLOW.format(mark=MARK, again="False and "))
    assert done.returncode == 1
    assert done.stdout.count("alone it FAILED") == 1  # and it is not run a third time


def test_one_that_is_not_about_time_fails_at_once(run: Run) -> None:
    done = run(TOO_SLOW.format(mark="", again=""))
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "alone it" not in done.stdout


def test_a_wrong_answer_of_a_test_about_time_fails_at_once(run: Run) -> None:
    done = run(f"import pytest\n\n{MARK}\ndef test_it():\n    assert 1 == 2\n")
    assert done.returncode == 1
    assert "alone it" not in done.stdout


def test_more_than_three_fail_the_run(run: Run) -> None:
    one = TOO_SLOW.format(mark=MARK, again="").replace("seen", "seen{0}")
    tests = "".join(
        f"\n{MARK}\ndef test_{number}():\n    raise TooSlow('waited')\n" for number in range(4)
    )
    done = run(one.partition("SEEN")[0] + tests)
    assert done.returncode == 1
    assert "too slow: 4, of which 3 may pass when alone" in done.stdout


def test_a_wait_ends_with_the_process_that_is_awaited() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as process:
        with refused(AssertionError):
            await_that(lambda: None, "a file is there", beside=process)
        assert communicate(process, "it") == (None, None)


def test_a_wait_that_is_too_long_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.suite.waiting.HANG_S", 0.0)
    with pytest.raises(TooSlow, match="for a file"):
        await_that(lambda: None, "a file")
