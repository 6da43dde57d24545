"""What tests of whole jobs can ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clicks_job import JOB, WEIGH
from tests.support.driver import write_job


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """The clicks job, without its input."""
    (tmp_path / "clicks.py").write_text(WEIGH)
    return write_job(tmp_path, JOB)
