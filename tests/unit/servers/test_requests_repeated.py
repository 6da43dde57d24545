"""Requests that are repeated, and requests to several servers of which one is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mrflight.servers.listening import Listening
from mrflight.servers.metadata import MetadataServer
from pyarrow import flight

import mrflight
from mrflight.errors import ShuffleNotFoundError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.protocol import MetadataAction
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import standing_cluster
from tests.support.clusters.near_cluster import near_data_servers, near_metadata
from tests.support.commands.threads import run_threads

ROWS = pa.record_batch({"k": pa.array(range(1_000))})


class ServerThatLosesAnAnswer(MetadataServer):
    """Drops the shuffle at the first request, but the answer does not arrive."""

    lost = 0

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        answer: list[bytes] = super().do_action(context, action)
        if action.type == MetadataAction.DROP_SHUFFLE and not self.lost:
            self.lost += 1
            raise flight.FlightUnavailableError("the answer is lost")
        return answer


def test_a_drop_whose_answer_was_lost_succeeds(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, 60.0)
    server = ServerThatLosesAnAnswer(Listening("grpc+tcp://127.0.0.1:0"), registry)
    location = f"grpc+tcp://127.0.0.1:{server.port}"
    with near_data_servers(location, 1, tmp_path), mrflight.connect(location) as client:
        shuffle = client.create_shuffle("dropped", 3)
        shuffle.drop()
        assert server.lost == 1
        assert registry.overview.shuffles() == []
        with pytest.raises(ShuffleNotFoundError):
            shuffle.drop()
    server.shutdown()


def test_stale_attempts_are_dropped_on_reachable_servers(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, 60.0)
    with (
        near_metadata(registry) as metadata,
        near_data_servers(metadata, 3, tmp_path) as servers,
        mrflight.connect(metadata) as client,
    ):
        shuffle = client.create_shuffle("twins", 6)
        stale = shuffle.writer(0, 0, key=["k"], writer_id="w")
        stale.write(ROWS)
        stale._sender.stop()
        for partition, rows in stale._buffers.take_all() if stale._buffers else ():
            stale._sender.send(partition, stale._encoder.block(rows))
        stale._sender.finish()
        with shuffle.writer(0, 1, key=["k"], writer_id="w") as winner:
            winner.write(ROWS)
        first, *others = sorted(servers, key=lambda near: near.location)
        assert all(near.store.stats().blocks == 4 for near in others)
        first.server.shutdown()
        shuffle.drop_stale_attempts(0, attempts=1, writer_id="w")
        assert all(near.store.stats().blocks == 2 for near in others)


@pytest.mark.slow
def test_an_attempt_is_aborted_while_a_server_is_suspended() -> None:
    """It is not waited for as long as for other calls, which would be a day here."""
    patient = Timeouts(call_s=86_400.0, stream_s=86_400.0)
    with (
        standing_cluster(2) as running,
        mrflight.connect(running.metadata, timeouts=patient) as client,
    ):
        shuffle = client.create_shuffle("aborted", 4)
        writer = shuffle.writer(0, 0, key=["k"], buffer_bytes=1)
        writer.write(ROWS)
        stopped: list[subprocess.Popen[str]] = running.data_processes
        try:
            for process in stopped:
                os.kill(process.pid, signal.SIGSTOP)
            run_threads([writer.abort])
        finally:
            for process in stopped:
                os.kill(process.pid, signal.SIGCONT)
        shuffle.drop()
