"""Encoded columns in whole jobs with real servers."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import flight

import mrflight
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.stage_reader import StageReader, make_split
from mrflight.tasks.stage_rows import StagePartition, StageRows, StageSide
from mrflight.tasks.task_memory import TaskMemory
from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import nothing_left_over

pytestmark = pytest.mark.runs_on_ray

ROWS = 20_000
MODES = ["AIR", "RAIL", "SHIP", None]
JOB = """
[job]
name = "narrow"
[inputs.lines]
path = "lines/*.parquet"
key = ["k"]
{input}
[shuffle]
partitions = 3
compression = "none"
[output]
{output}
[cluster]
workers = 2
"""


def lines(first: int) -> pa.Table:
    chance = random.Random(first)
    return pa.table(
        {
            "k": range(first, first + ROWS),
            "mode": pa.array(chance.choices(MODES, k=ROWS), pa.string()),
            "price": pa.array(
                [Decimal(chance.randrange(-(10**14), 10**14)).scaleb(-2) for _ in range(ROWS)],
                pa.decimal128(15, 2),
            ),
            "comment": [f"comment {chance.randrange(10**9)}" for _ in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two files; the second has too many modes for a dictionary, and none."""
    folder = tmp_path_factory.mktemp("narrow")
    (folder / "lines").mkdir()
    pq.write_table(lines(0), folder / "lines" / "a.parquet", row_group_size=7_000)
    second = lines(ROWS)
    modes = pa.array([f"mode {n % 300}" for n in range(ROWS)])
    second = second.set_column(1, "mode", modes)
    pq.write_table(second, folder / "lines" / "b.parquet", use_dictionary=False)
    return folder


def as_duckdb_reads(files: list[str] | str) -> list[tuple[object, ...]]:
    query = "select k, mode, price, comment from read_parquet(?) order by k"
    return duckdb.execute(query, [files]).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(
    "output",
    [
        pytest.param('table = "out"', marks=pytest.mark.slow),
        'table = "out"\npartition_by = ["part"]',
        pytest.param('table = "out"\nformat = "parquet"', marks=pytest.mark.slow),
    ],
    ids=["delta", "partitioned", "folder"],
)
def test_a_job_writes_what_it_read(folder: Path, tmp_path: Path, output: str) -> None:
    spec = JOB.format(input="", output=output.replace('"out"', f'"{tmp_path}/out"'))
    if "part" in output and "partition_by" in output:
        spec = spec.replace('"part"', '"mode"')
    job = write_job(folder, spec)
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(job, environment=environment)
    assert done.code == 0, done.stderr
    expected = as_duckdb_reads(f"{folder}/lines/*.parquet")
    if "format" in output:
        assert as_duckdb_reads(f"{tmp_path}/out/*.parquet") == expected
        return
    table = DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by("k")
    assert table.schema.field("mode").type == pa.string()
    found = table.select(["k", "mode", "price", "comment"]).to_pylist()
    assert [tuple(row.values()) for row in found] == expected


def test_csv_files_get_decoded_values(folder: Path, tmp_path: Path) -> None:
    output = f'table = "{tmp_path}/out"\nformat = "csv"'
    done = drive(write_job(folder, JOB.format(input="", output=output)))
    assert done.code == 0, done.stderr
    query = "select k, mode, price, comment from read_csv(?, all_varchar=true) order by k::int"
    found = duckdb.execute(query, [f"{tmp_path}/out/*.csv"]).fetchall()
    told = [
        tuple(None if value is None else str(value) for value in row)
        for row in as_duckdb_reads(f"{folder}/lines/*.parquet")
    ]
    assert found == told


def test_encoded_columns_take_fewer_bytes_than_strings_of_a_map(
    folder: Path, tmp_path: Path
) -> None:
    """An encoded row takes a byte, and a mapped one the 4 bytes of an offset and the string.

    Blocks are cut elsewhere then, so it is not that to the byte.
    """
    found = {}
    for name, section in [("as read", ""), ("mapped", 'map = "same:same"')]:
        (folder / "same.py").write_text(
            "import pyarrow as pa\n\ndef same(batch):\n"
            "    assert batch.schema.field('mode').type == pa.string()\n    return batch\n"
        )
        output = f'table = "{tmp_path}/{name}"'
        done = drive(write_job(folder, JOB.format(input=section, output=output)))
        assert done.code == 0, done.stderr
        found[name] = done.result["bytes_shuffled"]
    characters = sum(len(mode or "") for mode in lines(0)["mode"].to_pylist())
    saved = 3 * ROWS + characters
    assert saved * 0.9 < found["mapped"] - found["as read"] < saved * 1.2


