"""A reference names a secret, which no message shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.secret_reference import resolve, resolved
from mrflight.errors import JobFileError
from tests.support.suite.messages import refused

SECRET = "planted-4711"


def test_a_reference_is_resolved_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", f" {SECRET}\n")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    assert resolve("env:PLANTED", "key") == SECRET
    assert resolve(f"file:{tmp_path}/secret", "key") == SECRET
    options = {"aws_secret_access_key": "env:PLANTED", "aws_region": "north"}
    assert resolved(options, "storage") == {**options, "aws_secret_access_key": SECRET}


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (SECRET, "env:NAME or file:PATH"),
        ("env:NOT_THERE", "no variable NOT_THERE"),
        ("env:", "no variable"),
        ("file:/not/there", "/not/there cannot be read"),
        ("file:/dev/null", "/dev/null is empty"),
    ],
)
def test_a_reference_to_nothing_says_which_key_has_it(reference: str, words: str) -> None:
    with refused(JobFileError, "storage.key") as failed:
        resolve(reference, "storage.key")
    assert SECRET not in str(failed.value)
