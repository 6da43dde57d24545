"""Notifying many servers takes as long as one, even if some are silent, and reports those."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from mrflight.config.identity import ANONYMOUS
from mrflight.errors import DeadlineExceededError, ServerUnavailableError, SpillError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.calls import note_silence, notify
from mrflight.shuffle.wire.protocol import DataAction, ShuffleName
from mrflight.system.deadlines import NO_RETRY
from tests.support.clusters.near_cluster import near_data_servers, near_metadata

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


def test_only_a_server_that_gives_no_answer_at_all_is_silent(tmp_path: Path) -> None:
    def is_silent(location: str) -> bool:
        error = ServerUnavailableError("the connection broke")
        note_silence(error, location, ANONYMOUS)
        return error.is_silent

    with ExitStack() as stack:
        metadata = stack.enter_context(near_metadata(Registry(time.monotonic, 60.0)))
        (alive,) = stack.enter_context(near_data_servers(metadata, 1, tmp_path))
        listening = stack.enter_context(socket.create_server(("", 0)))
        location = f"grpc+tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert not is_silent(alive.location)
        assert is_silent(location)
        listening.close()
        assert not is_silent(location)  # it is refused


def test_a_server_that_has_said_what_is_wrong_is_not_asked() -> None:
    note_silence(SpillError("the disk is full"), "no location", ANONYMOUS)
