"""A report is one file, which allows nothing but itself, whatever a job is called."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from mrflight.events.job_view import fold
from mrflight.page import site
from mrflight.page.job_page import EndedJob
from mrflight.page.report import report
from tests.support.jobs.synthetic_job import SyntheticJob

NAMES = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    '<link rel="stylesheet" href="page.css">',
    '<script src="page.js"></script>',
    "<!-- <script>",
    "\u2028 \\ \" ' & &lt;",
]


class Parsed(HTMLParser):
    """The elements of a page, and the texts of some."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        last = self.tags[-1][0] if self.tags else ""
        if last in self.texts and data.strip():
            self.texts[last].append(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    page = Parsed(report(EndedJob(fold(SyntheticJob(name=name, maps=3, reduces=2).events()))))
    plain = Parsed(report(EndedJob(fold(SyntheticJob(name="x", maps=3, reduces=2).events()))))
    assert page.tags == plain.tags
    data, script = page.texts["script"]
    assert msgspec.json.decode(data)["state"]["title"] == name
    assert script == plain.texts["script"][1]
    assert page.texts["title"] == [f"{name} - mrflight"]


def test_a_report_needs_nothing_else_and_allows_nothing_else() -> None:
    text = report(EndedJob(fold(SyntheticJob(maps=3, reduces=2).events())))
    page = Parsed(text)
    assert not re.search(
        r"""(src|href)=["']""", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    )
    [policy] = [
        attributes["content"] or ""
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for directive, body in (
        ("script-src", page.texts["script"][1]),
        ("style-src", page.texts["style"][0]),
    ):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "sink", ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("]
)
def test_the_scripts_put_no_text_into_markup(sink: str) -> None:
    assert sink not in site.script()


def test_the_page_asks_nobody_else_for_anything() -> None:
    everything = site.script() + site.read("page.html") + site.read("page.css")
    assert not re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", everything)
