"""Tells the user of a command where its page is, and nobody else what its token is."""

from __future__ import annotations

import html
import os
import sys
from pathlib import Path

from mrflight.page.access import page_url
from mrflight.system.ipython import is_notebook

_LINK_FILE = "page.html"


def link_for_user(location: str, token: str, folder: Path) -> str:
    """Return what to open: the link, or a file in a private folder that leads there.

    A terminal and a notebook are for the user's eyes. What goes elsewhere becomes a log, which
    others may read, so it has the name of a file that only the user can read.
    """
    url = page_url(location, token)
    if sys.stderr.isatty() or is_notebook():
        return url
    path = folder / _LINK_FILE
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w", encoding="utf-8") as out:
        quoted = html.escape(url)
        out.write(
            "<!doctype html><meta charset='utf-8'>"
            f"<meta http-equiv='refresh' content='0; url={quoted}'>"
            f"<a href='{quoted}'>the page</a>\n"
        )
    return f"file://{path}"
