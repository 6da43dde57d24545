"""A journal belongs to one server at a time, and is never free in between."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mrflight.errors import JobFileError
from mrflight.shuffle.metadata.journal import Journal
from tests.support.journals import records_in
from tests.support.scripts import running_script
from tests.support.threads import WAIT_S, run_threads

HOLDER = """
import sys
from pathlib import Path
from mrflight.shuffle.metadata.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.append(b"held")
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_has_it_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with running_script(HOLDER, path) as holder:
        assert holder.said() == "held"
        with pytest.raises(JobFileError, match="j belongs to another server that runs; end that"):
            Journal(path)
        holder.process.kill()
        holder.process.wait(WAIT_S)
        assert records_in(path) == [b"held"]


def test_it_is_never_free_while_it_is_rewritten(tmp_path: Path) -> None:
    os.symlink(tmp_path / "j", tmp_path / "link")
    over = threading.Event()
    outcomes: set[str] = set()

    def open_again() -> None:
        while not over.is_set():
            try:
                Journal(tmp_path / "j").close()
                outcomes.add("it was free")
            except JobFileError as error:
                outcomes.add(str(error))

    with Journal(tmp_path / "link") as journal:

        def rewrite_all() -> None:
            try:
                for number in range(100):
                    journal.rewrite([b"%d" % number], journal.size_bytes)
            finally:
                over.set()

        run_threads([open_again, rewrite_all])
    (said,) = outcomes
    assert "belongs to another server" in said
    assert (tmp_path / "link").is_symlink()
    assert records_in(tmp_path / "j") == [b"99"]
