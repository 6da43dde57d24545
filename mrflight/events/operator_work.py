"""Adds up what the operators of a query did."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.events.kinds import OperatorWork


def added(one: tuple[OperatorWork, ...], other: Sequence[OperatorWork]) -> tuple[OperatorWork, ...]:
    """Return the sums of two runs of one plan; either may be empty, if nothing is known of it."""
    if not one or not other:
        return one or tuple(other)
    return tuple(
        OperatorWork(a.rows + b.rows, round(a.seconds + b.seconds, 6))
        for a, b in zip(one, other, strict=False)
    )
