"""Tests that unknown keys of ``[storage]`` are refused, with a suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

import mrflight
from mrflight.config.output_section import NO_OUTPUT
from mrflight.errors import JobFileError
from mrflight.storage import hopsfs, s3
from mrflight.storage.option_checks import OBJECT_STORE, check_options, prepare_storage
from mrflight.storage.option_names import DELTALAKE_ONLY
from tests.support.jobs.job_files import MINIMAL, Load
from tests.support.suite.messages import refused

PAGE = "docs/reference/storage-options.md"
DOCS = Path(__file__).parents[3] / PAGE

BUCKET, HDFS, HOPSFS = "s3://bucket/t", "hdfs://node:8020/t", "hopsfs://node/t"
STORES = [BUCKET, "s3a://bucket/t", HDFS, HOPSFS]
TO_BUCKET = MINIMAL.replace("out/clicks", BUCKET)


def error_for(key: str, *paths: str) -> str:
    with pytest.raises(JobFileError) as caught:
        check_options(["aws_region", key], ["in.csv", *paths])
    return str(caught.value)


@pytest.mark.parametrize("path", STORES)
@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("aws_acces_key_id", "aws_access_key_id"),
        ("AWS_SECRET_ACESS_KEY", "aws_secret_access_key"),
        ("regoin", "region"),
        ("alow_http", "allow_http"),
        ("aws_s3_locking_provder", "aws_s3_locking_provider"),
        ("pem_dri", "pem_dir"),
        ("PEM_DIR", "pem_dir"),
        ("MAX_RETRIES", "max_retries"),
    ],
)
def test_the_error_for_a_misspelled_key_suggests_the_nearest(
    path: str, key: str, meant: str
) -> None:
    assert error_for(key, path) == (
        f"storage.{key}: unknown key; did you mean {meant!r}? All are in {PAGE}"
    )


def test_the_error_for_an_unknown_key_names_the_page_of_all_keys() -> None:
    assert error_for("secret", BUCKET) == f"storage.secret: unknown key; all are in {PAGE}"


@pytest.mark.parametrize("path", STORES)
def test_keys_of_every_client_are_accepted_with_paths_of_any_store(path: str) -> None:
    known = [*OBJECT_STORE, *map(str.upper, OBJECT_STORE), *DELTALAKE_ONLY, *hopsfs.VARIABLES]
    check_options(known, ["in.csv", path])


def test_hadoop_properties_are_accepted_with_hdfs() -> None:
    check_options(["dfs.nameservices"], [HDFS])
    check_options(["fs.any"], [BUCKET, HOPSFS])
    assert error_for("dfs.nameservices", BUCKET).startswith(
        "storage.dfs.nameservices: unknown key; "
    )


def test_keys_are_not_checked_if_all_paths_are_on_disks() -> None:
    check_options(["aws_acces_key_id", "x"], ["in.csv", "file:///out"])


def test_the_listed_keys_are_those_of_the_installed_client() -> None:
    assert [key for key in OBJECT_STORE if not s3.knows_option(key)] == []
    assert [key for key in DELTALAKE_ONLY if s3.knows_option(key)] == []


def test_a_key_that_only_the_installed_client_knows_is_accepted() -> None:
    assert "bucket_name" not in OBJECT_STORE
    check_options(["bucket_name"], [BUCKET])


def test_all_keys_are_in_the_docs() -> None:
    text = DOCS.read_text(encoding="utf-8")
    shortest = {key.removeprefix("aws_") for key in OBJECT_STORE}
    alone = map(str.lower, DELTALAKE_ONLY)
    known = [*sorted(shortest), *alone, *hopsfs.VARIABLES]
    assert [key for key in known if f"`{key}`" not in text] == []


def test_a_jobs_error_shows_the_key_and_not_its_value(load: Load, tmp_path: Path) -> None:
    spec = load(f"{TO_BUCKET}\n[storage]\naws_secret_acces_key = 'HUSH'")
    with refused(JobFileError, "storage.aws_secret_acces_key") as caught:
        prepare_storage(spec, tmp_path)
    assert "HUSH" not in str(caught.value)
    prepare_storage(structs.replace(spec, output=NO_OUTPUT), tmp_path)  # the input is on a disk


def test_read_table_checks_the_keys() -> None:
    with refused(JobFileError, "storage.regoin") as caught:
        mrflight.read_table(BUCKET, options={"regoin": "HUSH"})
    assert "HUSH" not in str(caught.value)
