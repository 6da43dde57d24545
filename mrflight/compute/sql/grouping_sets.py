"""The columns by which all sets of `grouping sets` group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datafusion import Expr

_BEGIN, _BETWEEN, _END = "GROUPING SETS ((", "), (", "))"


def columns_of_all(groups: Sequence[Expr], names: Sequence[str]) -> frozenset[str]:
    """Those that are in each set, called as in ``names``, the aggregate's columns.

    None of them where the sets are not clear: only what is shown of them is known.
    """
    shown = groups[0].canonical_name() if len(groups) == 1 else ""
    columns = names[: names.index("__grouping_id")] if "__grouping_id" in names else []
    is_clear = shown.startswith(_BEGIN) and shown.endswith(_END)
    if not is_clear or any(sign in name for name in columns for sign in "(),"):
        return frozenset()
    sets = [frozenset(each.split(", ")) for each in shown[len(_BEGIN) : -len(_END)].split(_BETWEEN)]
    if any(not each <= set(columns) for each in sets):
        return frozenset()
    return frozenset.intersection(*sets)
