"""What bad events do to a stream, and how the fields of events become columns."""

from __future__ import annotations

import pytest

from mrflight.errors import CommitError
from tests.support.streams.stream_cases import (
    DEAD_LETTERS,
    SKIP,
    Case,
    Killed,
    nothing,
    produce,
    run,
    table,
)

BAD = b"no json"
LETTERS = {"stream": DEAD_LETTERS}
SKIPPED = {"stream": SKIP}


def allowing(share: str, **more: object) -> dict[str, dict[str, object]]:
    return {"stream": {**DEAD_LETTERS, "max_bad": share, **more}}


STRICT = allowing("0 %")


@table(
    Case("stops by default", "", "BadRowError: kafka://t/0, offset 1: ", events={0: [0, BAD]}),
    Case("stops after the batches before", "0:0-1=1", "BadRowError: kafka://t/0, offset 1: ",
         events={0: [0, BAD, 2]}, job={"stream": {"max_rows": 1}}, lag=1),
    Case("stops again in the next run", "", "BadRowError", events={0: [BAD]}, then=[nothing]),
    Case("skip", "0:0-3=2", events={0: [0, BAD, 2]}, job=SKIPPED),
    Case("skip a whole batch", "0:0-2=0", events={0: [BAD, BAD]}, job=SKIPPED),
    Case("dead letters", "0:0-3=2", events={0: [0, BAD, 2]}, job=LETTERS, letters=[1]),
    Case("dead letters of two partitions", "0:0-2 1:0-2=2", events={0: [0, BAD], 1: [BAD, 1]},
         job=LETTERS, letters=[0, 1]),
    Case("dead letters of several batches", "0:0-2=1 | 0:2-4=1",
         events={0: [BAD, 1, 2, BAD]}, letters=[0, 3],
         job={"stream": {**DEAD_LETTERS, "max_rows": 2}}),
    Case("no dead letters, no commit of them", "0:0-3=3", job=LETTERS, steps={"letters": 0}),
    Case("only dead letters", "0:0-2=0", events={0: [BAD, BAD]}, job=LETTERS, letters=[0, 1]),
    Case("another type is bad", "0:0-2=1", events={0: [0, {"n": "x"}]}, job=LETTERS, letters=[1]),
    Case("another field of the first batch is a column", "0:0-2=2", job=LETTERS,
         events={0: [0, {"n": 1, "m": 2}]}),
    Case("another field of a chosen schema is left out", "0:0-2=2",
         events={0: [0, {"n": 1, "m": 2}]}, job={"input": {"columns": ["n"]}}),
    Case("columns are those of the first batch", "0:0-1=1 | 0:1-2=0", letters=[1],
         events={0: [1, {"n": 1.5}]}, checks_rows=False,
         job={"stream": {**DEAD_LETTERS, "max_rows": 1}, "input": {"types": None}}),
    Case("an array is bad", "0:0-2=1", events={0: [0, b"[1]"]}, job=LETTERS, letters=[1]),
    Case("two objects are bad", "0:0-2=1", events={0: [0, b'{"n":1} {"n":2}']}, job=LETTERS,
         letters=[1]),
    Case("no value is a row of nulls with metadata", "0:0-2=2", events={0: [0, None]}),
    Case("no value is bad without metadata", "0:0-2=1", events={0: [0, None]}, letters=[1],
         job={**LETTERS, "input": {"metadata": None}}, checks_rows=False),
    Case("an empty value is bad", "0:0-2=1", events={0: [0, b""]}, job=LETTERS, letters=[1]),
)  # fmt: skip
def test_bad_events(case: Case) -> None:
    run(case)


@table(
    Case("ten may be bad whatever their share", "0:0-10=0", events={0: [BAD] * 10}, job=STRICT,
         letters=range(10)),
    Case("eleven may not", "", "InputError: stream 'events': 11 events of 11 cannot be decoded",
         events={0: [BAD] * 11}, job=STRICT),
    Case("eleven of a hundred, and ten percent may", "",
         "InputError: stream 'events': 11 events of 100", events={0: [*[0] * 89, *[BAD] * 11]},
         job=allowing("10 %")),
    Case("eleven of a hundred and ten", "0:0-110=99", events={0: [*[0] * 99, *[BAD] * 11]},
         job=allowing("10 %"), letters=range(99, 110)),
    Case("a hundred percent", "0:0-20=0", events={0: [BAD] * 20}, job=allowing("100 %"),
              letters=range(20)),
    Case("skipped ones count as well", "", "InputError: stream 'events': 11 events of 11",
         events={0: [BAD] * 11}, job={"stream": {**SKIP, "max_bad": "0 %"}}),
    Case("with no dead letters of a batch that is not committed", "0:0-11=11",
         "InputError: stream 'events': 11 events of 11", events={0: [*range(11), *[BAD] * 11]},
         job=allowing("0 %", max_rows=11), letters=[], lag=0),
)  # fmt: skip
def test_max_bad(case: Case) -> None:
    run(case)


AWAY = CommitError("the store is away")


def once(stream: object) -> None:
    raise AWAY


@table(
    Case("the process ends between dead letters and rows", "0:0-3=2", events={0: [0, BAD, 2]},
         on={"commit 1": Killed()}, then=[nothing], job=LETTERS, letters=[1]),
    Case("and the batch is larger the next time", "0:0-5=3", events={0: [0, BAD, 2]},
         on={"commit 1": Killed()}, then=[produce(BAD, 4)], job=LETTERS, letters=[1, 3]),
    Case("the process ends before the dead letters", "0:0-3=2", events={0: [0, BAD, 2]},
         on={"letters 1": Killed()}, then=[nothing], job=LETTERS, letters=[1]),
    Case("the table cannot be written for a moment", "0:0-3=2", events={0: [0, BAD, 2]},
         on={"commit 1": AWAY}, job=LETTERS, letters=[1], steps={"letters": 2}, waits=[1]),
    Case("the dead letters cannot be written for a moment", "0:0-3=2", events={0: [0, BAD, 2]},
         on={"letters 1": AWAY}, job=LETTERS, letters=[1], steps={"commit": 1}, waits=[1]),
)  # fmt: skip
def test_a_dead_letter_is_there_once(case: Case) -> None:
    run(case)


