"""Mistakes in a job file are reported with the path of the key."""

from __future__ import annotations

import pytest

from mrflight.errors import JobFileError
from tests.support.jobs.job_files import MINIMAL, Load, refusal
from tests.support.suite.messages import refused


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[shufle]", None),
        ("[shuffle]\npartitons = 3", "shuffle.partitons"),
        (
            "[inputs.more]\npaht = 'x'",
            "inputs.more.paht",
        ),
        (
            "[inputs.more]\npath = 'x'\ncsv = { delimter = ';' }",
            "inputs.more.csv.delimter",
        ),
        (
            "[reduce]\nxyz = 1",
            "reduce.xyz",
        ),
    ],
)
def test_an_unknown_key_is_reported_with_its_path_and_the_nearest_key(
    load: Load, more: str, key: str | None
) -> None:
    with refused(JobFileError, key):
        load(f"{MINIMAL}\n{more}")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "job"),
        (
            "[job]\nname = 'x'",
            "inputs",
        ),
        (
            "[job]\n[inputs.v]\npath = 'x'\n[output]\ntable = 't'",
            "job.name",
        ),
        (
            "[job]\nname = 'x'\n[inputs.v]\npath = 'x'\n[output]",
            "output.table",
        ),
    ],
)
def test_a_missing_key_is_reported_with_its_path(load: Load, text: str, key: str) -> None:
    with refused(JobFileError, key):
        load(text)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[shuffle]\npartitions = 1.5", "shuffle.partitions"),
        ("[shuffle]\npartitions = true", "shuffle.partitions"),
        ("[shuffle]\npartitions = 'many'", "shuffle.partitions"),
        ("[shuffle]\nreplicas = '2'", "shuffle.replicas"),
        ("[shuffle]\ncompression = 'gzip'", "shuffle.compression"),
        ("[reduce]\ngroup_by = 'url'", "reduce.group_by"),
        ("[reduce]\ngroup_by = [1]", "reduce.group_by[0]"),
        ("[cluster]\nmemory = 512", "cluster.memory"),
        ("[cluster]\nexecutor = 'yarn'", "cluster.executor"),
        ("[cluster]\nworkers = 'two'", "cluster.workers"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_with_its_path(
    load: Load, more: str, key: str
) -> None:
    with refused(JobFileError, key):
        load(f"{MINIMAL}\n{more}")


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[inputs.more]\nformat = 'csv'", "inputs.more.path"),
        ("[inputs.more]\npath = 3", "inputs.more.path"),
        ("[inputs.more]\npath = []", "inputs.more.path"),
        ("[inputs.more]\npath = ['x', 1]", "inputs.more.path[1]"),
        ("[inputs.more]\nframe = 'x'", "inputs.more.frame"),
        ("[inputs.more]\npath = 'x'\nkey = 'url'", "inputs.more.key"),
        ("[inputs.more]\npath = 'x'\nkey = [1]", "inputs.more.key[0]"),
        (
            "[inputs.more]\npath = 'x'\ntypes = { a = 1 }",
            "inputs.more.types.a",
        ),
        ("[inputs.more]\npath = 'x'\ncsv = { header = 1 }", "inputs.more.csv.header"),
        ("[inputs]\nmore = 'x'", "inputs.more"),
        ("[reduce]\naggregate = { clicks = 1 }", "reduce.aggregate.clicks"),
        ("[storage]\nendpoint = 1.5", "storage.endpoint"),
    ],
)
def test_the_path_of_a_key_in_a_named_table_has_the_name(load: Load, more: str, key: str) -> None:
    with refused(JobFileError, key):
        load(f"{MINIMAL}\n{more}")


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
def test_a_wrong_choice_is_reported_with_the_valid_ones(
    load: Load, more: str, choices: list[str]
) -> None:
    with refused(JobFileError) as told:
        load(f"{MINIMAL}\n{more}")
    assert [choice for choice in choices if choice not in str(told.value)] == []


@pytest.mark.parametrize(
    ("functions", "key"),
    [
        ("f = 'm:f'", "job.functions"),
        ("f = 1", "job.functions.f"),
    ],
)
def test_functions_without_a_query(load: Load, functions: str, key: str) -> None:
    text = MINIMAL.replace("[job]", f"[job]\nfunctions = {{ {functions} }}")
    with refused(JobFileError, key):
        load(text)


@pytest.mark.parametrize(
    ("functions", "key"),
    [
        ("'a-b' = 'm:f'", "job.functions.a-b"),
        ("f = 'm:f', F = 'm:g'", "job.functions.f"),
    ],
)
def test_names_of_functions(load: Load, functions: str, key: str) -> None:
    keys = f"[job]\nsql = 'select 1'\nfunctions = {{ {functions} }}"
    with refused(JobFileError, key):
        load(MINIMAL.replace("[job]", keys))


def test_a_job_has_at_least_one_input(load: Load) -> None:
    text = "[job]\nname = 'x'\n[inputs]\n[output]\ntable = 't'"
    with refused(JobFileError, "inputs"):
        load(text)


@pytest.mark.parametrize("value", ["'aws_secret_access_key=HUSH'", "['HUSH']"])
def test_a_value_in_place_of_the_storage_table_is_not_shown(load: Load, value: str) -> None:
    message = refusal(load, f"storage = {value}\n{MINIMAL}")
    assert message.startswith("storage must be a table, [storage], not a value of type ")
    assert "HUSH" not in message
