"""The cases of the comparison: a job, its data, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

JOBS = ("clicks-unique", "clicks-10", "zipf", "repartition", "sort")
CAPPED = "-capped"
CAP_SHARE = 4
"""The ratio of the data to the memory of a capped case."""

_MANY_ROWS_SCALE = 5.0
_TITLES = {
    "clicks": "csv, sum per url",
    "zipf": "Parquet, sum and count per skewed key",
    "repartition": "TPC-H lineitem by order key, into Delta",
    "sort": "TPC-H lineitem sorted by part",
}


@dataclass(frozen=True)
class Case:
    """One job on one input. ``size`` is a number of rows, or TPC-H's scale factor for lineitem."""

    job: str
    keys: str
    size: float
    capped: bool = False

    @property
    def name(self) -> str:
        """The name of the case in folders, options and the JSON."""
        data = f"sf{self.size:g}" if self.is_lineitem else f"{self.keys}-{self.size:g}-rows"
        return "-".join(filter(None, (self.job, data.lstrip("-")))) + CAPPED * self.capped

    @property
    def title(self) -> str:
        """The name of the case in reports."""
        size = f"scale factor {self.size:g}" if self.is_lineitem else f"{self.size:,.0f} rows"
        keys = {"": "", "unique": ", a key per row"}.get(self.keys, f", {self.keys} keys")
        capped = ", memory capped at a quarter of the data" if self.capped else ""
        return f"{_TITLES[self.job]}: {size}{keys}{capped}"

    @property
    def is_lineitem(self) -> bool:
        """True if the input is TPC-H's lineitem."""
        return self.job in ("repartition", "sort")

    @property
    def partitions(self) -> int:
        """The number of partitions of all engines that have partitions."""
        return 80 if self.is_lineitem and self.size >= _MANY_ROWS_SCALE else 20


@dataclass(frozen=True)
class Sizes:
    """The ``rows`` of clicks and zipf, and the ``scales`` of lineitem."""

    rows: int
    scales: tuple[float, ...]


def cases(names: Sequence[str], sizes: Sizes, capped_sizes: Sizes) -> list[Case]:
    """Return the cases of some jobs; raise ValueError for a job that does not exist."""
    return [
        case
        for name in names
        for case in _cases(name, capped_sizes if name.endswith(CAPPED) else sizes)
    ]


def _cases(name: str, sizes: Sizes) -> list[Case]:
    plain = name.removesuffix(CAPPED)
    if plain not in JOBS:
        raise ValueError(f"{name} is no job; there are {', '.join(JOBS)}, each also with {CAPPED}")
    job, _, keys = plain.partition("-")
    of_job = sizes.scales if job in ("repartition", "sort") else (sizes.rows,)
    return [Case(job, keys, size, name != plain) for size in of_job]
