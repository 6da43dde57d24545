"""Sorts in the bytes of a plan that keep the first rows only, and must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import Node
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    only_field,
    replaced,
    values_of,
    with_number,
)

ALL_ROWS: Final = 2**64 - 1
"""-1 as a varint."""


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
    return encode_field(of.SORT_NODE, with_number(node, of.SORT_FETCH, ALL_ROWS))


def with_all_rows(root: Node) -> bytes:
    """Return the bytes of a plan whose sorts of branches keep all rows."""
    encoded = root.encoded
    for sort in dict.fromkeys(each.encoded for each in sorts_of_branches(root)):
        encoded = replaced(encoded, sort, unlimited(sort))
    return encoded
