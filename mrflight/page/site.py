"""The files of the page, which are part of the package: no build, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import resources

from mrflight.page.http_server import Answer, Route, Routes

_SCRIPTS = ("words", "store", "source", "panels", "picture", "stream", "charts", "main")
"""In this order they are one script, so that a report has but one hash to allow."""


@cache
def read(name: str) -> str:
    """Return a file of the page."""
    return (resources.files("mrflight.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script of the page."""
    body = "\n".join(read(f"{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def site_routes() -> Routes:
    """Return the routes of the page itself, which has no data and so is for everybody."""
    return {
        "/": _file("text/html", partial(read, "page.html")),
        "/page.css": _file("text/css", partial(read, "page.css")),
        "/page.js": _file("text/javascript", script),
        "/icon.svg": _file("image/svg+xml", partial(read, "icon.svg")),
    }


def _file(media_type: str, text: Callable[[], str]) -> Route:
    return Route(lambda: Answer(f"{media_type}; charset=utf-8", text().encode()), is_public=True)
