"""A page on an HTTP server of its own: the site, the stream of its source, health and metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from mrflight.page.health import health_routes
from mrflight.page.http_server import HttpServer, ListenAt
from mrflight.page.measured import Measured
from mrflight.page.messages import Source, stream_route
from mrflight.page.prometheus import metrics_route
from mrflight.page.site import site_routes
from mrflight.system.closeable import Closeable


class MeasuredSource(Source, Protocol):
    """A source that has metrics as well."""

    def measured(self) -> Iterable[Measured]:
        """Return the metrics as they are now."""


class Page(Closeable):
    """Serves a page until it is closed; those who look at it are told the last state first.

    Raises OSError if it cannot listen.
    """

    def __init__(self, source: MeasuredSource, listen: ListenAt) -> None:
        self._closing = threading.Event()
        routes = {
            **site_routes(),
            **health_routes(lambda: ""),
            "/events": stream_route(source, self._closing),
            "/metrics": metrics_route(source.measured),
        }
        self._server = HttpServer(listen, routes)

    @property
    def location(self) -> str:
        """The URL of the page, without its token."""
        return self._server.location

    def close(self) -> None:
        self._closing.set()
        self._server.close()
