"""The output that every way writes: parts of random numbers, which do not compress."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

DUPLICATED_EVERY = 5
"""One in this many parts has a second attempt, whose file does not count."""


@dataclass(frozen=True)
class Output:
    """An output of ``parts`` tables of ``rows`` rows.

    With ``duplicates`` some are written twice.
    """

    parts: int
    rows: int
    duplicates: bool = False

    @property
    def name(self) -> str:
        return f"{self.parts} parts" + (", duplicated" if self.duplicates else "")

    def part(self, number: int) -> pa.Table:
        values = np.random.default_rng(number).integers(0, 2**63, self.rows)
        return pa.table({"part": pa.repeat(pa.scalar(number), self.rows), "value": values})

    def table(self) -> pa.Table:
        return pa.concat_tables(map(self.part, range(self.parts)))

    def attempts(self, number: int) -> int:
        """Return how many attempts write the part. The first of them wins."""
        return 2 if self.duplicates and number % DUPLICATED_EVERY == 0 else 1
