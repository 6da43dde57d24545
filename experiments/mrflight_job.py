"""One run of the clicks job by mrflight's driver, as anyone would start it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import timed_process
from experiments.datasets import CLICKS_JOB

TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class MrflightRun:
    """``wall_s`` from the start of the process to its end; ``report`` is what ``--json`` prints."""

    wall_s: float
    report: dict[str, Any]


def command(inputs: list[Path], table: Path, settings: list[str]) -> list[str]:
    """The clicks job on the visits in the folder of ``inputs``; ``settings`` go to ``--set``."""
    settings = [f"inputs.visits.path={inputs[0].parent}/*.csv", f"output.table={table}", *settings]
    return driver_command(CLICKS_JOB, settings, sys.executable)


def driver_command(job: Path, settings: list[str], python: str) -> list[str]:
    """The command line of any job."""
    options = [word for setting in settings for word in ("--set", setting)]
    return [python, "-m", "mrflight.driver", str(job), *options, "--json"]


def run(inputs: list[Path], table: Path, settings: list[str]) -> MrflightRun:
    """Run the job; RuntimeError with what the driver said if it fails."""
    timed = timed_process.run(command(inputs, table, settings), TIMEOUT_S)
    return MrflightRun(timed.wall_s, json.loads(timed.stdout.splitlines()[-1]))


def read_table(table: Path) -> pa.Table:
    """What the Delta table at ``table`` holds."""
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pyarrow_table()
