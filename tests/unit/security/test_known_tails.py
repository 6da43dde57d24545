"""A tail is found by its name, by processes of its user, in a folder that only they can use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrflight.config.identity import Endpoint, Identity
from mrflight.errors import TailNotFoundError
from mrflight.security import known_tails
from mrflight.security.credentials import load
from mrflight.security.known_tails import KnownTail, find_tail
from tests.support.commands.another_user import NOBODY, as_another_user, code_of, needs_root

LOCATION = "grpc+unix:///tmp/a.sock"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(known_tails, "_roots", lambda: [tmp_path / "none", tmp_path])
    return tmp_path


@pytest.fixture
def token(tmp_path: Path) -> Identity:
    path = tmp_path / "job.token"
    path.write_text("secret\n")
    return Identity(token=f"file:{path}")


@pytest.fixture
def known(token: Identity) -> Iterator[KnownTail]:
    with KnownTail("trips") as known:
        known.tell(Endpoint(LOCATION, token), "of readers")
        yield known


def folder_of(known: KnownTail, root: Path) -> Path:
    return root / f"mrflight-tails-{known.name.removeprefix('trips.')}"


def test_a_tail_is_found_until_its_stream_ends(
    known: KnownTail, token: Identity, root: Path
) -> None:
    found = find_tail(known.name)
    assert (found.server.location, found.token) == (LOCATION, "of readers")
    assert load(found.server.identity).token == "secret"
    moved = found.server._replace(location="grpc+tcp://127.0.0.1:5")
    known.tell(moved._replace(identity=token), "of readers")
    assert find_tail(known.name) == (moved, "of readers")
    known.close()
    with pytest.raises(TailNotFoundError, match="no stream of this user on this machine has it"):
        find_tail(known.name)
    assert [path.name for path in root.iterdir()] == ["job.token"], "nothing is left"


def other_mode(folder: Path) -> None:
    folder.chmod(0o750)


def link_to_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def link_in_folder(folder: Path) -> None:
    (folder / "location").rename(folder / "moved")
    (folder / "location").symlink_to(folder / "moved")


def other_machine(folder: Path) -> None:
    (folder / "location").write_text("grpc+tcp://192.0.2.1:5")


def no_text(folder: Path) -> None:
    (folder / "location").write_bytes(b"\xff")


def other_owner(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


@pytest.mark.parametrize(
    "change",
    [
        *(other_mode, link_to_folder, link_in_folder, other_machine, no_text),
        pytest.param(other_owner, marks=needs_root),
    ],
)
def test_a_folder_that_others_may_have_made_is_refused(
    known: KnownTail, root: Path, change: Callable[[Path], None]
) -> None:
    change(folder_of(known, root))
    with pytest.raises(TailNotFoundError, match=r"cannot be found: (?!no stream)"):
        find_tail(known.name)
    if (moved := root / "moved").exists():
        (root / folder_of(known, root)).unlink()
        moved.rename(folder_of(known, root))


@needs_root
def test_another_user_does_not_find_it(known: KnownTail, root: Path) -> None:
    def find() -> None:
        with pytest.raises(TailNotFoundError):
            find_tail(known.name)

    for path in (root, *root.parents):
        path.chmod(path.stat().st_mode | 0o011)
    assert code_of(as_another_user(find)) == 0


@pytest.mark.parametrize("name", ["", "trips", "trips.", "trips.zzzzzzzz", "a.1/../b.12345678"])
def test_a_name_of_no_tail_is_not_looked_for(name: str) -> None:
    with pytest.raises(TailNotFoundError, match="no stream of this user"):
        find_tail(name)
