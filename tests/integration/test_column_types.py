"""Columns of every Arrow type, nested two deep, go through every reduce, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.compute.key_types import has_canonical_bytes
from mrflight.compute.types import canonical_type
from mrflight.config.aggregates import APPROXIMATIONS, FUNCTIONS, QUANTILES, VARIANCES, Aggregate
from mrflight.errors import JobFileError, KeyTypeError
from mrflight.tasks.operators.aggregates import check_aggregates, check_distinct
from mrflight.tasks.operators.grouping import group
from tests.support.commands.driver import drive, write_job

pytestmark = pytest.mark.runs_on_ray

LEAVES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "fixed_binary": pa.binary(3),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("s"),
    "timestamp": pa.timestamp("us", "UTC"),
    "duration": pa.duration("s"),
    "decimal32": pa.decimal32(5, 2),
    "decimal128": pa.decimal128(10, 2),
    "decimal256": pa.decimal256(50, 2),
    "interval": pa.month_day_nano_interval(),
    "uuid": pa.uuid(),
    "json": pa.json_(),
    "bool8": pa.bool8(),
    "opaque": pa.opaque(pa.int32(), "x", "y"),
    "strings": pa.dictionary(pa.int32(), pa.string()),
    "decimals": pa.dictionary(pa.int8(), pa.decimal128(10, 2)),
    "dates": pa.dictionary(pa.int8(), pa.date32()),
}
VIEWS = pa.dictionary(pa.int8(), pa.string_view())
NESTINGS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_list": lambda kind: pa.list_(kind, 2),
    "struct": lambda kind: pa.struct([("x", kind)]),
    "map": lambda kind: pa.map_(pa.string(), kind),
}
UNION = pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())])
RUNS = pa.run_end_encoded(pa.int32(), pa.int64())

JOIN = """
[inputs.right]
path = "right.arrow"
key = ["k"]
[reduce]
join = "{kind}"
left = "left"
right = "right"
"""
REDUCES = {
    "repartition": "",
    "range": '[shuffle]\npartitions = 3\npartitioner = "range"',
    "sort": '[reduce]\nsort_by = ["k"]',
    "top-k": '[reduce]\nsort_by = ["k"]\nlimit = 10',
    "keep": '[reduce]\nkeep = "first"\norder_by = ["k"]',
    "inner": JOIN.format(kind="inner"),
    "full": JOIN.format(kind="full"),
    "sql": '[reduce]\nsql = "select * from left"',
}
JOB = """
[job]
name = "types"
[inputs.left]
path = "left/{files}.arrow"
key = ["k"]
{reduce}
[output]
table = "out"
format = "arrow"
[cluster]
workers = 1
"""


def kinds() -> Iterator[tuple[str, pa.DataType]]:
    """Every leaf by itself, in each nesting, and in each pair of nestings."""
    for leaf, kind in LEAVES.items():
        yield leaf, kind
        for outer, nest in NESTINGS.items():
            yield f"{outer}_{leaf}", nest(kind)
            for inner, nest_within in NESTINGS.items():
                if outer == "large_list" and leaf == "null":
                    continue  # refused: see below
                yield f"{outer}_{inner}_{leaf}", nest(nest_within(kind))


def write(path: Path, schema: pa.Schema, keys: list[int]) -> None:
    """Rows with these keys, and null for all else."""
    path.parent.mkdir(exist_ok=True)
    columns = [pa.array(keys, pa.int64())]
    columns += [pa.nulls(len(keys), field.type) for field in list(schema)[1:]]
    with pa.ipc.new_file(path, schema) as out:
        out.write_batch(pa.record_batch(columns, schema=schema))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An input with all types, of a file with rows and one without, and one to join it with."""
    folder = tmp_path_factory.mktemp("types")
    schema = pa.schema([("k", pa.int64()), *kinds()])
    write(folder / "left" / "rows.arrow", schema, [3, 1, 2, 1])
    write(folder / "left" / "none.arrow", schema, [])
    write(folder / "right.arrow", pa.schema([("k", pa.int64()), ("z", pa.string())]), [1, 5])
    return folder


