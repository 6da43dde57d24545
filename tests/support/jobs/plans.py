"""Jobs on small inputs, and what is planned for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrflight.config.job_file import decode_job
from mrflight.config.memory import Processes, divide_memory
from mrflight.config.spec import JobSpec
from mrflight.planner.stage_plan import StagePlan, plan_stage
from mrflight.sources import open_source

SPLIT_BYTES = 100
WORKERS = 4
MEMORY = divide_memory(8 * 2**30, Processes(WORKERS, data_servers=1))

Plan = Callable[..., StagePlan]


def job(**sections: Any) -> JobSpec:
    """A job on one input, ``visits``, keyed by url; sections replace or add to that."""
    return decode_job(
        {
            "job": {"name": "clicks"},
            "inputs": {"visits": {"path": "visits.csv", "key": ["url"]}},
            "output": {"table": "out"},
            **sections,
        }
    )


def planner(folder: Path) -> Plan:
    """Plans a job over two csv files in a folder, which are cut into several splits each."""
    for name, rows in (("visits", 40), ("more", 20)):
        lines = [f"https://site/{i % 7},{i}" for i in range(rows)]
        (folder / f"{name}.csv").write_text("url,weight\n" + "\n".join(lines) + "\n")

    def planned(spec: JobSpec) -> StagePlan:
        sources = [
            open_source(name, section, folder, {}, SPLIT_BYTES)
            for name, section in spec.inputs.items()
        ]
        return plan_stage(spec, sources, str(folder), WORKERS, MEMORY)

    return planned
