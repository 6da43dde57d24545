"""Mends what DataFusion's plans get wrong once they are bytes, and where branches share a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import SERIES, WINDOWS, Node
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    number_of,
    only_field,
    replaced,
    values_of,
    with_number,
    with_values,
)
from mrflight.errors import JobFileError

_DIRECTION = re.compile(r"ORDER BY \[.*? (ASC|DESC) NULLS")

_OTHER_WAY = {b"lag": b"lead", b"lead": b"lag"}
_BY_ORDER = (b"nth_value", b"array_agg", b"string_agg")
"""Functions whose reversal is not in the bytes."""


_ONLY_EMPTY_SETS = re.compile(r"gby=\[\(\)(, \(\))*\]")


def check_kept_as_bytes(root: Node) -> None:
    """Raise JobFileError for a plan of which DataFusion (55) loses a part when it is encoded."""
    for node in root.walk():
        if node.kind == "RecursiveQueryExec":
            raise JobFileError(
                "sql: a recursive query reads its own result again, and DataFusion cannot send "
                "such a plan to a task; write its steps as queries of their own"
            )
        if node.kind == "AggregateExec" and _ONLY_EMPTY_SETS.search(node.text):
            raise JobFileError(
                "sql: a `group by` whose only grouping set is the empty one loses its row when "
                "DataFusion sends its plan to a task; leave `group by` out, which gives that row"
            )


class Mends:
    """What has to be mended in the nodes of a plan."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._sorts = {id(sort) for sort in sorts_of_branches(root)}

    def node(self, node: Node, encoded: bytes) -> bytes:
        """Return the bytes of a node, mended. Raises JobFileError if that is not possible."""
        if id(node) in self._sorts:
            return unlimited(encoded)
        if node.kind == SERIES:
            return mended_series(encoded)
        return mended_window(encoded) if node.kind in WINDOWS else encoded

    def whole(self) -> bytes:
        """Return the bytes of the plan with all of its nodes mended."""
        encoded, known = self._root.encoded, set()
        for node in self._root.walk():  # from the root on, so that what is below stays as it is
            is_mended = id(node) in self._sorts or node.kind in (SERIES, *WINDOWS)
            old = node.encoded if is_mended else None
            if old is not None and old not in known and (new := self.node(node, old)) != old:
                known.add(old)
                encoded = replaced(encoded, old, new)
        return encoded


def sorts_of_branches(root: Node) -> Iterator[Node]:
    """Yield the sorts that do not name all keys of the merge above them.

    They leave out what is the same in all rows of a branch of a union. DataFusion 55 lets the
    branches share what is known of the first rows, as if all were sorted by the same keys. So with
    a limit they lose rows.
    """
    for merge in root.walk():
        if merge.kind != "SortPreservingMergeExec":
            continue
        (below,) = merge.children
        while below.kind != "SortExec" and len(below.children) == 1:
            (below,) = below.children
        if below.kind == "SortExec" and _count_keys(below) < _count_keys(merge):
            yield below


def _count_keys(node: Node) -> int:
    return len(values_of(only_field(node.encoded)[1], of.SORT_KEYS))


def unlimited(sort: bytes) -> bytes:
    """Return a sort that keeps all rows."""
    _, node = only_field(sort)
    return encode_field(of.SORT_NODE, with_number(node, of.SORT_FETCH, of.ALL_ROWS))


def mended_series(series: bytes) -> bytes:
    """Return a series without columns, whose rows are only counted, as one that can be run.

    DataFusion 55 encodes that its column is left out, and makes it when the bytes are decoded. So
    it is made, and a projection leaves it out.
    """
    kind, node = only_field(series)
    if kind != of.SERIES_NODE or any(values_of(node, of.SERIES_SCHEMA)):
        return series
    column = encode_field(of.FIELD_NAME, b"value") + encode_field(of.FIELD_TYPE, _series_type(node))
    schema = encode_field(of.SCHEMA_COLUMN, column)
    whole = encode_field(kind, with_values(node, of.SERIES_SCHEMA, [schema]))
    return encode_field(of.PROJECTION_NODE, encode_field(1, whole))


def _series_type(node: bytes) -> bytes:
    times = values_of(node, of.SERIES_TIMES)
    if not times and not values_of(node, of.SERIES_DAYS):
        return encode_field(of.INT64_TYPE, b"")
    unit = encode_field(of.TIMESTAMP_UNIT, of.NANOSECONDS)
    zones = [zone for each in times for zone in values_of(each, of.SERIES_ZONE)]
    return encode_field(of.TIMESTAMP_TYPE, with_values(unit, of.TIMESTAMP_ZONE, zones))


def mended_window(window: bytes) -> bytes:
    """Return a window whose functions are as its names say.

    DataFusion 55 leaves out of the bytes that a function ignores nulls, has a filter, or works
    against the order of its rows, as one does whose order is the reverse of another's.
    Raises JobFileError for what cannot be said in the bytes.
    """
    kind, node = only_field(window)
    calls = values_of(node, of.WINDOW_EXPRESSIONS)
    mended = [_mended_call(call) for call in calls]
    if mended == calls:
        return window
    return encode_field(kind, with_values(node, of.WINDOW_EXPRESSIONS, mended))


def _mended_call(call: bytes) -> bytes:
    (name,) = (value.decode() for value in values_of(call, of.WINDOW_NAME))
    if "FILTER (WHERE" in name and values_of(call, of.WINDOW_AGGREGATE):
        raise JobFileError(
            f"sql: a task cannot be sent the filter of the window {name[:120]}; write a `case` in "
            "place of `filter`, as in sum(case when a > 1 then b end) over ()"
        )
    if "IGNORE NULLS" in name:
        call = with_number(call, of.WINDOW_IGNORES_NULLS, 1)
    if not _is_reversed(call, name):
        return call
    functions = values_of(call, of.WINDOW_FUNCTION) + values_of(call, of.WINDOW_AGGREGATE)
    (function,) = functions
    if function in _BY_ORDER:
        raise JobFileError(
            f"sql: a task cannot be sent the window {name[:120]} beside one of the reverse order; "
            "query one of them in a subquery"
        )
    if function in _OTHER_WAY:
        return with_values(call, of.WINDOW_FUNCTION, [_OTHER_WAY[function]])
    return call


def _is_reversed(call: bytes, name: str) -> bool:
    """Return whether a function gets its rows in the reverse of the order that it names."""
    order = values_of(call, of.WINDOW_ORDER)
    named = _DIRECTION.search(name)
    if not order or named is None:
        return False
    return (named[1] == "ASC") != bool(number_of(order[0], of.ASCENDING))
