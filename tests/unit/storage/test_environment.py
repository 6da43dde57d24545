"""What the environment adds to ``[storage]``."""

from __future__ import annotations

from pathlib import Path

from mrflight.storage.environment import conflicting_variables, with_environment

BUCKET = ["in.csv", "s3://bucket/table"]
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "its-key",
    "AWS_SECRET_ACCESS_KEY": "its-secret",
    "AWS_DEFAULT_REGION": "second",
    "AWS_ENDPOINT_URL": "http://any",
    "AWS_ENDPOINT_URL_S3": "http://s3",
    "AWS_SESSION_TOKEN": "",
    "HOME": "/root",
}
WHERE = {"aws_region": "second", "aws_endpoint_url": "http://s3"}
WHO = {"aws_access_key_id": "its-key", "aws_secret_access_key": "its-secret"}


def test_a_bucket_is_reached_by_what_the_environment_says() -> None:
    assert with_environment({}, BUCKET, ENVIRONMENT) == WHERE | WHO
    first = with_environment({}, BUCKET, {**ENVIRONMENT, "AWS_REGION": "first"})
    assert first["aws_region"] == "first"


def test_the_job_comes_first() -> None:
    options = {"aws_region": "mine", "timeout": "5s"}
    assert with_environment(options, BUCKET, ENVIRONMENT) == WHERE | WHO | options


def test_the_job_comes_first_by_any_name_of_an_option() -> None:
    for option in ("endpoint", "aws_endpoint", "AWS_ENDPOINT_URL"):
        added = {"aws_region": "second", **WHO}
        assert with_environment({option: "mine"}, BUCKET, ENVIRONMENT) == {**added, option: "mine"}
    assert "aws_region" not in with_environment({"region": "mine"}, BUCKET, ENVIRONMENT)


def test_one_who_asks_is_not_mixed_with_another() -> None:
    for option in ("aws_access_key_id", "aws_session_token", "aws_skip_signature"):
        assert with_environment({option: "mine"}, BUCKET, ENVIRONMENT) == {**WHERE, option: "mine"}


def test_without_a_bucket_nothing_is_taken() -> None:
    assert with_environment({}, ["in.csv", "hdfs://node/t"], ENVIRONMENT) == {}


def test_hopsfs_is_reached_as_whom_the_environment_says() -> None:
    """Its client would take them in any case, unchecked."""
    environment = {**ENVIRONMENT, "PEMS_DIR": "/pems", "LIBHDFS_DEFAULT_USER": "demo__ann"}
    found = {"pem_dir": "/pems", "user": "demo__ann"}
    for url in ("hopsfs://node/t", "HOPSFS://node/t"):
        assert with_environment({}, ["in.csv", url], environment) == found
    assert with_environment({"user": "demo__bob"}, ["hopsfs://node/t"], environment) == {
        "pem_dir": "/pems",
        "user": "demo__bob",
    }
    assert with_environment({}, [*BUCKET, "hopsfs://node/t"], environment) == found | WHERE | WHO
    assert with_environment({}, ["hdfs://node/t"], environment) == {}
    assert with_environment({}, ["hopsfs://node/t"], {"PEMS_DIR": ""}) == {}


def test_a_folder_of_the_environment_is_where_the_command_is_typed() -> None:
    found = with_environment({}, ["hopsfs://node/t"], {"PEMS_DIR": "pems"})
    assert found == {"pem_dir": str(Path.cwd() / "pems")}


WHOSE = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
]
WHERE_TO = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
OTHERS = ["AWS_REGION", "AWS_ALLOW_HTTP", "AWS_PROFILE", "HOME", "GITHUB_TOKEN"]
ALL = [*WHOSE, *WHERE_TO, *OTHERS]


def test_a_key_of_the_job_goes_with_no_other_identity() -> None:
    for option in ("aws_access_key_id", "AWS_SECRET_ACCESS_KEY"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == WHOSE


def test_an_endpoint_of_the_job_goes_with_no_other() -> None:
    for option in ("aws_endpoint_url", "endpoint"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == WHERE_TO


def test_an_environment_with_which_nothing_is_mixed_is_left_alone() -> None:
    """A role of the job's may be asked for by the token that its container has."""
    for option in ("aws_region", "aws_role_arn"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == []
    assert (
        conflicting_variables({"aws_access_key_id": "mine"}, ["in.csv", "hdfs://node/t"], ALL) == []
    )
