"""What tells the plans of queries apart that are kept: a task plans what others planned before it.

To plan a query takes 2 to 4 ms. A map asks for its plan three times, a join's task up to six times,
and a stage has many tasks of the same queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

MAX_CACHED_PLANS = 32
"""Of maps, and of reduces, in a process. Each has a session without rows."""


@dataclass(frozen=True)
class TableSchemas:
    """The tables that a query is planned over: equal where the schemas and their metadata are."""

    schemas: tuple[tuple[str, pa.Schema], ...]

    @classmethod
    def of(cls, schemas: Mapping[str, pa.Schema]) -> TableSchemas:
        """TableSchemas by their names."""
        return cls(tuple(schemas.items()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableSchemas):
            return NotImplemented
        both = zip(self.schemas, other.schemas, strict=False)
        return len(self.schemas) == len(other.schemas) and all(
            name == name_there and schema.equals(there, check_metadata=True)
            for (name, schema), (name_there, there) in both
        )
