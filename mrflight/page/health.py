"""``/healthz`` and ``/readyz``, which whoever runs a process asks without a token."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from mrflight.page.http_server import Answer, Route, Routes

_TEXT = "text/plain; charset=utf-8"


def health_routes(not_ready: Callable[[], str]) -> Routes:
    """Return the routes; ``not_ready`` returns why the process takes no work now, or nothing."""

    def ready() -> Answer:
        reason = not_ready()
        if reason:
            text = f"not ready: {reason}\n".encode()
            return Answer(_TEXT, text, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(_TEXT, b"ready\n")

    return {
        "/healthz": Route(lambda: Answer(_TEXT, b"ok\n"), is_public=True),
        "/readyz": Route(ready, is_public=True),
    }
