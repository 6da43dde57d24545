"""All servers are notified at the same time, even if some are silent, and these are reported."""

from __future__ import annotations

import math
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.identity import ANONYMOUS
from mrflight.errors import DeadlineExceededError, ServerUnavailableError, SpillError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire import calls
from mrflight.shuffle.wire.calls import note_silence, notify
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, ShuffleName
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.near_cluster import near_data_servers, near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.suite.waiting import hang_s

SILENT = 5


def test_silent_servers_are_waited_for_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends only when all have begun: one after the other they would never end."""
    together = threading.Barrier(SILENT + 1)
    really = calls.call

    def call_beside_the_others(connections: Connections, location: str, *about: Any) -> object:
        together.wait(hang_s())
        return really(connections, location, *about, 0.2 if location in silent else math.inf)

    monkeypatch.setattr(calls, "call", call_beside_the_others)
    monkeypatch.setattr(calls, "NO_RETRY", Timeouts(call_s=86_400.0, reconnect_s=0.0))
    with ExitStack() as stack:
        metadata = stack.enter_context(near_metadata(Registry(Clock(), TIMEOUT_S)))
        (heard,) = stack.enter_context(near_data_servers(metadata, 1, tmp_path))
        listening = [stack.enter_context(socket.create_server(("", 0))) for _ in range(SILENT)]
        silent = [f"grpc+tcp://127.0.0.1:{each.getsockname()[1]}" for each in listening]
        servers = [*silent, heard.location]
        failed = notify(servers, DataAction.DROP_SHUFFLE, ShuffleName("none"), ANONYMOUS)
    assert list(failed) == silent
    assert {type(error) for error in failed.values()} == {DeadlineExceededError}


def test_only_a_server_that_gives_no_answer_at_all_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(seconds: float) -> None:
        monkeypatch.setattr(calls, "NO_RETRY", Timeouts(call_s=seconds, reconnect_s=0.0))

    def is_silent(location: str) -> bool:
        error = ServerUnavailableError("the connection broke")
        note_silence(error, location, ANONYMOUS)
        return error.is_silent

    with ExitStack() as stack:
        metadata = stack.enter_context(near_metadata(Registry(Clock(), TIMEOUT_S)))
        (alive,) = stack.enter_context(near_data_servers(metadata, 1, tmp_path))
        listening = stack.enter_context(socket.create_server(("", 0)))
        location = f"grpc+tcp://127.0.0.1:{listening.getsockname()[1]}"
        waits(hang_s())
        assert not is_silent(alive.location)
        waits(0.2)
        assert is_silent(location)
        waits(hang_s())
        listening.close()
        assert not is_silent(location)  # it is refused


def test_a_server_that_has_said_what_is_wrong_is_not_asked() -> None:
    note_silence(SpillError("the disk is full"), "no location", ANONYMOUS)
