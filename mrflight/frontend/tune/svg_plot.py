"""Draws the times of a job by partitions as an SVG: measured on the sample, and of all the input.

Each number of partitions has a bar of the phases. The picture has no scripts and no fonts of its
own, and shows what it means without colours, too: by its legend, in the order of the bars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

import msgspec

from mrflight.frontend.tune.bars import Bar

_WIDTH, _HEIGHT = 820, 420
_TOP, _BOTTOM, _LEFT, _RIGHT = 100, 56, 64, 24
_GAP = 72
_TICKS = 5
_COLOURS = {"start": "#b0b7c3", "map": "#3f6fb5", "reduce": "#e2883a", "commit": "#6a9f58"}
_INK = "#333842"
_GRID = "#dde1e7"
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Panel(msgspec.Struct, frozen=True):
    """Bars over one axis of seconds."""

    title: str
    bars: Sequence[Bar]
    marks: Mapping[str, str]
    """What is written above some of the bars, by their label."""


def draw(title: str, panels: Sequence[Panel]) -> str:
    """Return the SVG with the panels side by side."""
    wide = (_WIDTH - _LEFT - _RIGHT - _GAP * (len(panels) - 1)) / len(panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12" '
        f'fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, size=16),
        *_legend(panels[0].bars[0]),
    ]
    for number, panel in enumerate(panels):
        lines += _draw_panel(panel, _LEFT + number * (wide + _GAP), wide)
    return "\n".join([*lines, "</svg>", ""])


def _legend(bar: Bar) -> Iterator[str]:
    x = _LEFT
    for part in bar.parts:
        yield f'<rect x="{x}" y="38" width="12" height="12" fill="{_COLOURS[part]}"/>'
        yield _text(x + 17, 48, part)
        x += 34 + 7 * len(part)


def _draw_panel(panel: Panel, left: float, wide: float) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    step = _step(max(bar.total for bar in panel.bars))
    scale = (bottom - _TOP) / (step * _TICKS)
    yield _text(left, _TOP - 20, f"{panel.title} (s)", size=13)
    for tick in range(_TICKS + 1):
        y = bottom - tick * step * scale
        yield (
            f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{left + wide:.1f}" y2="{y:.1f}" '
            f'stroke="{_GRID}"/>'
        )
        yield _text(left - 6, y + 4, f"{tick * step:g}", anchor="end")
    slot = wide / len(panel.bars)
    for number, bar in enumerate(panel.bars):
        middle = left + (number + 0.5) * slot
        yield from _draw_bar(bar, middle, 0.6 * slot, scale)
        top = bottom - bar.total * scale
        yield _text(middle, bottom + 18, bar.label, anchor="middle")
        yield _text(middle, top - 5, f"{bar.total:.2f}", anchor="middle", size=11)
        if bar.label in panel.marks:
            yield _text(middle, bottom + 33, panel.marks[bar.label], anchor="middle", size=11)
    yield _text(left + wide / 2, bottom + 49, "partitions", anchor="middle", size=11)


def _draw_bar(bar: Bar, middle: float, wide: float, scale: float) -> Iterator[str]:
    y = float(_HEIGHT - _BOTTOM)
    for part, seconds in bar.parts.items():
        high = seconds * scale
        y -= high
        yield (
            f'<rect x="{middle - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" '
            f'height="{high:.1f}" fill="{_COLOURS[part]}"/>'
        )


def _step(most: float) -> float:
    """Return a round step with which `_TICKS` steps reach beyond the longest bar."""
    power = 10.0**-4
    while True:
        for step in _STEPS:
            if step * power * _TICKS >= most * 1.08:
                return step * power
        power *= 10


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {where}>{escape(text)}</text>"
