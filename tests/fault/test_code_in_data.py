"""No data brings code with it: Arrow's extension types once ran what they held (CVE-2023-47248)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mrflight.servers import data, metadata
from msgspec import inspect
from pyarrow import flight

import mrflight
from mrflight.config.functions import FunctionRef
from mrflight.config.identity import ClientOptions, ClusterAccess, Endpoint, Identity
from mrflight.errors import JobFileError
from mrflight.events.kinds import AnyEvent
from mrflight.shuffle.log.frame import SegmentStart
from mrflight.shuffle.metadata.events import AnyEvent as JournaledEvent
from mrflight.shuffle.wire.protocol import Message
from mrflight.sinks.bad_row_marks import MarkContent
from mrflight.sinks.iceberg.history import Offsets, RunRecord
from mrflight.sources.fresh_token import FreshToken
from mrflight.storage.manifest import Manifest
from mrflight.storage.tail_file import TailFile
from mrflight.tasks.task_memory import TaskMemory
from tests.support.clusters.cluster import standing_cluster
from tests.support.suite.messages import refused

SERVERS = (data, metadata)
"""They load all messages."""
DECODED = (
    *(TailFile, Manifest, MarkContent, SegmentStart, FreshToken, RunRecord, Offsets),
    *(*get_args(AnyEvent), *get_args(JournaledEvent)),
    *Message.__subclasses__(),
)
"""What is decoded from a table's folder, a log, a manifest, a catalog or the network."""


def structs_in(kind: Any) -> Iterator[Any]:
    """Yield the structs that a decoded value may have at any depth; fail for what is no data."""
    found = kind if isinstance(kind, inspect.Type) else inspect.type_info(kind)
    assert not isinstance(found, inspect.CustomType | inspect.AnyType), found
    if isinstance(found, inspect.StructType):
        yield found.cls
    for each in msgspec.structs.asdict(found).values():
        for inner in each if isinstance(each, tuple) else (each,):
            inner = inner.type if isinstance(inner, inspect.Field) else inner
            if isinstance(inner, inspect.Type):
                yield from structs_in(inner)


def test_what_is_decoded_refers_to_no_secret_and_no_code() -> None:
    references = {Identity, ClientOptions, ClusterAccess, Endpoint, FunctionRef}
    assert {kind for each in DECODED for kind in structs_in(each)} & references == set()


class Bomb:
    """What it is made of, when it is unpickled, is a call."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, (f"touch {self._mark}",)


def armed_schema(mark: Path) -> pa.Schema:
    """Return a schema whose column says that it is of a pickled type."""
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Bomb(mark)),
    }
    return pa.schema([pa.field("k", pa.int64(), metadata=metadata)])


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a bomb leaves; here one is set off, to see that it does."""
    path = tmp_path / "mark"
    pickle.loads(pickle.dumps(Bomb(path)))
    assert path.exists()
    path.unlink()
    return path


class Code:
    """A function whose code does something as soon as it is unpickled."""

    def __init__(self, bomb: Bomb) -> None:
        self._bomb = bomb

    def __call__(self, values: pa.Array) -> pa.Array:
        return values


@pytest.mark.slow
def test_a_plan_of_a_query_brings_no_code(mark: Path, tmp_path: Path) -> None:
    """DataFusion would unpickle the functions in a plan, whoever has made it."""
    datafusion = pytest.importorskip("datafusion")
    from mrflight.compute.sql.physical.probe import PlanProbe
    from mrflight.compute.sql.physical.session import PlanSession
    from mrflight.tasks.fragment import Fragment

    ours = datafusion.SessionContext()
    ours.register_udf(
        datafusion.udf(Code(Bomb(mark)), [pa.int64()], pa.int64(), "volatile", "armed")
    )
    plan = ours.sql("select armed(1) as c0").execution_plan().to_bytes(ours)
    datafusion.ExecutionPlan.from_bytes(datafusion.SessionContext(), plan)
    assert mark.exists()
    mark.unlink()

    session = PlanSession({})
    with pytest.raises(Exception, match="inlining is disabled"):
        PlanProbe(session.open(), tmp_path).schema(plan)
    fragment = Fragment(plan, (), (), (), pa.schema([("c0", pa.int64())]), session)
    with refused(JobFileError):
        list(fragment.run({}, TaskMemory(2**28, tmp_path)))
    assert not mark.exists()


def test_a_put_runs_nothing_on_servers_and_readers(mark: Path) -> None:
    schema = armed_schema(mark)
    batch = pa.RecordBatch.from_arrays([pa.array(range(10))], schema=schema)
    with standing_cluster(1) as standing, mrflight.connect(standing.metadata) as cluster:
        shuffle = cluster.create_shuffle("armed", 1)
        ((location,),) = shuffle.placement()
        with flight.FlightClient(location) as client:
            descriptor = flight.FlightDescriptor.for_path("armed", "0", "0", "0")
            writer, reader = client.do_put(descriptor, schema)
            writer.write_batch(batch)
            writer.done_writing()
            assert reader.read() is not None
            writer.close()
        with shuffle.writer(1, key=["k"]) as out:
            out.write(batch)
        rows = [each for each in shuffle.reader(0) if each.num_rows]
        assert sum(each.num_rows for each in rows) == 10
        shuffle.drop()
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_an_input_runs_nothing(mark: Path, tmp_path: Path, kind: str) -> None:
    table = pa.Table.from_arrays([pa.array(range(10))], schema=armed_schema(mark))
    if kind == "parquet":
        pq.write_table(table, tmp_path / "in.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as file:
            file.write_table(table)
    done = mrflight.read(str(tmp_path / f"in.{kind}")).write_parquet(str(tmp_path / "out"))
    assert done.rows_out == 10
    assert not mark.exists()