@pytest.mark.slow_but("repartition-a file with rows and one without")
@pytest.mark.parametrize(
    "files",
    ["*", pytest.param("none", marks=pytest.mark.slow)],
    ids=["a file with rows and one without", "no rows"],
)
@pytest.mark.parametrize(
    "reduce",
    [
        each
        if each in ("repartition", "full", "sql")
        else pytest.param(each, marks=pytest.mark.slow)
        for each in REDUCES
    ],
)
def test_every_type_goes_through(folder: Path, tmp_path: Path, reduce: str, files: str) -> None:
    text = JOB.format(files=files, reduce=REDUCES[reduce])
    table = tmp_path / "out"
    done = drive(write_job(folder, text), "--set", f"output.table={table}")
    assert done.code == 0, done.stderr
    left = [] if files == "none" else [1, 1, 2, 3]
    keys = {
        "inner": [key for key in left if key == 1],
        "full": sorted([*left, 5, *([] if left else [1])]),
        "keep": sorted(set(left)),
    }.get(reduce, left)
    parts = [pa.ipc.open_file(path).read_all() for path in sorted(table.glob("*.arrow"))]
    assert sorted(key for part in parts for key in part["k"].to_pylist()) == keys
    for part in parts:
        for name, kind in kinds():
            assert canonical_type(part.schema.field(name).type) == canonical_type(kind)


def why_refused(schema: pa.Schema, aggregates: tuple[Aggregate, ...]) -> str | None:
    try:
        check_aggregates(schema, ("k",), aggregates)
    except JobFileError as error:
        return str(error)
    return None


TAKEN = {
    "sum": 10,
    "mean": 10,
    "min": 22,
    "max": 22,
    "count_distinct": 23,
    "first": 27,
    "last": 27,
    **dict.fromkeys(VARIANCES, 9),
    **dict.fromkeys((*QUANTILES, *APPROXIMATIONS), 15),
    "bool_and": 1,
    "bool_or": 1,
}
"""The number of `LEAVES` that an aggregate takes. Only count takes nested types."""


def test_rows_are_grouped_by_a_type_or_it_is_refused_by_name() -> None:
    taken = 0
    for name, kind in kinds():
        schema = pa.schema([("k", pa.int64()), (name, canonical_type(kind))])
        column = pa.nulls(3, schema.field(name).type)
        rows = pa.table([pa.array([1, 2, 1]), column], schema=schema)
        if not has_canonical_bytes(schema.field(name).type):
            with pytest.raises(KeyTypeError, match=f"column {name!r} is "):
                check_distinct(schema)
            continue
        check_distinct(schema)
        taken += 1
        assert group(rows, ["k", name], ()).schema == schema
        assert sorted(group(rows, ["k", name], ())["k"].to_pylist()) == [1, 2]
        assert group(rows.slice(0, 0), ["k", name], ()).num_rows == 0
    assert taken == 26  # of `LEAVES`: no interval


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_aggregate_takes_a_type_or_refuses_it_by_name(function: str) -> None:
    taken = 0
    for name, kind in kinds():
        schema = pa.schema([("k", pa.int64()), (name, canonical_type(kind))])
        rows = pa.table([pa.array([1, 2, 1]), pa.nulls(3, schema.field(name).type)], schema=schema)
        aggregates = (Aggregate("r", function, name),)  # type: ignore[arg-type]
        if refusal := why_refused(schema, aggregates):
            assert f"{function} of {name!r}, which is {schema.field(name).type}" in refusal
            continue
        taken += 1
        for table, groups in ((rows, [1, 2]), (rows.slice(0, 0), [])):
            assert sorted(group(table, ["k"], aggregates)["k"].to_pylist()) == groups
    assert taken == TAKEN.get(function, len(list(kinds())))


