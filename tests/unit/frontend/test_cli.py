"""Tests of the exit codes of ``mrflight`` for errors that are no mistake of the user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

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


@pytest.mark.parametrize("command", ["explain", "clean", "maintain"])
def test_an_answer_that_cannot_be_written_has_its_own_code(tmp_path: Path, command: str) -> None:
    write_deltalake(tmp_path / "out", pa.table({"n": [1]}))
    (tmp_path / "out" / "part-00000-0-20200101T000000-aaaaaaaaaaaa.parquet").write_text("left")
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "j"\n[inputs.a]\npath = "out"\nkey = ["n"]\n[output]\ntable = "b"\n'
    )
    arguments = ["job.toml"] if command == "explain" else ["out"]
    if command == "clean":
        arguments += ["--remove", "--older-than", "0 s"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "mrflight", command, *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr.splitlines()) == (
        3,
        ["mrflight: the answer could not be written to stdout: [Errno 28] No space left on device"],
    )
    assert len(list((tmp_path / "out").glob("part-00000-0-2020*"))) == 1
