"""What a page is sent of a job of 100,000 tasks. The benchmark of the page has what it costs."""

from __future__ import annotations

from itertools import count

import pytest

from mrflight.page.messages import PACE_S, SHARE
from tests.support.jobs.page_of_a_job import page_of_a_job

LOOK_S = 0.005
"""What each look at the parts of the page costs by the clock of the test."""


@pytest.mark.slow
def test_a_page_is_sent_little_and_looks_seldom_at_what_changes_seldom() -> None:
    ticks = count()
    page = page_of_a_job(lambda: LOOK_S * next(ticks))
    looks = next(ticks) // 2
    assert 2 < looks <= page.job_s * SHARE / LOOK_S + 2  # with the first one, and the last
    states = sum(message.startswith(b"event: state\n") for message in page.messages)
    assert 2 < states <= page.job_s / PACE_S + 2
    assert sum(map(len, page.messages)) // page.events < 200
