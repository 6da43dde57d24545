"""A journal takes records while it is rewritten, and has them behind those it was rewritten to."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.journal import Journal
from tests.support.journals import records_in


@pytest.mark.parametrize("count", [1, 30], ids=["little", "more than is copied at once"])
def test_what_is_appended_meanwhile_comes_after(tmp_path: Path, count: int) -> None:
    meanwhile = [bytes([number]) * 100_000 for number in range(count)]

    def kept() -> Iterator[bytes]:
        yield b"kept"
        for record in meanwhile:
            journal.append(record)
            assert list(journal.records())[-1] == record

    with Journal(tmp_path / "j") as journal:
        journal.append(b"kept")
        journal.append(b"over")
        size = journal.size_bytes
        journal.append(b"before it began")
        journal.rewrite(kept(), size)
        expected = [b"kept", b"before it began", *meanwhile]
        assert list(journal.records()) == expected
        journal.append(b"after")
        assert journal.size_bytes == (tmp_path / "j").stat().st_size
    assert records_in(tmp_path / "j") == [*expected, b"after"]
    assert os.listdir(tmp_path) == ["j"]


def test_what_is_appended_while_one_fails_stays(tmp_path: Path) -> None:
    def breaks() -> Iterator[bytes]:
        yield b"new"
        journal.append(b"meanwhile")
        raise ZeroDivisionError

    with Journal(tmp_path / "j") as journal:
        journal.append(b"old")
        with pytest.raises(ZeroDivisionError):
            journal.rewrite(breaks(), journal.size_bytes)
        journal.append(b"after")
    assert records_in(tmp_path / "j") == [b"old", b"meanwhile", b"after"]


def test_what_could_not_be_synced_meanwhile_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def kept() -> Iterator[bytes]:
        yield b"kept"
        journal.append(b"meanwhile")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(JournalError, match="Input/output error"):
                journal.append(b"lost")
        with pytest.raises(JournalError, match="a sync failed"):
            journal.append(b"later")

    with Journal(tmp_path / "j") as journal:
        journal.rewrite(kept(), journal.size_bytes)
        journal.append(b"after")
    assert records_in(tmp_path / "j") == [b"kept", b"meanwhile", b"after"]


def test_a_folder_that_cannot_be_synced_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the old file might be back after a loss of power, without what comes now."""
    sync = os.fsync

    def fails_for_folders(file: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file}"):
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with Journal(tmp_path / "j") as journal:
        journal.append(b"old")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fails_for_folders)
            with pytest.raises(JournalError, match="its folder could not be synced"):
                journal.rewrite([b"new"], journal.size_bytes)
        with pytest.raises(JournalError, match="keeps no record: its folder could not be synced"):
            journal.append(b"next")
        journal.rewrite(journal.records(), journal.size_bytes)
        journal.append(b"after")
    assert records_in(tmp_path / "j") == [b"new", b"after"]
