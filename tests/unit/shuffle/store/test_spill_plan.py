"""Cold and large partitions are spilled first, and no more of them than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrflight.shuffle.store.spiller import Resident, plan_spill


def test_the_coldest_of_at_least_average_size_go_first() -> None:
    resident = [
        Resident("small and cold", 1, touched=0),
        Resident("large and warm", 50, touched=9),
        Resident("large and cold", 40, touched=2),
        Resident("small and warm", 2, touched=5),
    ]
    assert plan_spill(resident, 1) == ["large and cold"]
    assert plan_spill(resident, 41) == ["large and cold", "large and warm"]
    assert plan_spill(resident, 93) == [
        "large and cold",
        "large and warm",
        "small and cold",
        "small and warm",
    ]
    assert plan_spill(resident, 0) == []
    assert plan_spill([], 10) == []


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 5))), st.integers(0, 2_000))
def test_a_plan_frees_enough_and_its_last_partition_is_needed(
    sizes: list[tuple[int, int]], excess: int
) -> None:
    resident = [Resident(i, size, touched) for i, (size, touched) in enumerate(sizes)]
    chosen = [resident[i].size_bytes for i in plan_spill(resident, excess)]
    assert sum(chosen) >= min(excess, sum(size for size, _ in sizes))
    assert sum(chosen[:-1]) < max(excess, 1)
