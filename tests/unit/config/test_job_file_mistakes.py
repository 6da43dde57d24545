"""Mistakes in a job file are reported with the path of the key."""

from __future__ import annotations

import pytest

from tests.support.jobs.job_files import MINIMAL, Load, refusal


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[shufle]", "shufle: unknown key; did you mean 'shuffle'?"),
        ("[shuffle]\npartitons = 3", "shuffle.partitons: unknown key; did you mean 'partitions'?"),
        (
            "[inputs.more]\npaht = 'x'",
            "inputs.more.paht: unknown key; did you mean 'path'?",
        ),
        (
            "[inputs.more]\npath = 'x'\ncsv = { delimter = ';' }",
            "inputs.more.csv.delimter: unknown key; did you mean 'delimiter'?",
        ),
        (
            "[reduce]\nxyz = 1",
            "reduce.xyz: unknown key; the keys are group_by, aggregate, function, sql, join, left, "
            "right, distinct, keep, order_by, sort_by, limit",
        ),
    ],
)
def test_an_unknown_key_is_reported_with_its_path_and_the_nearest_key(
    load: Load, more: str, message: str
) -> None:
    assert refusal(load, f"{MINIMAL}\n{more}") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'job is missing; write [job] with name = "..."'),
        (
            "[job]\nname = 'x'",
            'inputs is missing; write [inputs.NAME] with path = "..."',
        ),
        (
            "[job]\n[inputs.v]\npath = 'x'\n[output]\ntable = 't'",
            'job.name is missing; write name = "..." in [job]',
        ),
        (
            "[job]\nname = 'x'\n[inputs.v]\npath = 'x'\n[output]",
            'output.table is missing; write table = "..." in [output]',
        ),
    ],
)
def test_a_missing_key_is_reported_with_its_path(load: Load, text: str, message: str) -> None:
    assert refusal(load, text) == message


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("[shuffle]\npartitions = 1.5", "shuffle.partitions: "),
        ("[shuffle]\npartitions = true", "shuffle.partitions: "),
        ("[shuffle]\npartitions = 'many'", "shuffle.partitions: "),
        ("[shuffle]\nreplicas = '2'", "shuffle.replicas must be a whole number, not '2'"),
        ("[shuffle]\ncompression = 'gzip'", "shuffle.compression: "),
        ("[reduce]\ngroup_by = 'url'", "reduce.group_by must be a list, not 'url'"),
        ("[reduce]\ngroup_by = [1]", "reduce.group_by[0] must be a string, not a whole number"),
        ("[cluster]\nmemory = 512", "cluster.memory must be a string, not 512"),
        ("[cluster]\nexecutor = 'yarn'", "cluster.executor: "),
        ("[cluster]\nworkers = 'two'", "cluster.workers must be a whole number, not 'two'"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_with_its_path(
    load: Load, more: str, path: str
) -> None:
    assert refusal(load, f"{MINIMAL}\n{more}").startswith(path)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("[inputs.more]\nformat = 'csv'", "inputs.more.path is missing"),
        ("[inputs.more]\npath = 3", "inputs.more.path must be a string or a list, not 3"),
        ("[inputs.more]\npath = []", "inputs.more.path must have at least one file, folder or"),
        ("[inputs.more]\npath = ['x', 1]", "inputs.more.path[1] must be a string, not a whole"),
        ("[inputs.more]\nframe = 'x'", "inputs.more.frame must be rows in memory, which only a jo"),
        ("[inputs.more]\npath = 'x'\nkey = 'url'", "inputs.more.key must be a list, not 'url'"),
        ("[inputs.more]\npath = 'x'\nkey = [1]", "inputs.more.key[0] must be a string, not"),
        (
            "[inputs.more]\npath = 'x'\ntypes = { a = 1 }",
            "inputs.more.types.a must be a string, not 1",
        ),
        ("[inputs.more]\npath = 'x'\ncsv = { header = 1 }", "inputs.more.csv.header must be"),
        ("[inputs]\nmore = 'x'", "inputs.more must be a table"),
        ("[reduce]\naggregate = { clicks = 1 }", "reduce.aggregate.clicks must be a string, not 1"),
        ("[storage]\nendpoint = 1.5", "storage.endpoint must be a string, not a number"),
    ],
)
def test_the_path_of_a_key_in_a_named_table_has_the_name(load: Load, more: str, path: str) -> None:
    assert refusal(load, f"{MINIMAL}\n{more}").startswith(path)


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
    message = refusal(load, f"{MINIMAL}\n{more}")
    assert [choice for choice in choices if choice not in message] == []


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("f = 'm:f'", "job.functions are for job.sql, which is missing; write sql, too"),
        ("f = 1", "job.functions.f must be a string, not 1"),
    ],
)
def test_functions_without_a_query(load: Load, functions: str, message: str) -> None:
    text = MINIMAL.replace("[job]", f"[job]\nfunctions = {{ {functions} }}")
    assert refusal(load, text).startswith(message)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("'a-b' = 'm:f'", "job.functions.a-b: a query cannot call it by this name"),
        ("f = 'm:f', F = 'm:g'", "job.functions.f: sql does not tell upper case in names of"),
    ],
)
def test_names_of_functions(load: Load, functions: str, message: str) -> None:
    keys = f"[job]\nsql = 'select 1'\nfunctions = {{ {functions} }}"
    assert refusal(load, MINIMAL.replace("[job]", keys)).startswith(message)


def test_a_job_has_at_least_one_input(load: Load) -> None:
    text = "[job]\nname = 'x'\n[inputs]\n[output]\ntable = 't'"
    assert refusal(load, text).startswith("inputs must have at least one input")


@pytest.mark.parametrize("value", ["'aws_secret_access_key=HUSH'", "['HUSH']"])
def test_a_value_in_place_of_the_storage_table_is_not_shown(load: Load, value: str) -> None:
    message = refusal(load, f"storage = {value}\n{MINIMAL}")
    assert message.startswith("storage must be a table, [storage], not a value of type ")
    assert "HUSH" not in message
