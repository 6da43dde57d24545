"""A job file is decoded whole, or refused with the path of the key that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError
from mrflight.job_file import decode_job, load_job, parse_override
from mrflight.spec import CsvOptions, JobSpec

MINIMAL = """
[job]
name = "clicks"

[inputs.visits]
path = "visits/*.csv"

[output]
table = "out/clicks"
"""

Load = Callable[..., JobSpec]

examples = settings(max_examples=150, derandomize=True)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Writes a job file and loads it."""

    def write_and_load(text: str, overrides: dict[str, Any] | None = None) -> JobSpec:
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return load_job(path, overrides)

    return write_and_load


def reason(load: Load, text: str, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(JobFileError) as refused:
        load(text, overrides)
    return str(refused.value)


def test_a_minimal_file_has_the_documented_defaults(load: Load) -> None:
    spec = load(MINIMAL)
    assert spec.job.name == "clicks"
    assert spec.inputs["visits"].key == []
    assert (spec.shuffle.partitions, spec.shuffle.partitioner) == ("auto", "hash")
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


def test_a_spec_does_not_change(load: Load) -> None:
    with pytest.raises(AttributeError):
        load(MINIMAL).shuffle.replicas = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[shufle]", "shufle: no such key; did you mean 'shuffle'?"),
        ("[shuffle]\npartitons = 3", "shuffle.partitons: no such key; did you mean 'partitions'?"),
        (
            "[inputs.more]\npaht = 'x'",
            "inputs.more.paht: no such key; did you mean 'path'?",
        ),
        (
            "[inputs.more]\npath = 'x'\ncsv = { delimter = ';' }",
            "inputs.more.csv.delimter: no such key; did you mean 'delimiter'?",
        ),
        (
            "[reduce]\nxyz = 1",
            "reduce.xyz: no such key; there are group_by, aggregate, function, sql, join, left, "
            "right, distinct, keep, order_by, sort_by, limit",
        ),
    ],
)
def test_an_unknown_key_is_named_by_its_path_with_the_nearest(
    load: Load, more: str, message: str
) -> None:
    assert reason(load, f"{MINIMAL}\n{more}") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'job: this key is missing; write [job] with name = "..."'),
        (
            "[job]\nname = 'x'",
            'inputs: this key is missing; write [inputs.NAME] with path = "..."',
        ),
        (
            "[job]\n[inputs.v]\npath = 'x'\n[output]\ntable = 't'",
            'job.name: this key is missing; write name = "..." in [job]',
        ),
        (
            "[job]\nname = 'x'\n[inputs.v]\npath = 'x'\n[output]",
            'output.table: this key is missing; write table = "..." in [output]',
        ),
    ],
)
def test_a_missing_key_is_named_by_its_path(load: Load, text: str, message: str) -> None:
    assert reason(load, text) == message


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("[shuffle]\npartitions = 1.5", "shuffle.partitions: "),
        ("[shuffle]\npartitions = true", "shuffle.partitions: "),
        ("[shuffle]\npartitions = 'many'", "shuffle.partitions: "),
        ("[shuffle]\nreplicas = '2'", "shuffle.replicas: expected `int`, got `str`"),
        ("[shuffle]\ncompression = 'gzip'", "shuffle.compression: "),
        ("[reduce]\ngroup_by = 'url'", "reduce.group_by: expected `array`, got `str`"),
        ("[reduce]\ngroup_by = [1]", "reduce.group_by[0]: expected `str`, got `int`"),
        ("[cluster]\nexecutor = 'yarn'", "cluster.executor: "),
        ("[cluster]\nworkers = 'two'", "cluster.workers: "),
    ],
)
def test_a_value_of_the_wrong_type_is_named_by_its_path(load: Load, more: str, path: str) -> None:
    assert reason(load, f"{MINIMAL}\n{more}").startswith(path)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("[inputs.more]\nformat = 'csv'", "inputs.more.path: this key is missing"),
        ("[inputs.more]\npath = 3", "inputs.more.path: "),
        ("[inputs.more]\npath = 'x'\nkey = 'url'", "inputs.more.key: "),
        ("[inputs.more]\npath = 'x'\nkey = [1]", "inputs.more.key[0]: "),
        ("[inputs.more]\npath = 'x'\ntypes = { a = 1 }", "inputs.more.types.a: "),
        ("[inputs.more]\npath = 'x'\ncsv = { header = 1 }", "inputs.more.csv.header: "),
        ("[inputs]\nmore = 'x'", "inputs.more: "),
        ("[reduce]\naggregate = { clicks = 1 }", "reduce.aggregate.clicks: "),
        ("[storage]\nendpoint = 1.5", "storage.endpoint: "),
    ],
)
def test_a_path_below_a_named_table_holds_the_name(load: Load, more: str, path: str) -> None:
    assert reason(load, f"{MINIMAL}\n{more}").startswith(path)


