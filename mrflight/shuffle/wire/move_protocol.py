"""The messages with which a data server that stops moves its partitions to others."""

from __future__ import annotations

from mrflight.shuffle.wire.protocol import Message


class PlanMove(Message, frozen=True):
    """Ask where the partitions of a shuffle can go that only ``origin`` holds."""

    id: str
    origin: str


class PlanMoveResponse(Message, frozen=True):
    """The partitions, and a target for each; no targets if there is no other server."""

    partitions: list[int]
    targets: list[str]


class MovePartitions(Message, frozen=True):
    """Move ``partitions`` from ``origin`` to ``targets``, one each, where they were copied.

    The copies have the blocks of the first ``epoch`` commits.
    """

    id: str
    origin: str
    partitions: list[int]
    targets: list[str]
    epoch: int
    version: int
