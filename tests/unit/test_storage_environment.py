"""What the environment adds to ``[storage]``."""

from __future__ import annotations

from mrflight.storage.environment import with_environment

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


def test_one_who_asks_is_not_mixed_with_another() -> None:
    for option in ("aws_access_key_id", "aws_session_token", "aws_skip_signature"):
        assert with_environment({option: "mine"}, BUCKET, ENVIRONMENT) == {**WHERE, option: "mine"}


def test_without_a_bucket_nothing_is_taken() -> None:
    assert with_environment({}, ["in.csv", "hdfs://node/t"], ENVIRONMENT) == {}
