"""``[reduce]``: how the rows of a partition become the result."""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.aggregates import may_have_expression


class ReduceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[reduce]``: how each partition is reduced. An empty section only repartitions."""

    group_by: list[str] = []
    aggregate: dict[str, str] = {}
    """The aggregates of each group; without ``group_by``, of all rows, which become one row."""
    function: str | None = None
    sql: str | None = None
    """A query over all rows of a key. It names the inputs by their names."""
    join: Literal["inner", "left", "right", "full", "semi", "anti"] | None = None
    left: str | None = None
    right: str | None = None
    """The inputs of a join, by name."""
    distinct: bool = False
    """Keeps one of the rows that are equal in all columns."""
    keep: Literal["first", "last"] | None = None
    """Keeps the first or the last row of each key, by ``order_by``."""
    order_by: list[str] = []
    """The order of the rows of one key, written like ``sort_by``."""
    sort_by: list[str] = []
    """``column [asc|desc] [nulls first|last]``: the order of the result over all part files."""
    limit: int | None = None
    """Keeps only so many rows: the first ones by ``sort_by``."""

    @property
    def groups(self) -> bool:
        """True if rows are grouped: by columns, or all of them into one group."""
        return bool(self.group_by or self.aggregate)

    @property
    def is_total(self) -> bool:
        """True if all rows are aggregated into one."""
        return bool(self.aggregate) and not self.group_by

    @property
    def has_sql(self) -> bool:
        """True if the reduce may need DataFusion."""
        return self.sql is not None or any(map(may_have_expression, self.aggregate.values()))

    @property
    def orders(self) -> bool:
        """True if rows are assigned to partitions by their order."""
        return bool(self.sort_by) or self.limit is not None
