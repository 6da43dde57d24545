"""Fixtures that several files of fault tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mrflight.config.formats import OutputFormat
from tests.support.clusters.hostile_servers import Servers, logging_servers, unharmed


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> OutputFormat:
    """One of those with a log, and one of those with a manifest."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield the servers that the hostile tests of a file share."""
    with logging_servers(tmp_path_factory.mktemp("servers") / "log") as servers:
        yield servers


@pytest.fixture
def servers(shared_servers: Servers) -> Iterator[Servers]:
    """Yield the servers, and check that the test has not harmed them."""
    with unharmed(shared_servers):
        yield shared_servers