def test_a_users_partitioner_is_given_strings(folder: Path, tmp_path: Path) -> None:
    (folder / "placing.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\n\ndef place(batch, key, partitions):\n"
        "    return pc.fill_null(pc.starts_with(batch['mode'], 'A'), False).cast(pa.int32())\n"
    )
    output = f'table = "{tmp_path}/out"'
    spec = JOB.format(input="", output=output)
    spec = spec.replace("[shuffle]", '[shuffle]\npartitioner = "placing:place"')
    done = drive(write_job(folder, spec))
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == 2 * ROWS


def test_a_functions_dictionaries_may_have_indices_too_small_for_all(
    folder: Path, tmp_path: Path
) -> None:
    """pandas makes them so: a byte is enough for the values of each batch, but not for all."""
    (folder / "texts.py").write_text(
        "import pyarrow as pa\n\nBYTE = pa.dictionary(pa.int8(), pa.string())\n\n"
        "def texts(table):\n"
        "    rows = range(100)\n"
        "    made = [pa.array([f'{part} {n}' for n in rows]).cast(BYTE) for part in range(3)]\n"
        "    return pa.table({'text': pa.chunked_array(made)})\n"
    )
    output = f'table = "{tmp_path}/out"\n[reduce]\nfunction = "texts:texts"'
    done = drive(write_job(folder, JOB.format(input="", output=output)))
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out").to_pyarrow_table()
    assert table.schema.field("text").type == pa.string()
    assert len(table["text"].unique()) == 300


def test_statistics_of_a_file_cover_only_its_own_rows(folder: Path, tmp_path: Path) -> None:
    """A block's dictionary has values that its rows, or those of its file, do not have."""
    sorted_by_mode = 'table = "out"'.replace("out", str(tmp_path / "out"))
    spec = JOB.format(input="", output=sorted_by_mode).replace('key = ["k"]', 'key = ["mode"]')
    job = write_job(folder, spec.replace("lines/*", "lines/a"))
    done = drive(job)
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out")
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for action in actions:
        column = pq.read_table(tmp_path / "out" / action["path"])["mode"]
        values = [mode for mode in column.to_pylist() if mode is not None]
        assert action["null_count.mode"] == column.null_count
        assert (action["min.mode"], action["max.mode"]) == (
            min(values, default=None),
            max(values, default=None),
        )
    assert sum(action["num_records"] for action in actions) == ROWS


def test_a_few_strings_beside_long_ones_have_bounds(tmp_path: Path) -> None:
    """They are in one row group; the footer has no bounds of strings above 4 KiB."""
    (tmp_path / "lines").mkdir()
    long = [f"{n:03}" + "x" * 5000 for n in range(300)]
    for name, text in [("a", ["a", "b"] * 2500), ("b", long)]:
        table = pa.table({"k": range(len(text)), "mode": text})
        pq.write_table(table, tmp_path / "lines" / f"{name}.parquet", use_dictionary=name == "a")
    done = drive(write_job(tmp_path, JOB.format(input="", output='table = "out"')))
    assert done.code == 0, done.stderr
    actions = pa.table(DeltaTable(tmp_path / "out").get_add_actions(flatten=True)).to_pylist()
    assert min(action["min.mode"] for action in actions) == "000" + "x" * 29
    assert {action["max.mode"] for action in actions} == {"b"}
    assert {action["null_count.mode"] for action in actions} == {0}


def test_a_client_of_small_messages_reads_encoded_columns(cluster: mrflight.Cluster) -> None:
    """gRPC takes 4 MiB by default, and a block of 1 MiB has 16 MiB once it is decoded."""
    rows = pa.record_batch({"price": pa.array([Decimal(7)] * 2**20, pa.decimal128(15, 2))})
    shuffle = cluster.create_shuffle("small", partitions=1)
    with shuffle.writer(0, key=["price"]) as out:
        out.write(rows)
    with flight.FlightClient(cluster.location) as metadata:
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("small"))
    (endpoint,) = info.endpoints
    with flight.FlightClient(endpoint.locations[0]) as data:
        batches = [message.data for message in data.do_get(endpoint.ticket)]
    assert max(batch.nbytes for batch in batches) < 3 * 2**20
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([rows])
    shuffle.drop()


