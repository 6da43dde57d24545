"""Tests of what the environment adds to ``[storage]``."""

from __future__ import annotations

from pathlib import Path

from mrflight.storage.environment import conflicting_variables, named_variables, with_environment

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
LOCATION = {"aws_region": "second", "aws_endpoint_url": "http://s3"}
IDENTITY = {"aws_access_key_id": "its-key", "aws_secret_access_key": "its-secret"}


def test_a_buckets_options_come_from_the_environment() -> None:
    assert with_environment({}, BUCKET, ENVIRONMENT) == LOCATION | IDENTITY
    first = with_environment({}, BUCKET, {**ENVIRONMENT, "AWS_REGION": "first"})
    assert first["aws_region"] == "first"


def test_secrets_of_the_environment_can_stay_there() -> None:
    """A job sends their names to its workers, which have the same ones, or are given them."""
    named = {key: f"env:{key.upper()}" for key in IDENTITY}
    found = with_environment({}, BUCKET, ENVIRONMENT, by_name=True)
    assert found == LOCATION | named
    assert conflicting_variables(found, BUCKET, ENVIRONMENT) == [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_SESSION_TOKEN",
    ]
    others = {"user": "env:HOME", "aws_session_token": "env:AWS_SESSION_TOKENS"}
    assert dict(named_variables({**found, **others}, ENVIRONMENT)) == {
        key.upper(): value for key, value in IDENTITY.items()
    }


def test_the_jobs_options_take_precedence() -> None:
    options = {"aws_region": "mine", "timeout": "5s"}
    assert with_environment(options, BUCKET, ENVIRONMENT) == LOCATION | IDENTITY | options


def test_the_jobs_options_take_precedence_under_any_alias() -> None:
    for option in ("endpoint", "aws_endpoint", "AWS_ENDPOINT_URL"):
        added = {"aws_region": "second", **IDENTITY}
        assert with_environment({option: "mine"}, BUCKET, ENVIRONMENT) == {**added, option: "mine"}
    assert "aws_region" not in with_environment({"region": "mine"}, BUCKET, ENVIRONMENT)


def test_credentials_of_the_job_and_the_environment_are_not_mixed() -> None:
    for option in ("aws_access_key_id", "aws_session_token", "aws_skip_signature"):
        assert with_environment({option: "mine"}, BUCKET, ENVIRONMENT) == {
            **LOCATION,
            option: "mine",
        }


def test_without_a_bucket_nothing_is_added() -> None:
    assert with_environment({}, ["in.csv", "hdfs://node/t"], ENVIRONMENT) == {}


def test_hopsfs_takes_certificates_and_user_from_the_environment() -> None:
    """The client would take them anyway, but unchecked."""
    environment = {**ENVIRONMENT, "PEMS_DIR": "/pems", "LIBHDFS_DEFAULT_USER": "demo__ann"}
    found = {"pem_dir": "/pems", "user": "demo__ann"}
    for url in ("hopsfs://node/t", "HOPSFS://node/t"):
        assert with_environment({}, ["in.csv", url], environment) == found
    assert with_environment({"user": "demo__bob"}, ["hopsfs://node/t"], environment) == {
        "pem_dir": "/pems",
        "user": "demo__bob",
    }
    assert (
        with_environment({}, [*BUCKET, "hopsfs://node/t"], environment)
        == found | LOCATION | IDENTITY
    )
    assert with_environment({}, ["hdfs://node/t"], environment) == {}
    assert with_environment({}, ["hopsfs://node/t"], {"PEMS_DIR": ""}) == {}


def test_a_relative_pems_dir_is_relative_to_the_working_directory() -> None:
    found = with_environment({}, ["hopsfs://node/t"], {"PEMS_DIR": "pems"})
    assert found == {"pem_dir": str(Path.cwd() / "pems")}


CREDENTIALS = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
]
ENDPOINTS = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
OTHERS = ["AWS_REGION", "AWS_ALLOW_HTTP", "AWS_PROFILE", "HOME", "GITHUB_TOKEN"]
ALL = [*CREDENTIALS, *ENDPOINTS, *OTHERS]


def test_with_a_key_of_the_job_all_other_credentials_conflict() -> None:
    for option in ("aws_access_key_id", "AWS_SECRET_ACCESS_KEY"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == CREDENTIALS


def test_with_an_endpoint_of_the_job_all_other_endpoints_conflict() -> None:
    for option in ("aws_endpoint_url", "endpoint"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == ENDPOINTS


def test_without_a_key_or_endpoint_of_the_job_nothing_conflicts() -> None:
    """For example, a role in the job's options may need the token of its container."""
    for option in ("aws_region", "aws_role_arn"):
        assert conflicting_variables({option: "mine"}, BUCKET, ALL) == []
    assert (
        conflicting_variables({"aws_access_key_id": "mine"}, ["in.csv", "hdfs://node/t"], ALL) == []
    )
