"""Fixtures for the suites over output formats.

Parquet, csv and Arrow files are committed by the same sink, so a test of commits runs on Delta and
Parquet. The mark ``every_format`` is for tests of what the encoder of a format does by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.tables.cases import names
from tests.support.tables.outputs import FORMATS, Output

SINKS = ("delta", "parquet")
"""One format for each kind of sink whose table is a folder."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "every_format: the test runs on each format, and not only one of each sink"
    )


@pytest.hookimpl(tryfirst=True)  # so that the names of tests do not depend on what is collected
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in names(mark)}
    if "format" in metafunc.fixturenames and "format" not in own:
        each = metafunc.definition.get_closest_marker("every_format")
        metafunc.parametrize("format", FORMATS if each else SINKS, indirect=True)


@pytest.fixture
def format(request: pytest.FixtureRequest) -> OutputFormat:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[(), ("k",)], ids=["flat", "partitioned"])
def output(request: pytest.FixtureRequest, tmp_path: Path, format: OutputFormat) -> Output:
    return Output(tmp_path, format, request.param)
