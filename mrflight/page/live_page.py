"""Opens pages on loopback, and says where they are."""

from __future__ import annotations

import logging
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.events.recorder import Recorder
from mrflight.page.access import TokenAccess
from mrflight.page.http_server import ListenAt
from mrflight.page.job_page import LiveJob
from mrflight.page.link import link_for_user
from mrflight.page.page import MeasuredSource, Page
from mrflight.security.hashed_tokens import new_bearer_token
from mrflight.system.progress.logged import LoggedProgress
from mrflight.system.standard_streams import say

log = logging.getLogger(__name__)


def open_page(source: MeasuredSource, port: int, folder: Path) -> tuple[Page, str]:
    """Serve a page on loopback, at a free port for 0; return it, and the link for its user.

    ``folder`` is private to the user. Raises JobFileError if the port cannot be had.
    """
    token = new_bearer_token()
    try:
        page = Page(source, ListenAt(TokenAccess(token), port=port))
    except (OSError, OverflowError) as error:
        raise JobFileError(
            f"the page cannot listen at 127.0.0.1:{port}: {error}; name another port, or none, for "
            "a free one"
        ) from error
    return page, link_for_user(page.location, token, folder)


def open_job_page(events: Recorder, port: int, folder: Path) -> None:
    """Serve the page of the job of this process until its recorder is closed."""
    page, link = open_page(LiveJob(events), port, folder)
    events.closes_with(page)
    line = f"the page of the job: {link}"
    if isinstance(events.progress, LoggedProgress):
        log.warning("%s", line)  # at a level that is shown unless another one is asked for
    elif events.progress.is_drawn:
        events.progress.show_output(line)
    else:
        say(f"{line}\n")
