"""place_partitions spreads partitions evenly, and starts with the least loaded servers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import NoDataServersError
from mrflight.shuffle.metadata.placement import place_partitions
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(200), derandomize=True)

loads = st.dictionaries(
    st.integers(0, 12).map(lambda i: f"grpc+tcp://10.0.0.{i}:5005"), st.integers(0, 5), min_size=1
)


@examples
@given(st.integers(1, 60), loads, st.data())
def test_replicas_are_on_different_available_servers(
    partitions: int, load: dict[str, int], data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(load)))
    placement = place_partitions(partitions, load, replicas)
    assert len(placement) == partitions
    for locations in placement:
        assert len(locations) == len(set(locations)) == replicas
        assert set(locations) <= set(load)


@examples
@given(st.integers(1, 60), loads)
def test_no_server_gets_two_partitions_more_than_another(
    partitions: int, load: dict[str, int]
) -> None:
    placement = place_partitions(partitions, load)
    counts = Counter(dict.fromkeys(load, 0))
    counts.update(location for (location,) in placement)
    assert max(counts.values()) - min(counts.values()) <= 1


@examples
@given(st.integers(1, 60), loads, st.data())
def test_with_replicas_no_server_gets_two_partitions_more_than_another(
    partitions: int, load: dict[str, int], data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(load)))
    counts = Counter(dict.fromkeys(load, 0))
    for locations in place_partitions(partitions, load, replicas):
        counts.update(locations)
    assert max(counts.values()) - min(counts.values()) <= 1


@examples
@given(st.integers(1, 60), loads)
def test_first_locations_are_spread_evenly_with_replicas(
    partitions: int, load: dict[str, int]
) -> None:
    counts = Counter(dict.fromkeys(load, 0))
    counts.update(at[0] for at in place_partitions(partitions, load, replicas=len(load)))
    assert max(counts.values()) - min(counts.values()) <= 1


@examples
@given(loads, st.data())
def test_the_least_loaded_servers_come_first(load: dict[str, int], data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, len(load)))
    chosen = [location for (location,) in place_partitions(partitions, load)]
    left = [location for location in load if location not in chosen]
    assert len(set(chosen)) == partitions
    assert [load[location] for location in chosen] == sorted(load[location] for location in chosen)
    assert all(load[here] <= load[there] for here in chosen for there in left)


@examples
@given(st.integers(1, 20), loads)
def test_the_same_servers_give_the_same_placement(partitions: int, load: dict[str, int]) -> None:
    backwards = dict(reversed(load.items()))
    assert place_partitions(partitions, load) == place_partitions(partitions, backwards)


@pytest.mark.parametrize(("servers", "replicas"), [(0, 1), (1, 2), (2, 3)])
def test_too_few_servers_are_refused(servers: int, replicas: int) -> None:
    load = {f"server {i}": 0 for i in range(servers)}
    with refused(NoDataServersError) as caught:
        place_partitions(3, load, replicas)
    assert caught.value.retryable
