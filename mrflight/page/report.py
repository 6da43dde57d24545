"""A report: the page of a job that has ended, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html

import msgspec

from mrflight.page import site
from mrflight.page.messages import Source

_STYLESHEET = '<link rel="stylesheet" href="page.css">'
_ICON = '<link rel="icon" href="icon.svg">'
_SCRIPT = '<script src="page.js"></script>'
_TITLE = "<title>mrflight</title>"


def report(source: Source) -> str:
    """Return the file. Its policy allows its own script and style, and no connection at all."""
    state = source.state()
    data = {
        "attempts": source.attempts(0, 2**31),
        "state": state,
        "parts": source.parts(),
    }
    script, style = site.script(), site.read("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    page = site.read("page.html")
    for there, instead in (
        (_ICON, f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (_TITLE, f"<title>{html.escape(state.title)} - mrflight</title>"),
        (_STYLESHEET, f"<style>{style}</style>"),
        (
            _SCRIPT,
            f'<script type="application/json" id="report">{_inline(data)}</script>\n'
            f"<script>{script}</script>",
        ),
    ):
        before, found, after = page.partition(there)
        assert found, there
        page = before + instead + after
    return page


def _inline(data: object) -> str:
    """Return JSON that is nothing but JSON to a parser of HTML, whatever a job is called."""
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