EVOLVE = {"output": {"schema": "evolve"}, "input": {"types": None}}
GROWN = {**EVOLVE, "stream": DEAD_LETTERS}


def names(case: Case) -> list[str]:
    """Run a case, and return the columns that are not metadata and their types."""
    schema = run(case).table.schema
    assert schema is not None
    return [f"{each.name} {each.type}" for each in schema if not each.name.startswith("_")]


def grown(about: str, commits: str, **more: object) -> Case:
    return Case(about, commits, checks_rows=False, **{"job": EVOLVE, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "columns"),
    [
        (grown("inferred", "0:0-3=3"), ["n int64"]),
        (grown("inferred from all", "0:0-2=2", events={0: [{"n": 1}, {"m": "x"}]}),
         ["n int64", "m string"]),
        (grown("a new field", "0:0-3=3 | 0:3-4=1", then=[produce({"n": 3, "m": 1.5})]),
         ["n int64", "m double"]),
        (grown("a new field in a batch of old ones", "0:0-3=3 | 0:3-5=2",
               then=[produce({"n": 3, "m": True}, 4)]), ["n int64", "m bool"]),
        (grown("two new fields", "0:0-3=3 | 0:3-5=2",
               then=[produce({"n": 3, "m": "a"}, {"n": 3, "l": 1})]),
         ["n int64", "m string", "l int64"]),
        (grown("a new field of null", "0:0-3=3 | 0:3-4=1", then=[produce({"n": 3, "m": None})]),
         ["n int64", "m string"]),
        (grown("one after the other", "0:0-3=3 | 0:3-4=1 | 0:4-5=1",
               then=[produce({"n": 3, "m": 1}), produce({"n": 3, "m": 1, "l": 1})]),
         ["n int64", "m int64", "l int64"]),
        (grown("known fields that are lacking", "0:0-1=1 | 0:1-2=1",
               events={0: [{"n": 1, "m": 2}]}, then=[produce(2)]), ["n int64", "m int64"]),
        (grown("a new field beside a bad event", "0:0-3=3 | 0:3-5=1", job=GROWN, letters=[4],
               then=[produce({"n": 3, "m": 1}, BAD)]), ["n int64", "m int64"]),
        (grown("a new field in an event that is bad", "0:0-3=3 | 0:3-4=0", job=GROWN,
               letters=[3], then=[produce({"n": "x", "m": 1})]), ["n int64", "m int64"]),
        (grown("a new field of two types", "0:0-3=3 | 0:3-6=1", job=GROWN, letters=[4, 5],
               then=[produce(3, {"n": 4, "m": 1}, {"n": 5, "m": "x"})]), ["n int64"]),
        (grown("a field with a name of the metadata", "0:0-3=3 | 0:3-5=1", job=GROWN,
               letters=[3], then=[produce({"n": 3, "_offset": 1}, 4)]), ["n int64"]),
        (grown("a list of nothing", "0:0-3=3 | 0:3-5=2", then=[produce({"n": 3, "m": []}, 4)]),
         ["n int64", "m list<item: string>"]),
        (grown("an object without fields", "0:0-3=3 | 0:3-5=1", job=GROWN, letters=[3],
               then=[produce({"n": 3, "m": {}}, 4)]), ["n int64"]),
        (grown("a time is text, as in the first events", "0:0-1=1 | 0:1-2=1",
               events={0: [{"n": 0, "l": "2024-01-01T05:00:00+05:00"}]},
               then=[produce({"n": 3, "m": "2024-01-01T05:00:00+05:00"})]),
         ["n int64", "l string", "m string"]),
        (grown("no new field if columns are chosen", "0:0-3=3 | 0:3-4=1",
               job={**EVOLVE, "input": {"types": None, "columns": ["n"]}},
               then=[produce({"n": 3, "m": 1})]), ["n int64"]),
        (grown("a field that is gone in the first batch", "0:0-1=1 | 0:1-2=1",
               job={**EVOLVE, "stream": {"max_rows": 1}},
               events={0: [{"n": 1, "m": 1}, {"n": 2, "k": "x"}]}),
         ["n int64", "m int64", "k string"]),
    ],
    ids=lambda each: each.about if isinstance(each, Case) else "",
)  # fmt: skip
def test_new_fields_become_columns(case: Case, columns: list[str]) -> None:
    assert names(case) == columns


@table(
    Case("a new field is bad", "0:0-3=3", "BadRowError: kafka://t/0, offset 3",
         then=[produce({"n": 3, "m": 1})], job={"input": {"types": None}}, lag=0),
    Case("a new field is a dead letter", "0:0-3=3 | 0:3-5=1", letters=[3], checks_rows=False,
         then=[produce({"n": 3, "m": 1}, 4)], job={"input": {"types": None}, **LETTERS}),
    Case("no event yet", "", events={0: []}, job={"input": {"types": None}}),
    Case("no event that can be decoded", "", "InputError: inputs.events: there are no messages",
         events={0: [BAD]}, job={"input": {"types": None}}),
)  # fmt: skip
def test_a_table_with_fixed_columns(case: Case) -> None:
    run(case)
