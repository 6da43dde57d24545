"""Tests of the checks of S3's options before any request; no message shows a value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

import mrflight
from mrflight.config.output_section import NO_OUTPUT
from mrflight.errors import JobFileError
from mrflight.frontend import cli
from mrflight.storage.option_checks import check_commits, check_endpoint, prepare_storage
from tests.support.jobs.job_files import MINIMAL, Load
from tests.support.suite.messages import refused

BUCKET = "s3://bucket/t"
HTTP = {"aws_endpoint_url": "http://AKIA:HUSH@127.0.0.1:1"}
DISABLED = {"aws_conditional_put": "disabled"}
TO_BUCKET = MINIMAL.replace("out/clicks", BUCKET)


@pytest.fixture(autouse=True)
def _no_variables_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("key", ["aws_endpoint_url", "endpoint", "AWS_ENDPOINT", "endpoint_url"])
@pytest.mark.parametrize("allow", [{}, {"aws_allow_http": "false"}, {"ALLOW_HTTP": "No"}])
def test_an_endpoint_without_tls_must_be_allowed(key: str, allow: dict[str, str]) -> None:
    with refused(JobFileError):
        check_endpoint({key: HTTP["aws_endpoint_url"], **allow}, ["in.csv", BUCKET], {})


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({**HTTP, "aws_allow_http": "true"}, {}),
        ({**HTTP, "allow_http": "1"}, {}),
        ({**HTTP, "aws_allow_http": "what the client refuses"}, {}),
        (HTTP, {"AWS_ALLOW_HTTP": "yes"}),
        ({"aws_endpoint_url": "https://127.0.0.1"}, {"AWS_ENDPOINT_URL": "http://127.0.0.1"}),
        ({}, {"ENDPOINT_URL": "http://127.0.0.1"}),
        ({}, {}),
    ],
)
def test_other_endpoints_are_left_to_the_client(
    options: dict[str, str], environment: dict[str, str]
) -> None:
    check_endpoint(options, [BUCKET], environment)


def test_the_error_names_the_variable_of_an_endpoint() -> None:
    with refused(JobFileError):
        check_endpoint({}, [BUCKET], {"AWS_ENDPOINT_URL_S3": "HTTP://127.0.0.1"})


def test_options_of_s3_are_not_checked_without_a_bucket() -> None:
    check_endpoint(HTTP, ["in.csv", "hdfs://node/x"], {})
    check_commits(DISABLED, "out", {})


@pytest.mark.parametrize("key", ["aws_conditional_put", "conditional_put", "AWS_CONDITIONAL_PUT"])
def test_disabled_conditional_puts_are_refused(key: str) -> None:
    with refused(JobFileError):
        check_commits({key: "disabled"}, BUCKET, {})
    with refused(JobFileError):
        check_commits({}, BUCKET, {"AWS_CONDITIONAL_PUT": "disabled"})
    check_commits({key: "etag"}, BUCKET, {"AWS_CONDITIONAL_PUT": "disabled"})


def test_a_job_is_refused_before_it_starts(load: Load, tmp_path: Path) -> None:
    for key, value in {**HTTP, **DISABLED}.items():
        spec = load(f"{TO_BUCKET}\n[storage]\n{key} = '{value}'")
        with pytest.raises(JobFileError, match=f"^storage.{key} ") as caught:
            prepare_storage(spec, tmp_path)
        assert "HUSH" not in str(caught.value)
        prepare_storage(structs.replace(spec, output=NO_OUTPUT), tmp_path)  # the input is on a disk


def test_an_input_in_s3_needs_no_conditional_put(load: Load, tmp_path: Path) -> None:
    job = MINIMAL.replace('path = "', f'path = "{BUCKET}/', 1)
    assert BUCKET in job
    prepare_storage(load(f"{job}\n[storage]\naws_conditional_put = 'disabled'"), tmp_path)


def test_read_table_checks_the_endpoint() -> None:
    with refused(JobFileError, "storage.aws_endpoint_url") as caught:
        mrflight.read_table(BUCKET, options=HTTP)
    assert "HUSH" not in str(caught.value)


@pytest.mark.parametrize("command", ["clean", "maintain"])
def test_commands_check_the_options(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main([command, BUCKET, "--storage", "aws_conditional_put=disabled"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mrflight: --storage aws_conditional_put must not be disabled: ")
    monkeypatch.setenv("AWS_ENDPOINT_URL", HTTP["aws_endpoint_url"])
    assert cli.main([command, BUCKET]) == 2
    err = capsys.readouterr().err
    assert "is an http:// URL, so requests would go without TLS" in err
    assert "HUSH" not in err
