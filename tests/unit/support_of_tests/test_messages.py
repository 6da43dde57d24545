"""The table of messages has what tests ask for, and is written by what they have seen."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError, MrflightError
from tests.support.suite.cases import cases
from tests.support.suite.message_table import (
    FOLDER,
    MessageTable,
    Name,
    is_there,
    name_of,
    normalised,
)

FILE = "unit/support_of_tests/test_messages.py"
TEST = "test_texts_are_written_and_read"


def named(parameters: str = "", test: str = TEST) -> Name:
    return Name(FILE, test, parameters)


def test_every_entry_is_that_of_a_test() -> None:
    with cases() as case:
        for path in FOLDER.rglob("*.toml"):
            for file, tests in tomllib.loads(path.read_text(encoding="utf-8")).items():
                for test in tests:
                    with case(f"{file}::{test}"):
                        assert is_there(file, test)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("output.mode", "output.mode must be 'append'"),
        ("inputs.a-1.key[0]", "inputs.a-1.key[0]: must be a text"),
        ("storage.aws_region", "--set storage.aws_region: write it"),
        ("stream", "stream: the job is a stream"),
        ("inputs", "inputs must have at least one input"),
        (None, "job 7 has ended"),
        (None, "outputs.mode: nothing"),
        (None, "the output exists"),
    ],
)
def test_an_error_has_the_key_that_its_message_begins_with(key: str | None, message: str) -> None:
    assert JobFileError(message).key == key


def test_every_section_of_a_job_file_is_a_key() -> None:
    for section in JobSpec.__struct_fields__:
        assert MrflightError(f"{section}.name is unknown").key == f"{section}.name"


class TestName:
    @pytest.mark.parametrize("given", ["x-]y"])
    def test_a_name_has_the_file_the_class_and_the_parameters(
        self, given: str, request: pytest.FixtureRequest
    ) -> None:
        test = "TestName.test_a_name_has_the_file_the_class_and_the_parameters"
        assert name_of(request.node) == Name(FILE, test, given)


def test_what_varies_has_a_name(tmp_path: Path) -> None:
    text = f"{tmp_path}/a.csv: process 4711 at 127.0.0.1:41237 took 1.25 s"
    assert normalised(text) == "TMP/a.csv: process PID at 127.0.0.1:PORT took TIME s"
    places = 'f (a.py, line 12), File "b.py", line 3; a.csv, line 3: 0x7F00AA11BB22'
    assert (
        normalised(places) == 'f (a.py, line LINE), File "b.py", line LINE; a.csv, line 3: ADDRESS'
    )


def test_texts_are_written_and_read(tmp_path: Path) -> None:
    table = MessageTable(tmp_path)
    one, two, other = named("1"), named("2"), named(test="test_what_varies_has_a_name")
    gone = named(test="test_that_is_gone")
    every = [one, two, other, gone]
    table.rewrite({one: ["a", "b"], two: ['"\x7f\n'], other: ["c", "c"], gone: ["d"]}, every, every)
    texts = [table.text_of(name, number) for name in (one, two, other) for number in (0, 1)]
    assert texts == ["a", "b", '"\x7f\n', '"\x7f\n', "c", "c"]
    assert table.text_of(one, 2) is None
    # What has not run keeps its texts; equal texts of all parameters are written once.
    table.rewrite({one: ["e"], two: ["e"]}, [one, two], [one, two])
    (path,) = tmp_path.rglob("*.toml")
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    assert entries == {FILE: {TEST: "e", "test_what_varies_has_a_name": "c"}}
    table.rewrite({}, [], [named("1"), named("3"), other])
    assert table.text_of(other, 0) == "c"
    table.rewrite({}, [one, two, other], [one, two, other])
    assert not path.exists()
