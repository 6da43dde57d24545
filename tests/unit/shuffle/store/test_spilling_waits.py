"""A put waits for memory, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrflight.errors import (
    AttemptSupersededError,
    DeadlineExceededError,
    MrflightError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_store import BlockStore
from tests.support.clusters.spilling import FIRST, KIB, NAME, SECOND, Spilling, block, rows
from tests.support.commands.threads import await_thread
from tests.support.suite.waiting import hang_s


class Put:
    """A put in a thread that waits for memory once this is created."""

    def __init__(self, store: BlockStore, source: MapAttempt, size: int) -> None:
        self.error: MrflightError | None = None
        waits = store._budget._waits
        before = len(waits)

        def run() -> None:
            try:
                store.put(NAME, 0, source, block(7, size))
            except MrflightError as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()
        with store._changed:
            assert store._changed.wait_for(lambda: len(waits) > before, hang_s())

    def join(self) -> MrflightError | None:
        await_thread(self._thread)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Spilling]:
    """A full store without a thread that spills."""
    made = Spilling(tmp_path)
    made.store._spiller.start = lambda: None  # type: ignore[method-assign]
    made.put(55)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda store: store.drop(NAME), ShuffleNotFoundError),
        (lambda store: store.discard(NAME, SECOND), AttemptSupersededError),
        (lambda store: store.close(), ServerUnavailableError),
    ],
)
def test_events_that_end_a_waiting_put(
    stuck: Spilling, change: Callable[[BlockStore], None], error: type[MrflightError]
) -> None:
    put = Put(stuck.store, SECOND, 100 * KIB)
    change(stuck.store)
    assert isinstance(put.join(), error)


@pytest.mark.parametrize(
    "change", [lambda store: store.drop("other"), lambda store: store.discard(NAME, FIRST)]
)
def test_freed_memory_lets_a_put_continue(
    stuck: Spilling, change: Callable[[BlockStore], None]
) -> None:
    stuck.store.discard(NAME, FIRST)
    stuck.store.open("other", 1)
    for number in range(27):
        stuck.store.put("other", 0, FIRST, block(number))
        stuck.store.put(NAME, 0, FIRST, block(number))
    put = Put(stuck.store, SECOND, 100 * KIB)
    change(stuck.store)
    assert put.join() is None
    assert rows(stuck.store.read(NAME, 0, [SECOND])) == [7]


def test_a_put_does_not_wait_for_ever(tmp_path: Path) -> None:
    spilling = Spilling(tmp_path, put_timeout_s=0.05)
    spilling.store._spiller.start = lambda: None  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceededError, match="found no memory"):
        spilling.put(100)
    spilling.close()
