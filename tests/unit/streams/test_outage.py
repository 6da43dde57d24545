"""How long a stream tries again: until servers were away for too long, or a catalog was locked."""

from __future__ import annotations

import pytest

from mrflight.errors import (
    BrokerUnavailableError,
    CatalogLockedError,
    InputError,
    MrflightError,
)
from mrflight.streams.outage import MAX_LOCKED_S, Outage


@pytest.mark.parametrize(
    ("error", "longest_s"),
    [(BrokerUnavailableError("away"), 900.0), (CatalogLockedError("locked"), MAX_LOCKED_S)],
)
def test_an_outage_is_over_after_its_time_however_long_a_try_takes(
    error: MrflightError, longest_s: float
) -> None:
    for try_s in (0.1, 5.0, 100.0):
        ended_s = _ended_s(Outage(900.0), error, try_s)
        assert longest_s < ended_s <= longest_s + 30.0 + try_s, f"tries of {try_s} s"


def _ended_s(outage: Outage, error: MrflightError, try_s: float) -> float:
    """Return the time at which an error is raised that comes of each try."""
    now = 0.0
    while True:
        try:
            now += outage.pause(error, now) + try_s
        except MrflightError:
            return now


def test_what_waiting_does_not_help_is_raised_at_once() -> None:
    with pytest.raises(InputError):
        Outage(900.0).pause(InputError("wrong"), 0.0)