@pytest.mark.slow_but("top-k", "sort")
@pytest.mark.parametrize("reduce", REDUCES)
def test_dictionaries_of_views_are_decoded(tmp_path: Path, reduce: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("word", VIEWS)])
    words = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0], pa.int8()), pa.array(["a", "b"], pa.string_view())
    )
    (tmp_path / "left").mkdir()
    with pa.ipc.new_file(tmp_path / "left" / "rows.arrow", schema) as out:
        out.write_batch(pa.record_batch([pa.array([1, 2, 3, 4]), words], schema=schema))
    write(tmp_path / "right.arrow", pa.schema([("k", pa.int64())]), [1, 2, 3, 4])
    done = drive(write_job(tmp_path, JOB.format(files="*", reduce=REDUCES[reduce])))
    assert done.code == 0, done.stderr
    parts = [pa.ipc.open_file(path).read_all() for path in (tmp_path / "out").glob("*.arrow")]
    rows = {row["k"]: row["word"] for part in parts for row in part.to_pylist()}
    assert rows == {1: "a", 2: "b", 3: None, 4: "a"}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (pa.struct([("x", UNION)]), "unions within other types"),
        (pa.list_(pa.struct([("x", UNION)])), "unions within other types"),
        (pa.map_(pa.string(), UNION), "unions within other types"),
        (pa.list_(RUNS), "run-end-encoded values within other types"),
        (pa.struct([("x", pa.large_list(RUNS))]), "run-end-encoded values within other types"),
        (pa.list_(VIEWS), "dictionaries of views within other types"),
        (pa.opaque(pa.string_view(), "x", "y"), "extension types over views"),
        (pa.list_(pa.opaque(pa.binary_view(), "x", "y")), "extension types over views"),
        (pa.large_list(pa.list_(pa.null())), "large lists with the type null within their items"),
    ],
    ids=str,
)
def test_what_arrow_cannot_take_is_refused_before_anything_runs(
    tmp_path: Path, kind: pa.DataType, what: str
) -> None:
    schema = pa.schema([("k", pa.int64()), ("odd", kind)])
    path = tmp_path / "left" / "rows.arrow"
    path.parent.mkdir()
    with pa.ipc.new_file(path, schema):
        pass
    job = write_job(tmp_path, JOB.format(files="*", reduce=""))
    done = drive(job)
    assert done.code == 2, done.stderr
    assert done.message.startswith(f"inputs.left: column 'odd' is {kind}, and {what} cannot be ")
    assert not (tmp_path / "out").exists()
    without = drive(job, "--set", 'inputs.left.columns=["k"]')
    assert without.code == 0, without.stderr


@pytest.mark.parametrize(
    ("kind", "format", "advice"),
    [
        (pa.list_view(pa.int8()), "arrow", "list views are not written; make it a list in the map"),
        (pa.list_(pa.large_list_view(pa.int8())), "delta", "list views are not written"),
        (
            pa.duration("s"),
            "delta",
            "Delta has no such type; cast it to int64 or string in the map",
        ),
        (pa.month_day_nano_interval(), "parquet", "month_day_nano_interval"),
        (pa.struct([("x", pa.int8())]), "csv", "csv"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 2])
def test_what_the_output_cannot_hold_is_refused_before_anything_runs(
    tmp_path: Path, kind: pa.DataType, format: str, advice: str, rows: int
) -> None:
    write(
        tmp_path / "left" / "rows.arrow", pa.schema([("k", pa.int64()), ("odd", kind)]), [1] * rows
    )
    job = write_job(tmp_path, JOB.format(files="*", reduce=""))
    done = drive(job, "--set", f"output.format={format}")
    assert (done.code, done.result["attempts"]["map"]) == (2, 0), done.stderr
    assert "column 'odd'" in done.message
    assert advice in done.message
    assert not (tmp_path / "out").exists()
