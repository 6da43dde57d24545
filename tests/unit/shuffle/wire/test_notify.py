"""Notifying many servers takes as long as one, even if some are silent."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from mrflight.config.identity import ANONYMOUS
from mrflight.errors import DeadlineExceededError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.protocol import DataAction, ShuffleName
from mrflight.system.deadlines import NO_RETRY
from tests.support.near_cluster import near_data_servers, near_metadata

SILENT = 5


def test_many_silent_servers_take_as_long_as_one(tmp_path: Path) -> None:
    with ExitStack() as stack:
        metadata = stack.enter_context(near_metadata(Registry(time.monotonic, 60.0)))
        (heard,) = stack.enter_context(near_data_servers(metadata, 1, tmp_path))
        listening = [stack.enter_context(socket.create_server(("", 0))) for _ in range(SILENT)]
        silent = [f"grpc+tcp://127.0.0.1:{each.getsockname()[1]}" for each in listening]
        began_s = time.monotonic()
        servers = [*silent, heard.location]
        failed = notify(servers, DataAction.DROP_SHUFFLE, ShuffleName("none"), ANONYMOUS)
        took_s = time.monotonic() - began_s
    assert list(failed) == silent
    assert {type(error) for error in failed.values()} == {DeadlineExceededError}
    assert took_s < 2 * NO_RETRY.call_s
