"""How many examples a property of Hypothesis has."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What Hypothesis would take by itself: so many have the tests that ask for no other number."""


def some_of(count: int) -> int:
    """Return the examples of a test of which ``count`` would be as thorough as `USUAL` of others.

    The profiles of `tests/conftest.py` say how many of them a run has: `make test` a tenth, CI a
    quarter, and ``--hypothesis-profile thorough`` ten times as many.
    """
    return max(1, count * settings.default.max_examples // USUAL)
