"""The page in a real browser: its numbers, its limits, and who may see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

from mrflight.events.job_view import fold
from mrflight.events.kinds import AnyEvent
from mrflight.events.recorder import Recorder
from mrflight.page.access import TokenAccess, page_url
from mrflight.page.http_server import ListenAt
from mrflight.page.job_page import EndedJob, LiveJob
from mrflight.page.page import MeasuredSource, Page
from mrflight.page.report import report
from mrflight.units import format_bytes
from tests.support.commands.browser import (
    REBOUND,
    browser_page,
    figures,
    launched_browser,
    table,
    texts,
)
from tests.support.commands.http import get
from tests.support.jobs.synthetic_job import SyntheticJob

TOKEN = "the token of a page"
HOSTILE = "<img src=x onerror=alert(1)>"


@contextmanager
def served(source: MeasuredSource) -> Iterator[str]:
    """The location of a page."""
    with Page(source, ListenAt(TokenAccess(TOKEN))) as page:
        yield page.location


@pytest.fixture(scope="module")
def job() -> tuple[SyntheticJob, list[AnyEvent]]:
    job = SyntheticJob(name=HOSTILE)
    return job, list(job.events())


@pytest.fixture(scope="module")
def launched(chromium: str) -> Iterator[Browser]:
    with launched_browser(chromium) as browser:
        yield browser


@pytest.fixture
def browser(launched: Browser) -> Iterator[BrowserPage]:
    with browser_page(launched) as page:
        yield page


@pytest.mark.smoke
def test_the_page_has_the_numbers_of_the_job(
    browser: BrowserPage, job: tuple[SyntheticJob, list[AnyEvent]]
) -> None:
    view = fold(job[1])
    result = view.result
    assert result is not None
    with served(EndedJob(view)) as location:
        browser.goto(page_url(location, TOKEN))
        expect(browser.locator("#state")).to_have_text("committed")
        shown = figures(browser)
        stages = table(browser, "#stages")
        processes = table(browser, "#processes")
    assert shown["Rows in"] == f"{result.rows_in:,}"
    assert shown["Rows out"] == f"{result.rows_out:,}"
    attempts = result.attempts
    assert shown["Attempts"] == f"{attempts.map + attempts.reduce:,}"
    assert shown["Failed attempts"] == f"{attempts.failed:,}"
    notes = figures(browser, "small")
    assert notes["Attempts"] == f"{attempts.map} map, {attempts.reduce} reduce"
    assert shown["Shuffled"].split()[1] == format_bytes(result.bytes_shuffled).split()[1]
    assert notes["Shuffled"] == f"{result.partitions} partitions"
    assert stages["map"][1:3] == ["240", f"{view.stages[0].rows:,}"]
    assert stages["reduce"][1] == "96"
    assert len(processes) == 2 + 3 + 12
    assert len(texts(browser, "#incidents li")) == attempts.failed
    assert texts(browser, "#skewed b") == ["partition 17", "partition 40"]


def test_what_looks_like_markup_is_shown_as_it_is_written(
    browser: BrowserPage, job: tuple[SyntheticJob, list[AnyEvent]], tmp_path: Path
) -> None:
    source = EndedJob(fold(job[1]))
    (tmp_path / "report.html").write_text(report(source))
    with served(source) as location:
        for url in (page_url(location, TOKEN), f"file://{tmp_path}/report.html"):
            browser.goto(url)
            expect(browser.locator("h1")).to_have_text(HOSTILE)
            assert browser.title() == f"{HOSTILE} - mrflight"
            assert browser.locator("img").count() == 0


def test_a_report_shows_what_the_page_shows(
    browser: BrowserPage, job: tuple[SyntheticJob, list[AnyEvent]], tmp_path: Path
) -> None:
    source = EndedJob(fold(job[1]))
    (tmp_path / "report.html").write_text(report(source))
    with served(source) as location:
        found = []
        for url in (page_url(location, TOKEN), f"file://{tmp_path}/report.html"):
            browser.goto(url)
            expect(browser.locator("#state")).to_have_text("committed")
            found.append(browser.locator("body").inner_text())
    assert found[0] == found[1]
    assert "partition 17 is skewed" in found[0]


def test_a_page_follows_a_job_to_its_end(
    browser: BrowserPage, job: tuple[SyntheticJob, list[AnyEvent]]
) -> None:
    recorder = Recorder()
    with served(LiveJob(recorder)) as location, recorder:
        half = len(job[1]) // 2
        for event in job[1][:half]:
            recorder.record(event)
        browser.goto(page_url(location, TOKEN))
        expect(browser.locator("#state")).to_have_text("running")
        before = browser.locator("#stream-note").inner_text()
        assert before == f"{len(recorder.read(lambda view: view.spans))} attempts ended"
        for event in job[1][half:]:
            recorder.record(event)
        expect(browser.locator("#state")).to_have_text("committed")
        expect(browser.locator("#stream-note")).to_have_text("340 attempts ended")
    # There is no server any more, and the last state stays.
    expect(browser.locator("#state")).to_have_text("committed")


def test_a_page_whose_server_is_gone_says_so(launched: Browser) -> None:
    recorder = Recorder()
    with browser_page(launched, is_server_gone=True) as browser:
        with served(LiveJob(recorder)) as location:
            recorder.record(next(SyntheticJob().events()))
            browser.goto(page_url(location, TOKEN))
            expect(browser.locator("#state")).to_have_text("running")
        recorder.close()
        expect(browser.locator("#state")).to_have_text("no answer")


def test_the_token_is_taken_out_of_the_address_and_needed(
    launched: Browser, job: tuple[SyntheticJob, list[AnyEvent]]
) -> None:
    refused = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
    with (
        served(EndedJob(fold(job[1]))) as location,
        browser_page(launched, complaints=[refused] * 2) as browser,
    ):
        browser.goto(f"{location}/")
        expect(browser.locator("#state")).to_have_text("locked")
        assert browser.locator("main").is_hidden()
        browser.fill("#token", "wrong")
        browser.click("#unlock button")
        expect(browser.locator("#unlock")).to_be_visible()
        browser.fill("#token", TOKEN)
        browser.click("#unlock button")
        expect(browser.locator("#state")).to_have_text("committed")
        assert browser.context.cookies() == []
        browser.goto("about:blank")
        browser.goto(page_url(location, TOKEN))
        expect(browser.locator("#state")).to_have_text("committed")
        assert browser.url == f"{location}/"


def test_another_host_gets_nothing(job: tuple[SyntheticJob, list[AnyEvent]]) -> None:
    with served(EndedJob(fold(job[1]))) as location:
        port = int(location.rpartition(":")[2])
        for path in ("/", "/page.js", "/events", "/metrics", "/healthz"):
            answer = get(port, path, TOKEN, headers={"Host": "evil.example"})
            assert (answer.status, answer.body) == (403, b"403 Forbidden\n")


def test_a_browser_that_was_led_here_by_another_name_is_refused(
    launched: Browser, job: tuple[SyntheticJob, list[AnyEvent]]
) -> None:
    with served(EndedJob(fold(job[1]))) as location:
        page = launched.new_page()
        answer = page.goto(location.replace("127.0.0.1", REBOUND) + f"/#{TOKEN}")
        assert answer is not None
        assert answer.status == 403
        page.close()
