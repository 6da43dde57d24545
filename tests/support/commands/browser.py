"""Chromium, as a reader of the page sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.suite.waiting import hang_s

REBOUND = "rebound.example"
"""A name of another site that leads to loopback."""

FLAGS = [
    "--no-sandbox",  # CI is root in a container, where Chromium cannot make one of its own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
]

BROKEN_CONNECTION = [
    f"Failed to load resource: net::ERR_CONNECTION_{how}" for how in ("RESET", "REFUSED")
]


@contextmanager
def launched_browser(program: str) -> Iterator[Browser]:
    """A browser for several tests; it takes a second to start."""
    limit_ms = hang_s() * 1000
    expect.set_options(timeout=limit_ms)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=limit_ms)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page(
    browser: Browser, complaints: Sequence[str] = (), is_server_gone: bool = False, **options: Any
) -> Iterator[Page]:
    """A new page with a profile of its own, which must have no complaints but these at the end.

    If its server ends before it, the browser may also say that a connection was reset or refused.
    """
    found: list[str] = []
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 1000}, **options})
    context.set_default_timeout(hang_s() * 1000)
    page = context.new_page()
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("dialog", lambda dialog: found.append(f"a dialog: {dialog.message}"))

    def note(said: ConsoleMessage) -> None:
        is_broken = said.text in BROKEN_CONNECTION and is_server_gone
        if said.type in ("error", "warning") and not is_broken:
            found.append(said.text)

    page.on("console", note)
    try:
        yield page
    finally:
        context.close()
    assert found == list(complaints)


def texts(page: Page, selector: str) -> list[str]:
    """Return the texts of the elements that a selector finds."""
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def table(page: Page, selector: str) -> dict[str, list[str]]:
    """Return the rows of a table by their first cells."""
    rows = page.locator(f"{selector} tbody tr").all()
    cells = [[text.strip() for text in row.locator("td").all_text_contents()] for row in rows]
    return {row[0]: row[1:] for row in cells}


def figures(page: Page, part: str = "b") -> dict[str, str]:
    """Return the figures by their names, or what is ``small`` below them."""
    return dict(zip(texts(page, ".figure span"), texts(page, f".figure {part}"), strict=True))


def fixed(value: float, digits: int) -> str:
    """Return a number as ``toFixed`` of a page does: a half is rounded up, not to an even digit."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def kib(size: float) -> str:
    """Return a size in bytes as a page shows it in KiB."""
    return f"{fixed(size / 1024, 2 if size < 10 * 1024 else 1)} KiB"
