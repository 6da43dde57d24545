"""The HTTP port of a server: health for whoever runs it, metrics, and the page of a cluster."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from mrflight.config.secret_reference import resolve
from mrflight.errors import AccessDeniedError, JobFileError
from mrflight.page.measured import Measured
from mrflight.security.access import Access
from mrflight.security.principal import READERS
from mrflight.system.limited_log import LimitedWarnings

if TYPE_CHECKING:  # a server without this port loads none of it
    from mrflight.page.access import Authorize
    from mrflight.page.http_server import ListenAt, Routes
    from mrflight.page.messages import Source

log = logging.getLogger(__name__)

_STREAM_S = 600.0
"""A page connects again after so long, and shows its token again."""


class Observed(Protocol):
    """What a server tells about itself. Safe for many threads, and it waits for nothing."""

    def not_ready(self) -> str:
        """Return why the server takes no work now; nothing if it does."""

    def measured(self) -> Iterable[Measured]:
        """Return the metrics of the server as they are now."""

    def page(self) -> Source | None:
        """Return what a page of the server shows, if it has one."""


@contextmanager
def http_port(options: argparse.Namespace, observed: Observed | None) -> Iterator[None]:
    """Answer at ``--http-port``, if there is one, until the context ends.

    Raises JobFileError if the port cannot be had, or the token cannot be read.
    """
    if options.http_port is None or observed is None:
        yield
        return
    from mrflight.page.http_server import HttpServer

    closing = threading.Event()
    listen = _listen_at(options)
    try:
        server = HttpServer(listen, _routes(observed, closing))
    except (OSError, OverflowError) as error:
        where = f"{options.host}:{options.http_port}"
        raise JobFileError(
            f"--http-port: cannot listen at {where} (is it taken?): {error}"
        ) from error
    with server:
        log.info("metrics and health at %s", server.location)
        try:
            yield
        finally:
            closing.set()


def _routes(observed: Observed, closing: threading.Event) -> Routes:
    from mrflight.page.health import health_routes
    from mrflight.page.messages import stream_route
    from mrflight.page.prometheus import metrics_route
    from mrflight.page.site import site_routes

    routes = {**health_routes(observed.not_ready), "/metrics": metrics_route(observed.measured)}
    source = observed.page()
    if source is None:
        return routes
    return {**site_routes(), **routes, "/events": stream_route(source, closing, _STREAM_S)}


def _listen_at(options: argparse.Namespace) -> ListenAt:
    """Return where the port is, and for whom; it is encrypted if the server has a certificate."""
    from mrflight.page.access import HostNames
    from mrflight.page.http_server import ListenAt
    from mrflight.page.https import ServerCertificate

    own_name = urlsplit(options.advertise or f"grpc://{options.host}").hostname
    encryption = None
    if options.tls_certificate is not None:
        encryption = ServerCertificate(str(options.tls_certificate), str(options.tls_key))
    names = HostNames(frozenset({own_name} if own_name else ()))
    return ListenAt(_authorize(options), options.host, options.http_port, names, encryption)


def _authorize(options: argparse.Namespace) -> Authorize:
    """Return what admits the token of ``--http-token``, and readers of ``--access``."""
    from mrflight.page.access import TokenAccess, any_of

    ways: list[Authorize] = []
    if options.http_token is not None:
        ways.append(TokenAccess(resolve(options.http_token, "--http-token")))
    if options.access is not None:
        ways.append(_Known(Access(options.access)))
    if not ways:
        raise JobFileError(
            "--http-port needs --http-token file:PATH or env:NAME, which says where the token is "
            "that Prometheus and people show; make one with: openssl rand -hex 32"
        )
    return any_of(*ways)


class _Known:
    """Admits the callers of an access file by their tokens, if they may read."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._refused = LimitedWarnings(log)

    def __call__(self, headers: Mapping[str, str]) -> bool:
        from mrflight.page.access import bearer_token

        token = bearer_token(headers)
        try:
            return token is not None and self._access.by_token(token).may(READERS)
        except AccessDeniedError as error:
            self._refused.warn("a request over HTTP is refused: %s", error)
            return False
