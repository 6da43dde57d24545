"""Fixtures for the suites over every output format."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.tables.outputs import FORMATS, Output


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> OutputFormat:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(), ("k",)], ids=["flat", "partitioned"])
def output(request: pytest.FixtureRequest, tmp_path: Path, format: OutputFormat) -> Output:
    return Output(tmp_path, format, request.param)
