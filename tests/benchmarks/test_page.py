"""What a page costs the driver of a job of 100,000 tasks: less than 1 % of its processor time.

A driver took 0.41 ms for each task of a job on two workers, so 41 s for 100,000. Of that, recording
their events is 1.5 to 2.3 s, which is measured here beside the page, so that a busy machine slows
down both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from mrflight.events.job_view import fold
from mrflight.events.kinds import JobEnded
from mrflight.page.access import TokenAccess, page_url
from mrflight.page.http_server import ListenAt
from mrflight.page.job_page import EndedJob
from mrflight.page.page import Page
from tests.support.commands.browser import browser_page, launched_browser
from tests.support.jobs.page_of_a_job import page_of_a_job
from tests.support.jobs.synthetic_job import SyntheticJob

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

OF_THE_RECORDER = 0.25
"""It was 0.18 when measured: 0.27 s of a job of 341 s, or 0.7 % of its driver's time. Beside five
processes that fill the caches, single runs were between 0.15 and 0.25."""


@pytest.mark.soak
def test_page_of_a_job(benchmark: BenchmarkFixture) -> None:
    """The least of three counts: page faults and caches that others use fall on either side."""
    shares: list[float] = []
    benchmark.pedantic(lambda: shares.append(page_of_a_job().share), rounds=3)
    assert min(shares) < OF_THE_RECORDER, shares


TOKEN = "the token of a page"
MAX_FRAME_MS = 16.0
FRAMES = 40

ZOOM = """async (frames) => {
    const stream = document.getElementById("stream");
    const drawn = (resolve) => requestAnimationFrame(() => setTimeout(resolve));
    for (let frame = 0; frame < frames; frame += 1) {
        const keys = ["+", "ArrowRight", "ArrowLeft", "-"];
        stream.dispatchEvent(new KeyboardEvent("keydown", { key: keys[frame % 4] }));
        await new Promise(drawn);
    }
}"""
"""Each frame has another range, so all attempts are painted again."""


@pytest.mark.soak
def test_100_000_tasks_are_drawn_within_a_frame(chromium: str) -> None:
    """By the processor time of all that the page's thread does: script, layout and painting."""
    events = SyntheticJob(maps=90_000, reduces=10_000, workers=64, servers=16, task_s=0.2).events()
    view = fold(event for event in events if not isinstance(event, JobEnded))
    with (
        launched_browser(chromium) as launched,
        browser_page(launched) as browser,
        Page(EndedJob(view), ListenAt(TokenAccess(TOKEN))) as page,
    ):
        browser.goto(page_url(page.location, TOKEN))
        expect(browser.locator("#stream-note")).to_contain_text("101,243 attempts ended")
        tools = browser.context.new_cdp_session(browser)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy_s() -> float:
            metrics = tools.send("Performance.getMetrics")["metrics"]
            return float({each["name"]: each["value"] for each in metrics}["TaskDuration"])

        browser.evaluate(ZOOM, 4)
        before = busy_s()
        browser.evaluate(ZOOM, FRAMES)
        frame_ms = (busy_s() - before) / FRAMES * 1000
    assert 0 < frame_ms < MAX_FRAME_MS
