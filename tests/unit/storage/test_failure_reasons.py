"""Tests of the errors for options that a store's client refuses; no message shows a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.errors import CommitError, JobError
from mrflight.storage import locate
from mrflight.storage.delta import delta_errors, is_table
from tests.support.suite.messages import refused

BUCKET = {
    "aws_region": "r",
    "aws_access_key_id": "k",
    "aws_secret_access_key": "s",
    "aws_endpoint_url": "http://127.0.0.1:1",
    "aws_allow_http": "true",
}
WRONG = [
    ("aws_virtual_hosted_style_request", "SECRET", "failed to parse the value as boolean"),
    ("timeout", 'SE"CR ET', "failed to parse the value as Duration"),
    ("aws_checksum_algorithm", "SECRET", "the value is not a valid checksum algorithm"),
    ("aws_server_side_encryption", "SECRET", 'encryption type: the value. Valid values are "AES'),
    ("aws_foo", "SECRET", "'aws_foo' is not valid"),
]


@pytest.mark.parametrize(("key", "value", "part_of_message"), WRONG)
def test_the_error_names_the_option_that_the_client_refuses(
    tmp_path: Path, key: str, value: str, part_of_message: str
) -> None:
    with pytest.raises(JobError) as caught:
        locate("s3://bucket/x", tmp_path, {**BUCKET, key: value}).read_bytes()
    message = str(caught.value)
    assert message.startswith(f"storage.{key} cannot be used for s3://bucket: ")
    assert part_of_message in message
    assert [part for part in ("SE", "CR", "ET", "\n", "Debug") if part in message] == []
    assert caught.value.__suppress_context__


def test_the_error_names_one_of_several_refused_options(tmp_path: Path) -> None:
    options = {**BUCKET, "timeout": "SECRET", "allow_http": "SECRET"}
    with refused(JobError, "storage.timeout") as caught:
        locate("s3://bucket/x", tmp_path, options).read_bytes()
    assert "SECRET" not in str(caught.value)


DELTALAKE_OPTION = (
    "max_retries",
    'SE"CR ET',
    '("max_retries", "Generic DeltaTable error: failed to',
)


@pytest.mark.parametrize(("key", "value", "part_of_message"), [*WRONG[1:4], DELTALAKE_OPTION])
def test_an_error_of_deltalake_does_not_show_the_value(
    tmp_path: Path, key: str, value: str, part_of_message: str
) -> None:
    table = locate("s3://bucket/x", tmp_path, {**BUCKET, key: value})
    with pytest.raises(CommitError) as caught, delta_errors("the table"):
        is_table(table)
    message = str(caught.value)
    assert message.startswith("the table: ")
    assert part_of_message in message
    assert [part for part in ("SE", "CR", "ET") if part in message] == []


def test_the_user_in_a_url_is_not_shown(tmp_path: Path) -> None:
    options = {**BUCKET, "aws_endpoint_url": "http://user:SECRET@127.0.0.1:1", "max_retries": "0"}
    table = locate("s3://bucket/x", tmp_path, options)
    with (
        pytest.raises(CommitError, match=r"GET http://127\.0\.0\.1:1/bucket") as caught,
        delta_errors("the table"),
    ):
        is_table(table)
    assert "SECRET" not in str(caught.value)
