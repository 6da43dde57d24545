"""Experiments that start a Ray cluster of their own: each once, on next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands.experiments import contents, python

TIMEOUT_S = 300.0
"""Each takes 20 s with two free cores. Four of them at once took 52 to 72 s each, and what a test
of five shares its cores with may be slower than that: see `test_shuffle_on_ray.py`."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(TIMEOUT_S + 60), pytest.mark.xdist_group("ray")]


class TestExperimentsOnRay:
    """They run after other tests on Ray, not beside them: a second cluster takes as much again."""

    @pytest.mark.parametrize(("module", "rows"), [("executors", 20_000), ("ray_faults", 3_000_000)])
    def test_leaves_its_figures(self, tmp_path: Path, module: str, rows: int) -> None:
        options = ["--rows", rows, "--rounds", 1, "--data", tmp_path / "data"]
        out = tmp_path / "out"
        python("-m", f"experiments.{module}", *options, "--out", out, timeout_s=TIMEOUT_S)
        assert contents(out).keys() == {f"{module}.json", f"{module}.md"}
