"""What several files of these tests can ask for."""

from __future__ import annotations

import pytest

from mrflight.spec import OutputFormat


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> OutputFormat:
    """One of those with a log, and one of those with a manifest."""
    return request.param  # type: ignore[no-any-return]
