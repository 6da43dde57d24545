"""Where partitions go when servers are lost, come, or stop: pure, a plan is an event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from mrflight.errors import NoDataServersError, PlacementChangedError, ProtocolError
from mrflight.shuffle.metadata.events import PartitionsPlaced
from mrflight.shuffle.metadata.placement import place_partitions
from mrflight.shuffle.metadata.shuffle_state import ShuffleState

Place = Callable[[ShuffleState, int, Collection[str]], list[list[str]]]
"""Locations for so many partitions of a shuffle, without those; each empty where there is none."""


def plan_loss(
    state: ShuffleState,
    location: str,
    partitions: Collection[int] | None,
    living: Collection[str],
    place: Place,
    for_good: bool,
    is_leaving: bool,
) -> PartitionsPlaced | None:
    """What follows from the loss of all partitions at a location, or of some; None: nothing new.

    Those with a copy at a living server are there from now on, the others are placed anew, without
    their rows. With ``for_good`` nothing of the shuffle is placed at the location again; one that
    neither is avoided nor ``is_leaving`` gets some back where there is no other.
    """
    held = [p for p, places in enumerate(state.placement) if location in places]
    if partitions is not None:
        held = sorted(set(held) & set(partitions))
    # One that is gone need not be avoided: another one that joins there would not be.
    is_to_be_avoided = for_good and location in living and location not in state.avoided
    if not held and not is_to_be_avoided:
        return None
    homes = {p: [at for at in state.placement[p] if at != location and at in living] for p in held}
    lost = [p for p in held if not homes[p]]
    anew = place(state, len(lost), {*state.avoided, location})
    if not all(anew) and not (for_good or is_leaving):
        anew = place(state, len(lost), state.avoided)
    homes.update(zip(lost, anew, strict=True))
    avoided = [location] if for_good else []
    return PartitionsPlaced(state.id, held, [homes[p] for p in held], lost, avoided=avoided)


def plan_homes(state: ShuffleState, place: Place) -> PartitionsPlaced | None:
    """Locations for the partitions that have none; NoDataServersError where there is none still."""
    homeless = state.homeless
    if not homeless:
        return None
    places = place(state, len(homeless), state.avoided)
    if not all(places):
        raise NoDataServersError(
            f"{len(homeless)} partitions of shuffle {state.id!r} are lost, and there is no data "
            "server left to write them to; start one with 'mrflight serve data --metadata LOCATION'"
        )
    return PartitionsPlaced(state.id, homeless, places, lost=homeless)


def held_alone(state: ShuffleState, origin: str, living: Collection[str]) -> list[int]:
    """The partitions that are at ``origin`` and at no other living server."""
    return [
        p
        for p, places in enumerate(state.placement)
        if origin in places and not any(at in living for at in places if at != origin)
    ]


def choose_targets(
    state: ShuffleState, partitions: Sequence[int], load: Mapping[str, int]
) -> list[str]:
    """Where each of these partitions can be moved to, evenly; nowhere, where there is no server.

    Not to a server that has some of its blocks, unless all do.
    """
    if not load:
        return []
    targets = [target for (target,) in place_partitions(len(partitions), load)]
    for i, partition in enumerate(partitions):
        if (partition, targets[i]) in state.stale:
            others = (at for at in sorted(load) if (partition, at) not in state.stale)
            targets[i] = next(others, targets[i])
    return targets


def plan_move(
    state: ShuffleState,
    moves: Mapping[int, str],
    origin: str,
    open_now: Collection[str],
    epoch: int,
    version: int,
) -> PartitionsPlaced:
    """That partitions are where they were copied to, as they were at ``epoch`` and ``version``.

    PlacementChangedError where they are not the same any more, ProtocolError for a move that is
    none.
    """
    if (len(state.commits), state.version) != (epoch, version):
        raise PlacementChangedError(f"shuffle {state.id!r} has changed while partitions were moved")
    locations = []
    for partition, target in moves.items():
        is_there = 0 <= partition < len(state.placement)
        places = state.placement[partition] if is_there else ()
        can_take = target in open_now and (partition, target) not in state.stale
        if origin not in places or target in places or not can_take:
            raise ProtocolError(
                f"partition {partition} of shuffle {state.id!r} cannot be moved from "
                f"{origin[:256]} to {target[:256]}"
            )
        locations.append([target if place == origin else place for place in places])
    moved = list(moves)
    return PartitionsPlaced(state.id, moved, locations, lost=[], moved=moved)
