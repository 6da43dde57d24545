"""Tests of the option ``--storage`` of the commands on tables, and of its errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrflight.frontend import cli
from mrflight.storage.hopsfs import VARIABLES

COMMANDS = pytest.mark.parametrize("command", ["clean", "maintain"])
HDFS = "hdfs://127.0.0.1:1/t"


@pytest.fixture(autouse=True)
def _no_variables_of_hopsfs(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@COMMANDS
def test_deltalake_does_not_connect_to_hopsfs(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, command, "hopsfs://127.0.0.1/t")
    assert message.startswith("mrflight: hopsfs://127.0.0.1/t needs hops-deltalake")


@COMMANDS
def test_options_are_checked_like_those_of_a_job(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--storage", "aws_region=here", "--storage", "pem_dir=pems")
    message = refusal(capsys, command, HDFS, *options)
    assert message.startswith(f"mrflight: storage.pem_dir, for a connection to {HDFS}, needs hops-")


@COMMANDS
def test_options_reach_the_store(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.chdir(tmp_path)
    message = refusal(capsys, command, "t", "--storage", "pem_dir=pems")
    assert f"storage.pem_dir: {tmp_path}/pems/ca_chain.pem cannot be read" in message
    assert VARIABLES["pem_dir"] not in os.environ


@COMMANDS
@pytest.mark.parametrize(
    "key",
    [
        *("aws_secret_access_key", "AWS_Access_Key_Id", "aws_session_token", "token", "password"),
        "aws_sse_customer_key_base64",
    ],
)
def test_a_secret_must_be_in_the_environment(
    command: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, command, HDFS, "--storage", f"{key}=hush")
    assert message.startswith(f"mrflight: --storage {key}: a secret must not be an argument")
    assert "AWS_SECRET_ACCESS_KEY" in message
    assert "hush" not in message


@COMMANDS
def test_a_misspelled_option_is_reported_with_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, command, "s3://bucket/t", "--storage", "aws_regoin=hush")
    assert message.startswith(
        "mrflight: --storage aws_regoin: unknown key; did you mean 'aws_region'"
    )
    assert "hush" not in message


@COMMANDS
@pytest.mark.parametrize("text", ["hush", "=hush"])
def test_a_text_that_is_not_an_option_is_not_shown(
    command: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, command, HDFS, "--storage", text) == (
        "mrflight: --storage: write KEY=VALUE\n"
    )


@COMMANDS
def test_a_file_is_no_table(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "part.parquet"
    file.write_bytes(b"rows")
    message = refusal(capsys, command, str(file))
    assert message == f"mrflight: {file} is a file; name the folder of the table that it is in\n"
