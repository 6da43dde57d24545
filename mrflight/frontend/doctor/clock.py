"""How far this machine's clock is from that of a server."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from mrflight.frontend.doctor.finding import Finding

_NOTED_S, _WRONG_S = 30.0, 300.0
"""S3 refuses requests that are signed 15 minutes early or late. Certificates of `mrflight
certificates` begin 5 minutes before they are issued."""


def clock(ahead_s: float, of: str) -> Finding:
    """Return what is to be said if this machine's clock is ahead, or behind if it is negative."""
    if abs(ahead_s) < _NOTED_S:
        return Finding("clock", "ok", f"as that of {of}, within {_NOTED_S:.0f} s")
    direction = "ahead of" if ahead_s > 0 else "behind"
    return Finding(
        "clock",
        "problem" if abs(ahead_s) >= _WRONG_S else "warning",
        f"{abs(ahead_s):.0f} s {direction} that of {of}; stores refuse what is signed at another "
        "time, and certificates and tokens seem to be valid earlier or later than they are",
        "set the clocks by NTP: timedatectl set-ntp true, or chrony",
    )


def clock_by_http(url: str, timeout_s: float) -> Finding:
    """Compare the clock with that of a web server, which tells its time in every answer.

    Whatever else it answers does not matter: for example that it wants a signature.
    """
    before = time.time()
    try:
        with urlopen(Request(url, method="HEAD"), timeout=timeout_s) as answer:
            answered = answer.headers["Date"]
    except HTTPError as error:
        answered = error.headers["Date"]
    except (URLError, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        return Finding("clock", "ok", f"not compared, as {url} did not answer: {reason}")
    middle = (before + time.time()) / 2
    try:
        theirs = parsedate_to_datetime(answered)
    except (TypeError, ValueError):
        return Finding("clock", "ok", f"not compared, as {url} did not tell its time")
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    return clock((datetime.fromtimestamp(middle, UTC) - theirs).total_seconds(), url)
