"""Tests of the bars of the terminal, and of the SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.frontend.tune.bars import Bar, draw_bars
from mrflight.frontend.tune.svg_plot import Panel, draw

SVG = "{http://www.w3.org/2000/svg}"


def bar(label: str, *seconds: float) -> Bar:
    return Bar(label, dict(zip(("start", "map", "reduce", "commit"), seconds, strict=True)))


def test_bars_are_as_long_as_their_seconds() -> None:
    lines = list(draw_bars([bar("5", 1, 2, 2, 0), bar("20", 1, 1, 0.5, 0)]))
    assert lines == [
        "   5  " + "░" * 10 + "█" * 20 + "▒" * 20 + "  5.00",
        "  20  " + "░" * 10 + "█" * 10 + "▒" * 5 + " " * 25 + "  2.50",
        "  ░ start   █ map   ▒ reduce   ▓ commit",
    ]


times = st.floats(0, 1e5)


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=6))
def test_any_times_can_be_drawn(seconds: list[tuple[float, float, float, float]]) -> None:
    bars = [bar(str(number), *each) for number, each in enumerate(seconds)]
    *lines, _ = draw_bars(bars)
    assert len({len(line.rpartition("  ")[0]) for line in lines}) == 1
    root = ET.fromstring(draw("<&>", [Panel("a", bars, {"0": "here"}), Panel("b", bars, {})]))
    rects = [each for each in root.iter(f"{SVG}rect") if float(each.get("height", 0)) < 400]
    for each in rects:
        top, high = float(each.get("y", 0)), float(each.get("height", 0))
        assert high >= 0
        assert top >= 0
        assert top + high <= 420


@pytest.mark.parametrize("most", [0.001, 0.9, 1.0, 7.3, 100.0, 86_400.0])
def test_the_axis_reaches_beyond_the_longest_bar(most: float) -> None:
    root = ET.fromstring(draw("a", [Panel("b", [bar("5", most, 0, 0, 0)], {})]))
    texts = [
        each.text or "" for each in root.iter(f"{SVG}text") if each.get("text-anchor") == "end"
    ]
    assert texts[0] == "0"
    assert most <= float(texts[-1]) <= 3 * most
