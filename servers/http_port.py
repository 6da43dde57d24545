"""The HTTP port of a server: health for whoever runs it, metrics for Prometheus."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from mrflight.config.secret_reference import resolve
from mrflight.errors import JobFileError
from mrflight.page.measured import Measured

if TYPE_CHECKING:
    from mrflight.page.http_server import ListenAt

log = logging.getLogger(__name__)


class Observed(Protocol):
    """What a server tells about itself. Safe for many threads, and it waits for nothing."""

    def not_ready(self) -> str:
        """Return why the server takes no work now; nothing if it does."""

    def measured(self) -> Iterable[Measured]:
        """Return the metrics of the server as they are now."""


@contextmanager
def http_port(options: argparse.Namespace, observed: Observed | None) -> Iterator[None]:
    """Answer at ``--http-port``, if there is one, until the context ends.

    Raises JobFileError if the port cannot be had, or the token cannot be read.
    """
    if options.http_port is None or observed is None:
        yield
        return
    if options.http_token is None:
        raise JobFileError(
            "--http-port needs --http-token file:PATH or env:NAME, which says where the token is "
            "that Prometheus and people show; make one with: openssl rand -hex 32"
        )
    from mrflight.page.health import health_routes
    from mrflight.page.http_server import HttpServer
    from mrflight.page.prometheus import metrics_route

    routes = {**health_routes(observed.not_ready), "/metrics": metrics_route(observed.measured)}
    listen = _listen_at(options)
    try:
        server = HttpServer(listen, routes)
    except (OSError, OverflowError) as error:
        where = f"{options.host}:{options.http_port}"
        raise JobFileError(
            f"--http-port: cannot listen at {where} (is it taken?): {error}"
        ) from error
    with server:
        log.info("metrics and health at %s", server.location)
        yield


def _listen_at(options: argparse.Namespace) -> ListenAt:
    """Return where the port is, and for whom; it is encrypted if the server has a certificate."""
    from mrflight.page.access import HostNames, TokenAccess
    from mrflight.page.http_server import ListenAt
    from mrflight.page.https import ServerCertificate

    access = TokenAccess(resolve(options.http_token, "--http-token"))
    own_name = urlsplit(options.advertise or f"grpc://{options.host}").hostname
    encryption = None
    if options.tls_certificate is not None:
        encryption = ServerCertificate(str(options.tls_certificate), str(options.tls_key))
    names = HostNames(frozenset({own_name} if own_name else ()))
    return ListenAt(access, options.host, options.http_port, names, encryption)
