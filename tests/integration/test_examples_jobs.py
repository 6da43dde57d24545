"""The job files of the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands.experiments import CLICKS, SESSIONS


@pytest.mark.parametrize("folder", [CLICKS, SESSIONS])
def test_the_jobs_of_the_examples_decode(folder: Path) -> None:
    from mrflight.config.job_file import load_job

    assert load_job(folder / "job.toml").job.name == folder.name
