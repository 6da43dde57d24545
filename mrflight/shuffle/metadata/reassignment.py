"""Plans new locations for partitions when servers are lost, join or stop.

The functions are pure: the plan is an event for the caller to apply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from mrflight.errors import NoDataServersError, PlacementChangedError, ProtocolError
from mrflight.shuffle.metadata.events import PartitionsPlaced
from mrflight.shuffle.metadata.placement import place_partitions
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.units import format_count

ChooseLocations = Callable[[ShuffleState, int, Collection[str]], list[list[str]]]
"""Chooses the locations of so many partitions, none of them among those in the collection. Each
list is empty if no server is available."""


class Loss(NamedTuple):
    """The loss of what a location holds of a shuffle."""

    location: str
    partitions: Collection[int] | None = None
    """Only these partitions are lost; None for all."""
    avoids: bool = False
    """No partition of the shuffle is placed at the location again."""
    is_leaving: bool = False
    """The server leaves, and gets no partitions back."""


def plan_recovery(
    state: ShuffleState,
    loss: Loss,
    living: Collection[str],
    choose_locations: ChooseLocations,
) -> PartitionsPlaced | None:
    """Return where the partitions of a loss are from now on, or None if nothing changes.

    A partition with a replica on a living server stays there. The others are placed elsewhere,
    without their rows. If no other server is available, they are placed at the same location again,
    unless the shuffle avoids it or its server is leaving.
    """
    location, placement = loss.location, state.placement
    held = [p for p, places in enumerate(placement.locations) if location in places]
    if loss.partitions is not None:
        held = sorted(set(held) & set(loss.partitions))
    # A server that is gone need not be avoided: a new process at its location can be used.
    is_newly_avoided = loss.avoids and location in living and location not in placement.avoided
    if not held and not is_newly_avoided:
        return None
    remaining = {
        p: [at for at in placement.locations[p] if at != location and at in living] for p in held
    }
    lost = [p for p in held if not remaining[p]]
    chosen = choose_locations(state, len(lost), {*placement.avoided, location})
    if not all(chosen) and not (loss.avoids or loss.is_leaving):
        chosen = choose_locations(state, len(lost), placement.avoided)
    locations = remaining | dict(zip(lost, chosen, strict=True))
    avoided = [location] if loss.avoids else []
    return PartitionsPlaced(state.id, held, [locations[p] for p in held], lost, avoided=avoided)


def plan_reassignment(
    state: ShuffleState, choose_locations: ChooseLocations
) -> PartitionsPlaced | None:
    """Return locations for the partitions that have none, or None if all have one.

    Raises NoDataServersError if no server is available.
    """
    unplaced = state.placement.unplaced
    if not unplaced:
        return None
    chosen = choose_locations(state, len(unplaced), state.placement.avoided)
    if not all(chosen):
        lost = format_count(len(unplaced), "lost partition")
        raise NoDataServersError(
            f"no data server is left for {lost} of shuffle {state.id!r}; "
            f"start one with 'mrflight serve data --metadata LOCATION'"
        )
    return PartitionsPlaced(state.id, unplaced, chosen, lost=unplaced)


def find_sole_replicas(state: ShuffleState, origin: str, living: Collection[str]) -> list[int]:
    """Return the partitions that are at ``origin`` and on no other living server."""
    return [
        p
        for p, places in enumerate(state.placement.locations)
        if origin in places and not any(at in living for at in places if at != origin)
    ]


def choose_targets(
    state: ShuffleState, partitions: Sequence[int], load: Mapping[str, int]
) -> list[str]:
    """Return a server for each partition to move to, evenly; an empty list if there is no server.

    A server with a stale replica of a partition is only chosen for it if all servers have one.
    """
    if not load:
        return []
    stale = state.placement.stale_replicas
    targets = [target for (target,) in place_partitions(len(partitions), load)]
    for i, partition in enumerate(partitions):
        if (partition, targets[i]) in stale:
            others = (at for at in sorted(load) if (partition, at) not in stale)
            targets[i] = next(others, targets[i])
    return targets


def plan_move(
    state: ShuffleState,
    moves: Mapping[int, str],
    origin: str,
    available: Collection[str],
    epoch: int,
    version: int,
) -> PartitionsPlaced:
    """Return the move of partitions from ``origin``, each to the target where it was copied.

    The copies were made at ``epoch`` and ``version``. Raises PlacementChangedError if the shuffle
    has changed since, and ProtocolError if a partition cannot be moved like this.
    """
    placement = state.placement
    if (state.log.epoch, placement.version) != (epoch, version):
        raise PlacementChangedError(f"shuffle {state.id!r} has changed while partitions were moved")
    locations = []
    for partition, target in moves.items():
        places = placement.locations[partition] if 0 <= partition < len(placement) else ()
        can_take = target in available and (partition, target) not in placement.stale_replicas
        if origin not in places or target in places or not can_take:
            raise ProtocolError(
                f"partition {partition} of shuffle {state.id!r} cannot be moved from "
                f"{origin[:256]} to {target[:256]}"
            )
        locations.append([target if place == origin else place for place in places])
    moved = list(moves)
    return PartitionsPlaced(state.id, moved, locations, lost=[], moved=moved)
