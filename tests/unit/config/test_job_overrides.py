"""Tests of ``--set``: overrides are checked like the job file, and may not hold a secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.overrides import parse_override
from mrflight.errors import JobFileError
from tests.support.jobs.job_files import MINIMAL, Load
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(150), derandomize=True)


def test_overrides_replace_values_and_make_sections(load: Load) -> None:
    spec = load(
        MINIMAL,
        {"shuffle.partitions": 40, "job.name": "other", "inputs.visits.key": ["url"]},
    )
    assert spec.shuffle.partitions == 40
    assert spec.job.name == "other"
    assert spec.inputs["visits"].key == ["url"]
    assert spec.inputs["visits"].path == "visits/*.csv"


def test_an_override_can_add_a_missing_key(load: Load) -> None:
    text = MINIMAL.replace('name = "clicks"', "")
    assert load(text, {"job.name": "given"}).job.name == "given"


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("shuffle.partitons", 1, "shuffle.partitons"),
        ("shuffle.partitions", "40", "shuffle.partitions"),
        ("job", 1, "job"),
        ("job.name.first", "x", "job.name.first"),
        ("nothing", 1, None),
    ],
)
def test_an_override_is_checked_like_the_file(
    load: Load, name: str, value: Any, key: str | None
) -> None:
    with refused(JobFileError, key):
        load(MINIMAL, {name: value})


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("shuffle.partitions=40", "shuffle.partitions", 40),
        ('shuffle.partitions="auto"', "shuffle.partitions", "auto"),
        ("shuffle.partitions=auto", "shuffle.partitions", "auto"),
        ("inputs.visits.key=['url', 'day']", "inputs.visits.key", ["url", "day"]),
        ("inputs.visits.csv.header=false", "inputs.visits.csv.header", False),
        ("job.timeout=10 min", "job.timeout", "10 min"),
        ("output.table=s3://bucket/a=b", "output.table", "s3://bucket/a=b"),
        ("output.table=", "output.table", ""),
        (" job.name =x", "job.name", "x"),
    ],
)
def test_an_override_on_the_command_line_is_toml_or_a_string(
    text: str, key: str, value: object
) -> None:
    assert parse_override(text) == (key, value)


@pytest.mark.parametrize("text", ["", "job.name", "=1", " =1", ".a=1", "a.=1", "a..b=1", "a. .b=1"])
def test_an_override_without_a_key_is_refused(text: str) -> None:
    with refused(JobFileError):
        parse_override(text)


def test_an_override_holds_one_value(load: Load) -> None:
    key, value = parse_override("job.name=1\nother=2")
    assert (key, value) == ("job.name", "1\nother=2")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("storage..aws_session_token=HUSH", "storage..aws_session_token"),
        ("storage.aws_session_token: HUSH", "storage.aws_session_token"),
        (".storage HUSH", ".storage"),
    ],
)
def test_an_override_without_a_key_is_refused_without_its_value(text: str, shown: str) -> None:
    with refused(JobFileError):
        parse_override(text)


@pytest.mark.parametrize(
    "text",
    [
        "storage.aws_secret_access_key=HUSH",
        "storage.aws_access_key_id=HUSH",
        "storage. AWS_Session_Token =HUSH",
        "storage.aws_sse_customer_key_base64='HUSH'",
        "storage={ aws_region = 'r', aws_secret_access_key = 'HUSH' }",
        "storage.proxy_url=http://user:HUSH@proxy:3128",
    ],
)
def test_a_secret_of_a_store_is_refused_as_an_argument(text: str) -> None:
    with refused(JobFileError) as caught:
        parse_override(text)
    assert "HUSH" not in str(caught.value)


def test_other_options_of_a_store_may_be_arguments() -> None:
    for name in ("aws_web_identity_token_file", "aws_endpoint_url"):
        assert parse_override(f"storage.{name}=http://x/y@z") == (f"storage.{name}", "http://x/y@z")


def test_an_override_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(JobFileError):
        parse_override("a.b=" + "[" * 50_000)


def test_a_run_id_that_looks_like_a_date_can_be_set(load: Load) -> None:
    overrides = dict([parse_override("job.run_id=2026-11-20")])
    assert load(MINIMAL, overrides).job.run_id == "2026-11-20"


@examples
@given(st.text(max_size=30))
def test_any_text_is_an_override_or_a_job_file_error(text: str) -> None:
    try:
        key, _ = parse_override(text)
    except JobFileError:
        return
    assert key
