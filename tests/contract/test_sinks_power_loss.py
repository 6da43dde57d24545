"""Files are synced to the disk before the list that names them, in case the power fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrflight.sinks.commit.base import Commit
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import NEW, SCHEMA, Output, written


@pytest.mark.every_format
def test_parts_are_synced_before_they_are_committed(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((str(path.relative_to(output.folder)), path.stat().st_size))
        real(descriptor)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", sync)
    sink = output.open()
    parts = written(sink, NEW)
    assert sorted(synced) == sorted((part.path, part.size_bytes) for part in parts)
    synced.clear()
    commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    if output.format != "delta":  # whose log is written by deltalake
        manifest, *folders = (path for path, _ in synced)
        assert manifest.startswith("_mrflight/00000000.json")
        assert folders == ["_mrflight", "."]
