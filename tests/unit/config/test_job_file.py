"""A job file is decoded completely, or refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mrflight.config.input_spec
import mrflight.config.spec
from mrflight.config.job_file import decode_job, load_job
from mrflight.config.text_options import CsvOptions
from mrflight.errors import JobFileError
from tests.support.jobs.job_files import MINIMAL, Load, refusal
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(150), derandomize=True)


def test_a_minimal_file_has_the_documented_defaults(load: Load) -> None:
    spec = load(MINIMAL)
    assert spec.job.name == "clicks"
    assert spec.inputs["visits"].key == []
    assert (spec.shuffle.partitions, spec.shuffle.partitioner) == ("auto", "round_robin")
    assert (spec.shuffle.replicas, spec.shuffle.compression) == (1, "auto")
    assert spec.reduce is None
    assert (spec.output.format, spec.output.mode) == ("delta", "error")
    assert spec.cluster.metadata is None


def test_every_documented_key_is_known(load: Load) -> None:
    spec = load(
        """
        [job]
        name = "clicks"
        timeout = "10 min"
        run_id = "2026-11-20"
        [inputs.visits]
        path = "visits"
        format = "csv"
        columns = ["url"]
        types = { visitor = "string" }
        map = "clicks:weigh"
        key = ["url"]
        csv = { delimiter = ";", header = false, column_names = ["url"], newlines_in_values = true }
        [inputs.more]
        path = "more"
        [shuffle]
        partitions = 20
        partitioner = "range"
        replicas = 2
        compression = "zstd"
        memory = "1 GiB"
        [reduce]
        group_by = ["url"]
        aggregate = { clicks = "sum(weight)" }
        function = "clicks:reduce"
        [output]
        table = "out"
        format = "parquet"
        mode = "append"
        partition_by = ["day"]
        [storage]
        endpoint = "http://localhost"
        [cluster]
        executor = "local"
        workers = 2
        data_servers = 1
        metadata = "grpc+tcp://127.0.0.1:5005"
        """
    )
    assert list(spec.inputs) == ["visits", "more"]
    assert spec.inputs["visits"].csv == CsvOptions(
        delimiter=";", header=False, column_names=["url"], newlines_in_values=True
    )
    assert spec.shuffle.partitions == 20
    assert spec.storage == {"endpoint": "http://localhost"}


def test_a_spec_shows_no_secret(load: Load) -> None:
    options = {"aws_secret_access_key": "HUSH", "aws_access_key_id": "HUSH", "aws_region": "here"}
    shown = repr(msgspec.structs.replace(load(MINIMAL), storage=options))
    assert "storage={'aws_secret_access_key': '...', 'aws_access_key_id': '...'" in shown
    assert "'aws_region': 'here'}" in shown
    assert "HUSH" not in shown
    names = vars(mrflight.config.input_spec) | vars(mrflight.config.spec)
    assert eval(repr(load(MINIMAL)), names) == load(MINIMAL)


def test_a_spec_does_not_change(load: Load) -> None:
    with pytest.raises(AttributeError):
        load(MINIMAL).shuffle.replicas = 2  # type: ignore[misc]


def test_a_file_that_is_not_toml_is_refused_with_the_position(load: Load) -> None:
    message = refusal(load, "[job\nname = 'x'")
    assert "job.toml is not TOML: " in message
    assert "line 1" in message


def test_toml_that_is_nested_too_deeply_is_refused(load: Load) -> None:
    assert "is not TOML" in refusal(load, f"x = {'[' * 50_000}")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("")
    for name, hint in {"visits": "", "jobs.toml": "; did you mean job.toml?"}.items():
        with pytest.raises(JobFileError) as raised:
            load_job(tmp_path / name)
        assert str(raised.value) == f"there is no file {tmp_path / name}{hint}"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with refused(JobFileError):
        load_job(tmp_path)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(JobFileError, match="cannot be read"):
        load_job(path)


def test_storage_options_may_be_booleans_and_numbers(load: Load) -> None:
    spec = load(f"{MINIMAL}\n[storage]\naws_allow_http = true\nx = false\ndatanode_port = 9866")
    assert spec.storage == {"aws_allow_http": "true", "x": "false", "datanode_port": "9866"}
    assert "64 bits" in refusal(load, f"{MINIMAL}\n[storage]\nx = {'9' * 20}")


toml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["job", "inputs", "output", "path", "name", "csv", "key", "v", "x.y"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
documents = st.dictionaries(
    st.sampled_from(["job", "inputs", "output", "shuffle", "reduce", "storage", "cluster", "x"]),
    toml_values,
)


@examples
@given(documents)
def test_any_document_is_a_job_or_a_job_file_error(document: dict[str, Any]) -> None:
    with suppress(JobFileError):
        decode_job(document)
