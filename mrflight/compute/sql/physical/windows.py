"""Windows in the bytes of a plan: the order of the rows that they take for granted."""

from __future__ import annotations

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import WINDOWS, Node
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    only_field,
    values_of,
    with_values,
)


def sorted_for(window: bytes, child: bytes) -> bytes:
    """Return a sort of the rows below a window, as `as_sorted` needs them."""
    partitions, order = _keys(window)
    keys = [encode_field(of.SORTED, each) + encode_field(of.ASCENDING, 1) for each in partitions]
    sort = encode_field(1, child)
    sort += b"".join(
        encode_field(of.SORT_KEYS, encode_field(of.SORT_KEY, each)) for each in keys + order
    )
    return encode_field(of.SORT_NODE, sort + encode_field(of.SORT_FETCH, of.ALL_ROWS))


def has_sorted_rows(window: Node) -> bool:
    """Return whether a sort below a window names its keys, if it has any.

    DataFusion leaves a sort out where rows have that order already, and sorts by columns that equal
    those of the window. What it knows about rows ends where these are sent to other tasks.
    """
    if not any(_keys(window.encoded)):
        return True
    (below,) = window.children
    while below.kind in WINDOWS:
        (below,) = below.children
    sorts = below.kind in ("SortExec", "SortPreservingMergeExec")  # whose fields are the same
    return sorts and is_sorted_for(window.encoded, below.encoded)


def is_sorted_for(window: bytes, sort: bytes) -> bool:
    """Return whether a sort names all keys of a window, and not only others that equal them."""
    partitions, order = _keys(window)
    _, node = only_field(sort)
    keys = [
        value for each in values_of(node, of.SORT_KEYS) for value in values_of(each, of.SORT_KEY)
    ]
    first, then = keys[: len(partitions)], keys[len(partitions) :]
    named = {values_of(each, of.SORTED)[0] for each in first}
    return named == set(partitions) and then[: len(order)] == order


def _keys(window: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return what a window is partitioned by, and what else it is sorted by."""
    _, node = only_field(window)
    partitions = list(dict.fromkeys(values_of(node, of.WINDOW_PARTITIONS)))
    first, *_ = values_of(node, of.WINDOW_EXPRESSIONS)
    order = values_of(first, of.WINDOW_ORDER)
    return partitions, [each for each in order if values_of(each, of.SORTED)[0] not in partitions]


def as_sorted(window: bytes) -> bytes:
    """Return a window over rows that are sorted by its partitions, and then by its order."""
    kind, node = only_field(window)
    if not any(values_of(node, mode) for mode in of.WINDOW_MODES):
        return window  # one that is not bounded is always over sorted rows
    for mode in of.WINDOW_MODES:
        node = with_values(node, mode, [])
    return encode_field(kind, with_values(node, of.WINDOW_MODES[-1], [b""]))
