"""``experiments/partition_count.py``, as small as it goes."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.support.commands.experiments import ROOT, python
from tests.support.commands.scripts import running_script
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.soak


class TestPartitionCount:
    """``experiments/partition_count.py``."""

    SMALL = ("--rows=4000", "--partitions=3", "--files=2", "--repeats=1")

    def test_the_three_prototypes(self, tmp_path: Path) -> None:
        """Every result is checked within; a wrong one fails the run."""
        options = (*self.SMALL, "--versions=plain,arrow,flight", "--out", tmp_path)
        words = ("-m", "experiments.partition_count", *options)
        printed = python(*words)
        assert all(f"Table 4.{number}:" in printed for number in range(1, 9))
        runs = json.loads((tmp_path / "partition_count.json").read_text())["runs"]
        assert {run["cell"]["version"] for run in runs} == {"plain", "arrow", "flight"}
        assert {run["cell"]["way"] for run in runs} == {"tasks", "alone", "cores"}
        assert {tuple(run["steps"]) for run in runs} == {("map", "shuffle", "reduce")}
        assert len(list(tmp_path.glob("figure-4-?.png"))) == 6

        python(*words)  # what has been measured is not measured again
        assert json.loads((tmp_path / "partition_count.json").read_text())["runs"] == runs

    def test_mrflight(self, tmp_path: Path) -> None:
        words = ("-m", "experiments.partition_count", *self.SMALL, "--out", tmp_path)
        printed = python(*words, "--versions=mrflight", "--ways=cores")
        assert "mrflight s" in printed

    @pytest.mark.parametrize("ending", ["left", "killed"])
    def test_no_server_outlives_its_starter(self, tmp_path: Path, ending: str) -> None:
        program = (
            "import os, signal, sys\n"
            "from experiments.thesis.server_process import ServerProcess\n"
            "module = 'experiments.thesis.flight_servers'\n"
            "with ServerProcess(module, 'metadata', sys.argv[1], '2') as server:\n"
            "    print(server.location(), flush=True)\n"
            "    sys.stdin.read()\n"
        )
        with running_script(program, tmp_path, folder=ROOT) as starter:
            assert starter.read_line().startswith("grpc+tcp://")
            servers = psutil.Process(starter.process.pid).children(recursive=True)
            if ending == "killed":
                starter.process.kill()
            starter.close_input()
            _, alive = psutil.wait_procs(servers, timeout=hang_s())
        assert len(servers) == 3
        assert alive == []
