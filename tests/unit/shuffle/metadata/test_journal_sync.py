"""What a journal acknowledged is on the disk, whichever thread wrote it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.journal import Journal
from tests.support.journals import check_order, records_in
from tests.support.threads import run_threads


def test_threads_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:

        def append_all(thread: int) -> None:
            for number in range(50):
                journal.append(b"%d %d" % (thread, number))

        def rewrite_all() -> None:
            for _ in range(20):
                size = journal.size_bytes
                journal.rewrite(journal.records(until=size), size)

        run_threads([*(partial(append_all, thread) for thread in range(8)), rewrite_all])
    check_order(records_in(tmp_path / "j"), dict.fromkeys(range(8), 50))


def test_what_is_synced_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses its power is not at hand, so the calls are watched."""
    synced: list[str] = []

    def watched(sync: Callable[[int], None], file: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{file}"), tmp_path))
        sync(file)

    monkeypatch.setattr(os, "fsync", partial(watched, os.fsync))
    monkeypatch.setattr(os, "fdatasync", partial(watched, os.fdatasync))
    with Journal(tmp_path / "j") as journal:
        assert synced == ["j", "."]
        journal.append(b"one")
        assert synced[2:] == ["j"]
        journal.rewrite([b"two"], journal.size_bytes)
        assert synced[3:] == ["j.new", "."]  # before it takes the other's place, and after
    Journal(tmp_path / "j").close()
    assert synced[5:] == ["j", "."]  # who wrote it may have been killed before its sync


def test_nothing_is_taken_after_a_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk here fails at a sync, so the call is made to: a later one would tell nothing."""

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(b"before")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(JournalError, match="Input/output error"):
                journal.append(b"lost")
        assert journal.size_bytes == path.stat().st_size
        with pytest.raises(JournalError, match=r"a sync failed .*start the server anew"):
            journal.append(b"later")
        assert list(journal.records()) == [b"before"]
        journal.rewrite(journal.records(), journal.size_bytes)  # is another file
        journal.append(b"after")
    assert records_in(path) == [b"before", b"after"]
