"""Run the clicks job once by mrflight's driver, from the command line."""

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
    """A run.

    ``wall_s`` is from the start of the process to its end, ``report`` is its ``--json``.
    """

    wall_s: float
    report: dict[str, Any]


def command(inputs: list[Path], table: Path, settings: list[str]) -> list[str]:
    """Return the command of the clicks job on the visits next to ``inputs``, with some settings."""
    settings = [f"inputs.visits.path={inputs[0].parent}/*.csv", f"output.table={table}", *settings]
    return driver_command(CLICKS_JOB, settings, sys.executable)


def driver_command(job: Path, settings: list[str], python: str) -> list[str]:
    """Return the command line of any job."""
    options = [word for setting in settings for word in ("--set", setting)]
    return [python, "-m", "mrflight.driver", str(job), *options, "--json"]


def run(inputs: list[Path], table: Path, settings: list[str]) -> MrflightRun:
    """Run the job; raise RuntimeError with the driver's output if it fails."""
    timed = timed_process.run(command(inputs, table, settings), TIMEOUT_S)
    return MrflightRun(timed.wall_s, json.loads(timed.stdout.splitlines()[-1]))


def read_table(table: Path) -> pa.Table:
    """Return the rows of the Delta table at ``table``."""
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pyarrow_table()
