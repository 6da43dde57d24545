"""Sizes and times are parsed to bytes and seconds; any other text raises a ValueError."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.units import (
    format_bytes,
    format_count,
    format_duration,
    format_rate,
    parse_bytes,
    parse_seconds,
)
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(200), derandomize=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("17 B", 17),
        ("2GB", 2 * 10**9),
        ("512 MiB", 512 * 2**20),
        ("1.5 KiB", 1536),
        ("1.5kb", 1500),
        ("  3 tib  ", 3 * 2**40),
        ("1 TB", 10**12),
        ("900 PiB", 900 * 2**50),
        ("2 pb", 2 * 10**15),
        ("7.5 EiB", 15 * 2**59),
        ("9 EB", 9 * 10**18),
    ],
)
def test_a_size_is_parsed_to_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 min", 600.0),
        ("10 mins", 600.0),
        ("500ms", 0.5),
        ("2 hours", 7200.0),
        ("1h", 3600.0),
        ("1 d", 86400.0),
        ("90", 90.0),
        ("1.5 s", 1.5),
        ("3 secs", 3.0),
    ],
)
def test_a_time_is_parsed_to_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "GiB", "-1", "1 GiB 2", "1e3", "1.", ".5", "1,5 GB", "1 G", "ten", "1_0", "5 s"],
)
def test_a_text_that_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with refused(ValueError):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "-1 s", "soon", "1 GiB", "1:30", "10 min 5 s"])
def test_a_text_that_is_not_a_time_is_refused_with_an_example(text: str) -> None:
    with refused(ValueError):
        parse_seconds(text)


@pytest.mark.parametrize("unit", ["day", "days"])
def test_days_are_a_unit_of_time(unit: str) -> None:
    assert parse_seconds(f"2 {unit}") == 2 * 86400


@pytest.mark.parametrize("text", ["8 EiB", "9300 PB", str(2**63), "9" * 400])
def test_a_size_above_64_bits_is_too_large(text: str) -> None:
    with refused(ValueError):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["36501 days", "9" * 400])
def test_a_time_of_more_than_100_years_is_too_long(text: str) -> None:
    with refused(ValueError):
        parse_seconds(text)


def test_the_longest_time_is_a_valid_timeout() -> None:
    assert parse_seconds("36500 days") < threading.TIMEOUT_MAX


@examples
@given(st.integers(0, 2**53))
def test_whole_bytes_are_exact(size: int) -> None:
    assert parse_bytes(str(size)) == parse_bytes(f"{size} B") == size


@examples
@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_bytes, parse_seconds):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value >= 0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**30, "1.0 GiB"),
        (5 * 2**40, "5.0 TiB"),
        (2**50, "1.0 PiB"),
        (1023 * 2**50, "1023.0 PiB"),
        (2**63, "8.0 EiB"),
    ],
)
def test_sizes_are_formatted_with_their_unit(size: int, text: str) -> None:
    assert format_bytes(size) == text


@examples
@given(st.integers(0, 2**60))
def test_a_formatted_size_is_parsed_back_within_its_rounding(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.06, abs=0.5)


def test_a_count_of_one_is_singular() -> None:
    shown = [format_count(number, "file") for number in (0, 1, 2, 1000)]
    assert shown == ["0 files", "1 file", "2 files", "1,000 files"]


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0.4, "0 rows/s"),
        (999, "999 rows/s"),
        (1_000, "1.0k rows/s"),
        (312_499, "312k rows/s"),
        (1_540_000, "1.5M rows/s"),
        (83_000_000, "83M rows/s"),
        (2.5e9, "2.5G rows/s"),
    ],
)
def test_rates_are_formatted(per_second: float, text: str) -> None:
    assert format_rate(per_second, "rows") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3_599.6, "1 h 0 min"),
        (360_000, "100 h 0 min"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
