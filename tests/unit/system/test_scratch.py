"""A scratch folder is removed with its process, and nothing else is."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mrflight.system.scratch import ScratchFolder, remove_dead_folders, temporary_folder
from tests.support.commands.scripts import running_script

HOLDER = """
import sys
from pathlib import Path
from mrflight.system.scratch import ScratchFolder
folder = ScratchFolder("spill", Path(sys.argv[1]))
(folder.path / "inner").mkdir()
(folder.path / "inner" / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(root: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a scratch folder that is not empty."""
    with running_script(HOLDER, root) as script:
        yield script.process, Path(script.read_line())


def test_a_folder_is_made_on_first_use_private_and_removed_at_close(tmp_path: Path) -> None:
    with ScratchFolder("spill", tmp_path) as folder:
        assert list(tmp_path.iterdir()) == []
        path = folder.path
        assert path.parent == tmp_path
        assert path.name.startswith("mrflight-spill-")
        assert path.stat().st_mode & 0o777 == 0o700
        assert folder.path == path
        (path / "deep").mkdir()
        (path / "deep" / "file").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_kept(
    tmp_path: Path,
) -> None:
    with holder(tmp_path) as (dead, left), holder(tmp_path) as (_, living):
        assert remove_dead_folders(tmp_path) == []
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert remove_dead_folders(tmp_path) == [left]
        assert list(tmp_path.iterdir()) == [living]
        assert (living / "inner" / "file").read_text() == "x"


@pytest.mark.parametrize("call", [Path.mkdir, os.open, os.write, fcntl.flock])
def test_an_interrupt_while_a_folder_is_made_leaves_nothing(
    tmp_path: Path, call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        call(*args, **kwargs)
        raise KeyboardInterrupt

    owner = {Path.mkdir: Path, fcntl.flock: fcntl}.get(call, os)
    monkeypatch.setattr(owner, call.__name__, interrupted)
    folder = ScratchFolder("spill", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _ = folder.path
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mrflight-spill-aa").mkdir()
    names = iter([b"\xaa", b"\xbb"])
    monkeypatch.setattr(os, "urandom", lambda _: next(names))
    with ScratchFolder("spill", tmp_path) as folder:
        assert folder.path == tmp_path / "mrflight-spill-bb"
    assert list(tmp_path.iterdir()) == [tmp_path / "mrflight-spill-aa"]


def test_a_process_keeps_its_own_folder(tmp_path: Path) -> None:
    with ScratchFolder("spill", tmp_path) as folder:
        path = folder.path
        assert remove_dead_folders(tmp_path) == []
        assert path.is_dir()


def test_files_of_the_user_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mrflight-spill-nolock").mkdir()
    (tmp_path / "mrflight-spill-nolock" / "data").write_text("mine")
    (tmp_path / "mrflight-spill-theirs").mkdir()
    (tmp_path / "mrflight-spill-theirs" / "lock").write_text("a lock of another program")
    (tmp_path / "mrflight-spill-empty").mkdir()
    (tmp_path / "mrflight-spill-empty" / "lock").write_bytes(b"")
    (tmp_path / "mrflight-spill-file").write_text("mine")
    with ScratchFolder("spill", tmp_path) as folder:
        mark = (folder.path / "lock").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    (other / "lock").write_bytes(mark)
    (tmp_path / "mrflight-spill-link").symlink_to(other)
    (tmp_path / "mrflight-spill-linked").mkdir()
    (tmp_path / "mrflight-spill-linked" / "lock").symlink_to(other / "lock")
    before = sorted(tmp_path.rglob("*"))
    assert remove_dead_folders(tmp_path) == []
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "mrflight-spill-ours").mkdir()
    (tmp_path / "mrflight-spill-ours" / "lock").write_bytes(mark)
    assert remove_dead_folders(tmp_path) == [tmp_path / "mrflight-spill-ours"]


def test_folders_that_are_being_made_are_not_removed(tmp_path: Path) -> None:
    """Folders are made and removed at the same time; every folder in use stays complete."""
    made: list[ScratchFolder] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def clean() -> None:
        try:
            while not done.is_set():
                remove_dead_folders(tmp_path)
        except BaseException as error:
            failures.append(error)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    for _ in range(200):
        made.append(ScratchFolder("spill", tmp_path))
        (made[-1].path / "file").write_text("x")
    done.set()
    cleaner.join()
    assert failures == []
    assert all((folder.path / "file").read_text() == "x" for folder in made)
    for folder in made:
        folder.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"TMPDIR": "first", "TMP": "second"}, "first"),
        ({"TMPDIR": "none", "TEMP": "", "TMP": "second"}, "second"),
    ],
)
def test_the_temporary_folder_is_that_of_tempfile(
    named: dict[str, str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(variable, raising=False)
    for variable, folder in named.items():
        monkeypatch.setenv(variable, str(tmp_path / folder) if folder else "")
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert temporary_folder() == tmp_path / found == Path(tempfile.gettempdir())
