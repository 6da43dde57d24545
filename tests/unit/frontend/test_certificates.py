"""Tests of ``mrflight certificates``: its files, their modes, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mrflight.errors import JobFileError
from mrflight.frontend import cli
from mrflight.security.authority import expires
from mrflight.security.new_token import add_token
from mrflight.security.principal import Role
from mrflight.system import private_file
from mrflight.system.private_file import write_new_files
from tests.support.suite.messages import refused


@pytest.fixture(autouse=True)
def careless_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One in whose new files everybody may read and write, if nothing forbids it."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield
    os.umask(before)


def run(command: str) -> int:
    return cli.main(["certificates", *command.split()])


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{stat.S_IMODE(path.stat().st_mode):o}" for path in folder.iterdir()}


def days_of(path: Path) -> int:
    return round((expires(path.read_bytes()) - datetime.now(UTC)) / timedelta(days=1))


def test_an_authority_and_its_certificates_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init") == 0
    assert run("issue data-1 --host data-1.example.com --host 10.0.0.11") == 0
    assert run("issue clicks-job --days 7") == 0
    folder = tmp_path / "certificates"
    assert modes(folder) == {
        f"{name}.{kind}": mode
        for name in ("ca", "data-1", "clicks-job")
        for kind, mode in (("pem", "644"), ("key", "600"))
    }
    assert [days_of(folder / f"{x}.pem") for x in ("ca", "data-1", "clicks-job")] == [365, 90, 7]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "for a server at data-1.example.com, 10.0.0.11, and a client that" in shown.err
    assert "PRIVATE" not in shown.err


@pytest.mark.parametrize(
    ("again", "removed", "kept"),
    [
        ("init", "ca.key", "ca.pem"),
        ("init", "ca.pem", "ca.key"),
        ("issue data-1", "data-1.key", "data-1.pem"),
        ("issue data-1", "data-1.pem", "data-1.key"),
    ],
)
def test_nothing_is_overwritten_even_if_only_a_half_is_there(
    again: str, removed: str, kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "here"
    run("init --folder here")
    run("issue data-1 --folder here")
    (folder / removed).unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(f"{again} --folder here") == 2
    assert f"here/{kept} exists, and is not overwritten" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("issue data-1", "certificates/ca.pem cannot be read (No such file or directory); make an"),
        ("issue ../data-1 --folder made", "'../data-1' cannot be the name of a caller"),
        ("issue ca --folder made", "made/ca.key exists, and is not overwritten"),
        ("issue a --host b:1 --folder made", "'b:1' is neither a host name nor an IP address"),
        ("init --folder file", "--folder file: it cannot be made: File exists"),
        ("token a/b --role job --access access.toml", "'a/b' cannot be the name of a caller"),
        ("token a --role job --access no/access.toml", "no/access.toml cannot be written: No such"),
        ("token a --role job --access open.toml", "open.toml may be read or written by others"),
        ("token a --role job --access file", "file is no access file: "),
        ("token a --role job --access inline.toml", "inline.toml is no access file: "),
        ("token known --role job --access known.toml", "has a principal 'known' already"),
    ],
)
def test_what_cannot_be_done_is_refused(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("init --folder made")
    texts = {
        "file": "principals = 1",
        "open.toml": "",
        "inline.toml": 'principals = [{ name = "b" }]',
        "known.toml": '[[principals]]\nname = "known"\nroles = ["job"]',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o640 if name == "open.toml" else 0o600)
    assert run(command) == 2
    assert message in capsys.readouterr().err
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "36501", "x", "9" * 30])
def test_days_are_a_whole_number(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(f"init --days={days}")
    assert "is not a number of days from 1 to 36,500" in capsys.readouterr().err


def test_a_token_is_shown_once_and_kept_as_its_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = tmp_path / "access.toml"
    assert run("token clicks-job --role job --role reader --role job --access access.toml") == 0
    shown = capsys.readouterr()
    token = shown.out.rstrip("\n")
    assert len(bytes.fromhex(token)) == 32
    assert token not in shown.err
    assert tomllib.loads(access.read_text()) == {
        "principals": [
            {
                "name": "clicks-job",
                "roles": ["job", "reader"],
                "token": f"sha256:{hashlib.sha256(token.encode()).hexdigest()}",
            }
        ]
    }
    assert modes(tmp_path) == {"access.toml": "600"}


def test_principals_of_the_file_stay_as_they_are(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    before = '# ours\n[[principals]]\nname = "data-1"  # by certificate\nroles = ["server"]'
    access.write_text(before)
    access.chmod(0o600)
    with ThreadPoolExecutor(8) as threads:
        names = [f"job-{number}" for number in range(32)]
        tokens = list(threads.map(lambda name: add_token(access, name, [Role.JOB]), names))
    assert access.read_text().startswith(before)
    found = {each["name"] for each in tomllib.loads(access.read_text())["principals"]}
    assert found == {"data-1", *names}
    assert len(set(tokens)) == 32


def test_a_key_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode is right before anything is written; if the disk is full, nothing stays behind."""
    path, seen = tmp_path / "a.key", []

    def full_disk(number: int) -> None:
        seen.append(stat.S_IMODE(path.stat().st_mode))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_file.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_new_files({path: (b"secret", 0o600)})
    assert seen == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_new_files({tmp_path / "a.key": (b"secret", 0o600)})


def test_a_full_disk_leaves_the_access_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = tmp_path / "access.toml"
    add_token(access, "first", [Role.JOB])
    before = access.read_bytes()

    def full_disk(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with refused(JobFileError):
        add_token(access, "second", [Role.JOB])
    assert access.read_bytes() == before