@pytest.mark.parametrize(
    ("reduce_spec", "type_"),
    [
        (ReduceSpec(), pa.dictionary(pa.int32(), pa.string())),
        (ReduceSpec(limit=1), pa.string()),
    ],
    ids=["passed on", "reduced"],
)
def test_rows_that_are_only_passed_on_keep_their_dictionaries(
    cluster: mrflight.Cluster, tmp_path: Path, reduce_spec: ReduceSpec, type_: pa.DataType
) -> None:
    """Sinks take them as they are; operators, users and the next stage's maps get strings."""
    rows = pa.record_batch({"text": pa.array(["a", "b"] * 500).dictionary_encode()})
    shuffle = cluster.create_shuffle("dictionaries", partitions=1)
    with shuffle.writer(0, key=["text"]) as out:
        out.write(rows)
    schema, (info,) = shuffle.layout()
    side = StageSide("rows", shuffle, schema)
    stage = StageRows((side,), None, reduce_spec, TaskMemory(2**20, tmp_path))
    partition = StagePartition(0, (info,))
    ((_, batches),) = ((schema, list(batches)) for schema, batches in stage.read([partition]))
    assert {batch.schema.field("text").type for batch in batches} == {type_}
    split = make_split("stage", [partition])
    for read in (shuffle.reader(0), StageReader(stage, schema).read(split)):
        assert {batch.schema.field("text").type for batch in read} == {pa.string()}
    shuffle.drop()


def test_a_writer_whose_later_rows_do_not_fit(cluster: mrflight.Cluster) -> None:
    few = pa.array([["a", "b", None][n % 3] for n in range(5000)])
    many = pa.array([f"{n % 300}" for n in range(5000)])
    shuffle = cluster.create_shuffle("narrow", partitions=2)
    columns = [few.dictionary_encode(), few, many.dictionary_encode(), few.dictionary_encode()]
    with shuffle.writer(0, key=["k"]) as out:
        for number, column in enumerate(columns):
            keys = range(number * 5000, number * 5000 + 5000)
            out.write(pa.record_batch({"k": keys, "text": column}))
    expected = [value for each in (few, few, many, few) for value in each.to_pylist()]
    read = pa.Table.from_batches([b for p in range(2) for b in shuffle.reader(p)]).sort_by("k")
    assert read["text"].to_pylist() == expected
    with flight.FlightClient(cluster.location) as metadata:
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("narrow"))
    tables = []
    for endpoint in info.endpoints:
        with flight.FlightClient(endpoint.locations[0]) as data:
            tables.append(data.do_get(endpoint.ticket).read_all())
    plain = pa.concat_tables(tables).sort_by("k")
    assert plain.schema == pa.schema([("k", pa.int64()), ("text", pa.string())])
    assert plain["text"].to_pylist() == expected
    shuffle.drop()


STAGES = """
[job]
name = "wide again"
[stages.all.inputs.rows]
path = "numbers.parquet"
key = ["k"]
[inputs.all]
stage = "all"
key = ["k"]
[shuffle]
compression = "none"
[cluster]
workers = 2
memory = "512 MiB"
[output]
table = "out"
format = "parquet"
"""


@pytest.mark.runs_on_ray(False, "is about the memory of local processes; those of Ray weigh more")
def test_a_later_stage_has_partitions_for_rows_as_wide_as_they_are_in_memory(
    tmp_path: Path,
) -> None:
    """Rows take 8 bytes on the wire and 65 in memory: 26 MB, of which a reducer holds some 8."""
    rows = 400_000
    numbers = pa.table({name: [n % 100 for n in range(rows)] for name in "kabcdefg"})
    pq.write_table(numbers, tmp_path / "numbers.parquet")
    result = mrflight.run(write_job(tmp_path, STAGES))
    assert result.rows_out == rows
    assert result.bytes_shuffled < 7_000_000  # both stages together
    assert result.partitions == 4
