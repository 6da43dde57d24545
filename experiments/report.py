"""Write the report of an experiment: its figures as JSON, and a Markdown page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from experiments import machine


def write(folder: Path, name: str, figures: Mapping[str, object], page: str) -> None:
    """Write ``<name>.json``, with the machine, and ``<name>.md`` to ``folder``; print the page."""
    folder.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.description(), **figures}
    text = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (folder / f"{name}.json").write_bytes(text + b"\n")
    (folder / f"{name}.md").write_text(page)
    print(page)


def median_and_range(ratios: Sequence[float]) -> str:
    """Return the median of some ratios, with the least and the largest, as text."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
