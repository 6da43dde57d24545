"""A stream that cannot pass some blocks in shared memory passes them itself, and loses none."""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mrflight
from mrflight.shuffle.client.put_streams import SharedPutStream
from mrflight.shuffle.metadata.registry import Registry
from mrflight.system.segment_channel import SegmentChannel
from mrflight.system.shared_memory import Segment
from tests.support.clusters.near_cluster import near_data_servers, near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

HEARTBEAT_TIMEOUT_S = 60.0
PARTITIONS = 3
ROWS = (200_000, 100, 100_000, 100)
"""The rows of each batch: large blocks, and small ones, which are passed together."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[mrflight.Cluster]:
    """A client of servers in this process, so that both ends meet what a test does to it."""
    with (
        near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata,
        near_data_servers(metadata, 1, tmp_path),
        mrflight.connect(metadata) as cluster,
    ):
        yield cluster


Wrapped = Callable[..., Any]


def refuses_every_other(do: Wrapped) -> Wrapped:
    """As Linux does while too many descriptors are on their way."""
    calls = itertools.count()
    return lambda *arguments: next(calls) % 2 == 0 and do(*arguments)


def fails_every_other(do: Wrapped) -> Wrapped:
    """As Linux does while too many files are open."""
    calls = itertools.count()

    def wrapped(*arguments: Any) -> Any:
        if next(calls) % 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return do(*arguments)

    return wrapped


@pytest.mark.parametrize(
    ("owner", "name", "wrapper"),
    [
        (SegmentChannel, "send", refuses_every_other),
        (Segment, "of", fails_every_other),
    ],
    ids=["on their way", "open files"],
)
def test_blocks_go_either_way_and_in_their_order(
    cluster: mrflight.Cluster,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    wrapper: Callable[[Wrapped], Wrapped],
) -> None:
    inside = []
    send = SharedPutStream._send_message
    monkeypatch.setattr(SharedPutStream, "_send_message", lambda *a: inside.append(a) or send(*a))
    shuffle = cluster.create_shuffle("either", PARTITIONS)
    random = np.random.default_rng(1)
    batches = [
        pa.record_batch({"key": random.integers(-(2**62), 2**62, rows)}) for rows in ROWS * 3
    ]
    with shuffle.writer(0, key=["key"]) as out, monkeypatch.context() as patch:
        patch.setattr(owner, name, wrapper(getattr(owner, name)))
        for each in batches:
            out.write(each)
            out._flush()
        out.commit()
        found = [
            pa.Table.from_batches(each).combine_chunks()
            for each in (shuffle.reader(p) for p in range(PARTITIONS))
        ]
    assert 0 < len(inside) < len(batches) * PARTITIONS
    whole = pa.Table.from_batches(batches)
    ids = np.concatenate(
        [mrflight.partition_ids(b, ["key"], PARTITIONS).to_numpy() for b in batches]
    )
    for partition, table in enumerate(found):
        assert table == whole.filter(pa.array(ids == partition)).combine_chunks()
    shuffle.drop()