@pytest.mark.parametrize(
    ("more", "choices"),
    [
        ("[shuffle]\ncompression = 'gzip'", ["none", "lz4", "zstd"]),
        ("[shuffle]\npartitions = 'many'", ["auto"]),
        ("[cluster]\nexecutor = 'yarn'", ["local"]),
        ("[reduce]\njoin = 'outer'", ["'semi' or 'anti'; write 'full'"]),
        ("[reduce]\njoin = 'left_outer'", ["'semi' or 'anti'; write 'left'"]),
    ],
)
def test_a_choice_that_is_none_comes_with_those_that_are(
    load: Load, more: str, choices: list[str]
) -> None:
    message = reason(load, f"{MINIMAL}\n{more}")
    assert [choice for choice in choices if choice not in message] == []


def test_a_job_has_at_least_one_input(load: Load) -> None:
    text = "[job]\nname = 'x'\n[inputs]\n[output]\ntable = 't'"
    assert reason(load, text).startswith("inputs: ")


def test_what_is_not_toml_is_refused_with_its_place(load: Load) -> None:
    message = reason(load, "[job\nname = 'x'")
    assert "job.toml is not TOML: " in message
    assert "line 1" in message


def test_toml_that_is_nested_too_deeply_is_refused(load: Load) -> None:
    assert "is not TOML" in reason(load, f"x = {'[' * 50_000}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"none\.toml cannot be read: .*No such file"):
        load_job(tmp_path / "none.toml")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="cannot be read"):
        load_job(tmp_path)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(JobFileError, match="cannot be read"):
        load_job(path)


def test_overrides_replace_values_and_make_sections(load: Load) -> None:
    spec = load(
        MINIMAL,
        {"shuffle.partitions": 40, "job.name": "other", "inputs.visits.key": ["url"]},
    )
    assert spec.shuffle.partitions == 40
    assert spec.job.name == "other"
    assert spec.inputs["visits"].key == ["url"]
    assert spec.inputs["visits"].path == "visits/*.csv"


def test_an_override_can_bring_the_missing_key(load: Load) -> None:
    text = MINIMAL.replace('name = "clicks"', "")
    assert load(text, {"job.name": "given"}).job.name == "given"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("shuffle.partitons", 1, "shuffle.partitons: no such key; did you mean 'partitions'?"),
        ("shuffle.partitions", "40", "shuffle.partitions: "),
        ("job", 1, "job: "),
        ("job.name.first", "x", "--set job.name.first: job.name is no section"),
        ("nothing", 1, "nothing: no such key"),
    ],
)
def test_an_override_is_checked_like_the_file(
    load: Load, key: str, value: Any, message: str
) -> None:
    assert reason(load, MINIMAL, {key: value}).startswith(message)


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
    with pytest.raises(JobFileError, match=r"^--set .*: write section\.key=value$"):
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
    with pytest.raises(JobFileError) as caught:
        parse_override(text)
    assert str(caught.value) == f"--set {shown}: write section.key=value"


@pytest.mark.parametrize(
    "text",
    [
        "storage.aws_secret_access_key=HUSH",
        "storage. AWS_Session_Token =HUSH",
        "storage.aws_sse_customer_key_base64='HUSH'",
        "storage={ aws_region = 'r', aws_secret_access_key = 'HUSH' }",
        "storage.proxy_url=http://user:HUSH@proxy:3128",
    ],
)
def test_a_secret_of_a_store_is_no_argument(text: str) -> None:
    with pytest.raises(JobFileError, match=r"^--set storage\..* \[storage\] of the job") as caught:
        parse_override(text)
    assert "HUSH" not in str(caught.value)


def test_what_is_no_secret_of_a_store_may_be_an_argument() -> None:
    for name in ("aws_access_key_id", "aws_web_identity_token_file", "aws_endpoint_url"):
        assert parse_override(f"storage.{name}=http://x/y@z") == (f"storage.{name}", "http://x/y@z")


@pytest.mark.parametrize("value", ["'aws_secret_access_key=HUSH'", "['HUSH']"])
def test_what_is_no_table_of_options_is_not_shown(load: Load, value: str) -> None:
    message = reason(load, f"storage = {value}\n{MINIMAL}")
    assert message.startswith("storage: is a table, [storage], not a value of type ")
    assert "HUSH" not in message


def test_options_may_be_written_as_what_they_are(load: Load) -> None:
    spec = load(f"{MINIMAL}\n[storage]\naws_allow_http = true\nx = false\ndatanode_port = 9866")
    assert spec.storage == {"aws_allow_http": "true", "x": "false", "datanode_port": "9866"}
    assert "64 bits" in reason(load, f"{MINIMAL}\n[storage]\nx = {'9' * 20}")


def test_an_override_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(JobFileError):
        parse_override("a.b=" + "[" * 50_000)


def test_a_run_id_that_looks_like_a_date_can_be_set(load: Load) -> None:
    overrides = dict([parse_override("job.run_id=2026-11-20")])
    assert load(MINIMAL, overrides).job.run_id == "2026-11-20"


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


@examples
@given(st.text(max_size=30))
def test_any_text_is_an_override_or_a_job_file_error(text: str) -> None:
    try:
        key, _ = parse_override(text)
    except JobFileError:
        return
    assert key
