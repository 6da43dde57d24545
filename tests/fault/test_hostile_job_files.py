"""Any job file and any ``--set`` gives a job or a JobFileError."""

from __future__ import annotations

import random
import string
from pathlib import Path

import msgspec
import pytest

from mrflight.config.job_file import load_job
from mrflight.config.overrides import parse_override
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from tests.support.commands.driver import write_job
from tests.support.faults.hostile_bytes import hostile_lines
from tests.support.suite.messages import refused

pytestmark = pytest.mark.slow

FILES = 4_000
OVERRIDES = 4_000

JOB = """\
[job]
name = "clicks"
attempts = 4
timeout = "10 min"
[inputs.visits]
path = "visits/*.csv"
format = "csv"
key = ["url"]
types = { visitor = "string" }
csv = { delimiter = ";", header = false, column_names = ["url"] }
[shuffle]
partitions = 20
compression = "zstd"
[reduce]
group_by = ["url"]
aggregate = { clicks = "sum(weight)" }
[output]
table = "out/clicks"
mode = "append"
[storage]
endpoint = "http://127.0.0.1:9000"
[cluster]
workers = 2
memory = "1 GiB"
"""

VALUES = (
    *('""', '"x"', '"\\u0000"', '"\\ud800"', '"""', "'", "auto", "true", "nan", "-inf", "1e400"),
    *("0", "-1", "1_000", "0x" + "f" * 5_000, "9" * 20, "9" * 5_000, "0b1", "0o7", "+-1", "0.5"),
    *("1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "2020-13-45", "0000-00-00"),
    *("[]", "{}", "[[]]", '["a", 1]', "{ a = 1 }", "[" * 500 + "]" * 500, "[" * 100_000),
    *("{ a = " * 400 + "1" + " }" * 400, "{ a" + ".a" * 100 + " = 1 }", '{ "" = 1 }', "x" * 10_000),
    *("job", "inputs", "output", "a", "a" + ".a" * 100, '"a b"', '"\\t"', "\x00", "\u00e4", "#"),
)

SETTINGS = (
    *("job.name", "job.timeout", "inputs.visits", "inputs.visits.key", "inputs.visits.types"),
    *("shuffle.partitions", "reduce.aggregate", "output.mode", "cluster", "cluster.workers"),
)
"""Keys that there are."""


def test_a_file_is_a_job_or_refused(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "job.toml"
    jobs = []
    for number in range(FILES):
        path.write_bytes(text := hostile_lines(JOB, rng, VALUES))
        try:
            jobs.append(load_job(path))
        except JobFileError:
            continue
        except BaseException as error:
            error.add_note(f"file {number}: {text[:2_000]!r} ({len(text)} bytes)")
            raise
    assert 0 < len(jobs) < FILES
    assert {type(job) for job in jobs} == {JobSpec}
    assert all(msgspec.convert(msgspec.to_builtins(job), JobSpec) == job for job in jobs)


def override(rng: random.Random) -> str:
    sections = ("job", "inputs", "inputs.visits", "shuffle", "reduce", "output", "cluster")
    keys = ("name", "partitions", "format", "mode", "key", "workers", "aggregate", "visits")
    if rng.random() < 0.5:  # else few get as far as their value
        key = rng.choice(SETTINGS)
    else:
        key = f"{rng.choice((*sections, ''))}.{rng.choice((*keys, *VALUES))}"
    text = f"{key}={rng.choice(VALUES)}"
    if rng.random() < 0.3:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(string.printable) + text[at + rng.randrange(2) :]
    return text


def test_an_override_is_taken_or_refused(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = write_job(tmp_path, JOB)
    refused = 0
    for number in range(OVERRIDES):
        text = override(rng)
        try:
            key, value = parse_override(text)
            assert type(load_job(path, {key: value})) is JobSpec
        except JobFileError:
            refused += 1
        except BaseException as error:
            error.add_note(f"override {number}: {text[:2_000]!r} ({len(text)} letters)")
            raise
    assert 100 < refused < OVERRIDES - 100


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("[shuffle]\npartitions = " + "9" * 5_000, None),
        (
            "[shuffle]\npartitions = 0x" + "f" * 5_000,
            "shuffle.partitions",
        ),
        (
            "[shuffle]\npartitions = 9223372036854775808",
            "shuffle.partitions",
        ),
        (
            "shuffle = 0x" + "f" * 5_000,
            "shuffle",
        ),
        (
            "[shuffle]\ncompression" + ".a" * 2_000 + " = 1",
            "shuffle.compression",
        ),
        (
            "shuffle = ['" + "x" * 100_000 + "']",
            "shuffle",
        ),
    ],
    ids=["digits", "hexadecimal", "65 bits", "a table", "deep", "long"],
)
def test_a_value_that_cannot_be_shown_is_refused(
    tmp_path: Path, line: str, key: str | None
) -> None:
    job = '[job]\nname = "a"\n[inputs.v]\npath = "v"\n[output]\ntable = "t"\n'
    before = "" if line.startswith("[") else f"{line}\n"
    path = write_job(tmp_path, before + job + ("" if before else line))
    with refused(JobFileError, key) as caught:
        load_job(path)
    assert len(str(caught.value)) < 600


def test_an_override_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    path = write_job(tmp_path, JOB)
    for value in ("9" * 5_000, "0x" + "f" * 5_000):
        with refused(JobFileError, "shuffle.partitions"):
            load_job(path, dict([parse_override(f"shuffle.partitions={value}")]))
