"""Tests of the exit codes of ``mrflight`` for errors that are no mistake of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.errors import InputError, MrflightError, StoreError
from mrflight.frontend import cli


@pytest.mark.parametrize(
    ("error", "code"), [(StoreError("the disk is gone"), 1), (InputError("no such folder"), 2)]
)
def test_clean_ends_with_the_code_of_its_error(
    error: MrflightError,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("mrflight.sinks.orphan_files.find_orphan_files", fail)
    assert cli.main(["clean", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"mrflight: {error}\n"
