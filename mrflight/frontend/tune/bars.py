"""Draws bars of the phases of a job with characters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

_WIDTH = 50
_BLOCKS = {"start": "░", "map": "█", "reduce": "▒", "commit": "▓"}


class Bar(msgspec.Struct, frozen=True):
    """A bar of several parts, one after the other."""

    label: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def draw_bars(bars: Sequence[Bar]) -> Iterator[str]:
    """Yield a line for each bar, of which the longest fills the width, and one that explains them.

    The ends of parts are rounded to characters, so that a bar is as long as all of its parts.
    """
    longest = max(bar.total for bar in bars) or 1.0
    width = max(len(bar.label) for bar in bars)
    for bar in bars:
        ends = [0]
        reached = 0.0
        for seconds in bar.parts.values():
            reached += seconds
            ends.append(round(reached / longest * _WIDTH))
        drawn = "".join(
            _BLOCKS[part] * (end - start)
            for part, (start, end) in zip(bar.parts, pairwise(ends), strict=True)
        )
        yield f"  {bar.label:>{width}}  {drawn.ljust(_WIDTH)}  {bar.total:.2f}"
    yield "  " + "   ".join(f"{_BLOCKS[part]} {part}" for part in bars[0].parts)
