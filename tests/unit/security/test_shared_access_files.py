"""Tests of whose access files a server takes."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from mrflight.errors import JobFileError
from mrflight.security.access import parse_access
from tests.support.commands.another_user import NOBODY, as_another_user, code_of, needs_root


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "is_taken"),
    [
        (NOBODY, 0o600, True),
        (NOBODY, 0o640, False),
        (0, 0o440, True),  # a secret of Kubernetes, or a credential of systemd
        (0, 0o640, True),
        (0, 0o444, False),
        (0, 0o460, False),
    ],
)
def test_root_may_give_an_access_file_to_a_server(owner: int, mode: int, is_taken: bool) -> None:
    with tempfile.NamedTemporaryFile("w") as file:  # pytest's folders are for root alone
        file.write("principals = []")
        file.flush()
        os.chown(file.name, owner, NOBODY)
        os.chmod(file.name, mode)

        def read() -> None:
            expected = pytest.raises(JobFileError, match=f"mode {mode:04o}")
            with nullcontext() if is_taken else expected:
                parse_access(Path(file.name))

        assert code_of(as_another_user(read)) == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_an_access_file_of_the_servers_own_user_is_for_no_other(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("principals = []")
    path.chmod(mode)
    with pytest.raises(JobFileError, match=f"mode {mode:04o}"):
        parse_access(path)
