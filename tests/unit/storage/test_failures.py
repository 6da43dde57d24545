"""Tests of which errors of a client mean a failing store, and which a wrong request."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from mrflight.errors import InputError, StoreError
from mrflight.sources.read_checks import translate_read_errors
from mrflight.storage import locate
from mrflight.storage.failures import StoreCallError, failure_of, has_failed
from tests.support.suite.messages import refused

ANSWER = "Generic S3 error: Error performing GET http://s3/b - Server returned non-2xx status code"


@pytest.mark.parametrize(
    ("message", "is_transient"),
    [
        (f"{ANSWER}: 404 Not Found: NoSuchBucket", False),
        (f"{ANSWER}: 400 Bad Request", False),
        (f"{ANSWER}: 408 Request Timeout", True),
        (f"{ANSWER}: 429 Too Many Requests", True),
        (f"{ANSWER}: 503 Slow Down", True),
        ("Generic HdfsObjectStore error\n  \x1b[31m↳\x1b[0m data transfer error", True),
        ("Operation not supported: x", False),
    ],
)
def test_which_failures_are_transient(message: str, is_transient: bool) -> None:
    error = failure_of("s3://b/x", OSError(message))
    assert has_failed(error) == is_transient
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, StoreCallError)
    assert (str(copy), copy.is_transient) == (str(error), is_transient)
    assert str(error).startswith("s3://b/x: ")


def test_a_failing_disk_is_a_store_error() -> None:
    """On any Linux, reads from the start of this file fail with EIO."""
    file = locate("/proc/self/mem", Path("/"))
    with refused(StoreError) as raised, translate_read_errors("csv", file):
        file.open_input().read(10)
    assert raised.value.retryable
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EIO


def test_opening_a_folder_as_a_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        locate(".", tmp_path).open_input()
