"""``mrflight doctor`` asks a bucket, and compares the clock with that of its server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrflight.frontend import cli
from mrflight.storage import locate
from tests.services.minio import Bucket
from tests.support.suite.waiting import hang_s

JOB = """
[job]
name = "job"

[inputs.visits]
path = "{url}/visits/*.csv"

[output]
table = "{url}/out"
format = "parquet"

[storage]
"""


@pytest.mark.parametrize("has_key", [True, False])
def test_a_bucket_is_asked_with_the_keys_of_the_job(
    has_key: bool, bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locate(f"{bucket.url}/visits/a.csv", Path("/"), bucket.options).put_if_absent(b"url\na\n")
    options = bucket.options if has_key else {**bucket.options, "aws_secret_access_key": "planted"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in options.items()]
    (tmp_path / "job.toml").write_text("".join([JOB.format(url=bucket.url), *lines]))
    timeout = f"--timeout={hang_s():.0f} s"
    code = cli.main(["doctor", "--json", timeout, str(tmp_path / "job.toml")])
    shown = capsys.readouterr().out
    states = {each["check"]: each["state"] for each in json.loads(shown)["findings"]}
    assert code == (0 if has_key else 1)
    assert states[f"{bucket.url}/visits"] == ("ok" if has_key else "problem")
    assert ("plan" in states) is has_key  # it would ask the bucket again
    assert "as that of http://" in shown
    assert "planted" not in shown
