"""An error of the Python API ends in its message, without frames and causes of mrflight."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import mrflight
from mrflight.errors import JobFileError, MrflightError
from tests.support.suite.messages import refused

ROWS = mrflight.read("rows.csv", types={"n": "int65"})

Call = Callable[[], object]

CALLS: list[Call] = [
    lambda: ROWS.schema,
    lambda: ROWS.explain(),
    lambda: ROWS.head(),
    lambda: ROWS.show(),
    lambda: ROWS.count(),
    lambda: ROWS.job("out", mode="x"),
    lambda: ROWS.filter(),
    lambda: ROWS.group_by(),
    lambda: ROWS.group_by("n").limit(3),  # type: ignore[attr-defined]
    lambda: mrflight.read(3),  # type: ignore[arg-type]
    lambda: mrflight.read_table("nothing"),
    lambda: mrflight.run("nothing.toml"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("n\n1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MRFLIGHT_DEBUG", raising=False)


def raised_by(call: Call) -> MrflightError:
    with pytest.raises(MrflightError) as raised:
        call()
    return raised.value


def frames_of(error: BaseException) -> list[str]:
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("call", CALLS)
def test_frames_and_causes_are_left_out(call: Call) -> None:
    error = raised_by(call)
    assert frames_of(error) == ["test_clear_errors.py", "test_clear_errors.py", "clear_errors.py"]
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_frames_and_causes_stay_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRFLIGHT_DEBUG", "1")
    error = raised_by(lambda: ROWS.schema)
    assert "type_names.py" in frames_of(error)
    assert isinstance(error.__cause__, ValueError)
    assert str(error).startswith("inputs.rows.types.n: 'int65' is not a type")


def test_an_interrupt_has_no_frames_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mrflight.frontend.first_rows.plan_here", interrupt)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        ROWS.head()
    assert frames_of(interrupted.value) == ["test_clear_errors.py", "clear_errors.py"]


def test_an_error_can_be_pickled_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may run it in a process of its own, which a notebook has forked."""
    shell = SimpleNamespace(get_ipython=lambda: "the shell")
    monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[arg-type]
    error = raised_by(lambda: ROWS.schema)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (type(error), str(error))


def test_a_bug_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrflight.frontend.first_rows.plan_here", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError) as raised:
        ROWS.head()
    assert "first_rows.py" in frames_of(raised.value)


def test_the_mistakes_of_a_job_file_have_its_keys(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[job]\nname = 'x'\n[inputs.rows]\npth = 'x'\n")
    with refused(JobFileError, "inputs.rows.pth"):
        mrflight.run("job.toml")


def test_an_iteration_has_the_same_errors() -> None:
    with ROWS.batches(progress=False) as batches, refused(JobFileError) as raised:
        next(batches)
    assert frames_of(raised.value) == ["test_clear_errors.py", "clear_errors.py"]
