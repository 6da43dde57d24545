"""What is wrong with the tables of a stream to which much was done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from tests.support.chaos.producers import Sent
from tests.support.chaos.table import FOREIGN, Move, Row


def wrong_rows(rows: Sequence[Row], sent: Sent) -> list[str]:
    """Return what is lost, doubled, invented or out of order in the table of a stream."""
    found = Counter((row.producer, row.number) for row in rows)
    places = Counter((row.partition, row.offset) for row in rows if row.producer != FOREIGN)
    return [
        *compared("row", found, sent.committed, sent.unknown),
        *_twice("offset", places),
        *_out_of_order(rows),
    ]


def compared(
    what: str, found: Counter[Any], wanted: Iterable[Any], allowed: Iterable[Any] = ()
) -> list[str]:
    """Return what is lost, doubled or invented; ``allowed`` may be there, or not."""
    lost = set(wanted) - set(found)
    invented = set(found) - set(wanted) - set(allowed)
    return [
        *([f"{len(lost)} {what}s are lost, such as {min(lost)}"] if lost else []),
        *([f"{len(invented)} {what}s are invented, such as {min(invented)}"] if invented else []),
        *_twice(what, found),
    ]


def _twice(what: str, found: Counter[Any]) -> list[str]:
    twice: list[Hashable] = [each for each, count in found.items() if count > 1]
    return [f"{len(twice)} {what}s are there twice, such as {twice[0]}"] if twice else []


def _out_of_order(rows: Sequence[Row]) -> list[str]:
    """Return where a producer's numbers do not rise with the offsets of a partition."""
    by_producer: dict[tuple[int, int | None], list[Row]] = defaultdict(list)
    for row in rows:
        if row.producer != FOREIGN:
            by_producer[row.producer, row.partition].append(row)
    wrong = []
    for (producer, partition), events in by_producer.items():
        numbers = [row.number for row in sorted(events, key=lambda row: row.offset or 0)]
        if numbers != sorted(numbers):
            wrong.append(f"the numbers of producer {producer} in partition {partition} do not rise")
    return wrong


def wrong_moves(
    moves: Sequence[Move], recorded: Mapping[str, int], ends: Mapping[int, int]
) -> list[str]:
    """Return where the commits of a stream do not go on from each other to the ends."""
    wrong, reached = [], dict[str, int]()
    for move in moves:
        for name, after in move.after.items():
            if move.before.get(name) != reached.get(name):
                wrong.append(f"{move.name}: {name} went on from {move.before.get(name)}")
            if after < reached.get(name, 0):
                wrong.append(f"{move.name}: {name} went back to {after}")
            reached[name] = after
    if dict(recorded) != reached:
        wrong.append(f"the table has recorded {recorded}, and its commits say {reached}")
    if by_partition(recorded) != {partition: end for partition, end in ends.items() if end}:
        wrong.append(f"the table has come to {recorded} of {ends}")
    return wrong


def by_partition(recorded: Mapping[str, int]) -> dict[int, int]:
    """Return the offsets of the one topic of a stream, without those at its beginning."""
    return {int(name.rpartition("/")[2]): offset for name, offset in recorded.items() if offset}
