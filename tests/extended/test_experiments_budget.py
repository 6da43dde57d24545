"""``experiments/budget.py`` attributes what a job spends, nearly all of it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.support.commands.experiments import ROOT, python

pytestmark = pytest.mark.soak

SMALL = "small of two partitions"


@pytest.mark.skipif(sys.platform != "linux", reason="the sampler reads the clocks of Linux")
class TestBudget:
    """``experiments/budget.py`` attributes what a job spends, nearly all of it."""

    def test_the_stages_agree_with_the_processor_time(self, tmp_path: Path) -> None:
        python("-m", "experiments.budget", "--jobs", SMALL, "--rounds", 3, "--out", tmp_path)
        (budget,) = json.loads((tmp_path / "budget.json").read_text())["budgets"]
        stages = budget["stages"]
        unattributed, spent = stages["unattributed"], sum(budget["sampled"]["cpu_s"]) / 3
        assert sum(stages.values()) == pytest.approx(spent)
        assert abs(unattributed) < 0.15 * spent
        assert set(budget["roles"]) == {
            *("driver", "fork server", "worker", "data server", "metadata server")
        }
        assert stages["start"] > spent / 4  # 1,000 rows take next to nothing

    def test_the_stages_name_what_there_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.budgeting import stages

        for frame in stages.named_frames():
            module, _, function = frame.partition(":")
            source = Path(importlib.import_module(module.rstrip(".")).__file__ or "").read_text()
            assert not function or f"def {function}(" in source or function == "<genexpr>", frame

    def test_of_several_rules_the_innermost_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.budgeting.stages import Role, Stage, Threads, stage_of

        frames = ["pyarrow:x", "mrflight.sources.lines:_fill", "mrflight.tasks.mapper:_read"]
        assert stage_of(frames, Role.WORKER) is Stage.READ
        assert stage_of(["importlib._bootstrap:_load", *frames], Role.WORKER) is Stage.START
        assert stage_of(["pyarrow:x"], Role.WORKER) is Stage.UNKNOWN
        threads = Threads(Role.WORKER)
        assert threads.stage_of("event_engine", frames) is Stage.START
        threads.see(Stage.SEND)
        assert threads.stage_of("event_engine", frames) is Stage.SEND
        assert threads.stage_of("mrflight-worker0", frames) is Stage.READ
