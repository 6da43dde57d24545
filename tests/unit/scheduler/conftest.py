"""What tests of the scheduler share."""

from __future__ import annotations

import pytest

from tests.support.jobs.recorded_progress import RecordedProgress


@pytest.fixture
def report() -> RecordedProgress:
    return RecordedProgress()
