"""The assumptions about DataFusion's plans: see `mrflight.compute.sql.physical.plan_fields`.

If a test fails with a new version of DataFusion, look into its ``datafusion.proto``.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.compute.sql.engine import new_session
from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.hash_keys import column_of, hash_keys, with_computed
from mrflight.compute.sql.physical.matched_keys import exchanges_by, is_having, join_keys
from mrflight.compute.sql.physical.mends import mended_series
from mrflight.compute.sql.physical.nodes import Node, expected_rows
from mrflight.compute.sql.physical.ordering import (
    OrderKey,
    last_merge,
    leading_columns,
    unsorted,
)
from mrflight.compute.sql.physical.probe import PlanProbe, positional, with_views
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    only_field,
    replaced,
    values_of,
    with_children,
    with_values,
)
from mrflight.compute.sql.physical.scan_bounds import scanned_column, with_bounds
from mrflight.compute.sql.physical.scans import (
    files_of,
    groups_of,
    named,
    narrowed,
    of_arrow,
    reading,
    with_groups,
    without_statistics,
)
from mrflight.compute.sql.physical.windows import as_sorted, is_sorted_for, sorted_for
from mrflight.compute.sql.statements import split_statements
from mrflight.compute.value_ranges import ScanBounds
from mrflight.planner import sql_plan
from mrflight.planner.stand_ins import StandIn
from tests.support.commands.experiments import TPCH, generate_tpch

if TYPE_CHECKING:
    from datafusion import SessionContext

QUERIES = sorted((TPCH / "queries").glob("q*.sql"))
OPTIONS = {
    **sql_plan._PLANNING,
    "datafusion.optimizer.repartition_file_min_size": "1",
}


ROWS = 10_000
"""More than a batch: fewer rows would stay in one partition."""


@pytest.fixture(scope="module", autouse=True)
def _known_version() -> None:
    pytest.importorskip("datafusion")
    found = version("datafusion")
    assert found.startswith("55."), (
        f"DataFusion {found}: check every field of plan_fields, and then name the version here"
    )


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> SessionContext:
    """A session with the tables of TPC-H, of some rows each."""
    folder = tmp_path_factory.mktemp("tpch")
    generate_tpch(0.001, folder)
    session = new_session(OPTIONS, partitions=3)
    for path in folder.glob("*.parquet"):
        session.register_parquet(path.stem, str(path))
    return session


@pytest.fixture
def session() -> SessionContext:
    return new_session(OPTIONS, partitions=3)


@pytest.fixture
def numbers(tmp_path: Path, session: SessionContext) -> Path:
    """A Parquet file in row groups, which is the table ``numbers``."""
    path = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"n": range(ROWS), "s": ["ab"] * ROWS}), path, row_group_size=1_000)
    session.register_parquet("numbers", str(path))
    return path


def _node(session: SessionContext, text: str) -> Node:
    return Node(session.sql(text).execution_plan(), session, iter(()))


def _decoded(session: SessionContext, plan: bytes) -> Node:
    from datafusion import ExecutionPlan

    return Node(ExecutionPlan.from_bytes(session, plan), session, iter(()))


def _rows(session: SessionContext, plan: bytes) -> pa.Table:
    from datafusion import ExecutionPlan

    node = ExecutionPlan.from_bytes(session, plan)
    parts = range(node.partition_count)
    batches = [each.to_pyarrow() for part in parts for each in session.execute(node, part)]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("path", QUERIES, ids=[path.stem for path in QUERIES])
def test_a_node_holds_the_bytes_of_its_children_in_order(tpch: SessionContext, path: Path) -> None:
    """So they can be replaced; and a decoded plan is the same plan."""
    *views, text = split_statements(path.read_text())
    for view in views:
        tpch.sql(view)
    root = _node(tpch, text)
    kept = ("FilterExec", "DataSourceExec")  # whose texts say what was pruned at planning
    for node in root.walk():
        children = [child.encoded for child in node.children]
        if children:
            assert with_children(node.encoded, children, children) == node.encoded, node.text
    for node, again in zip(root.walk(), _decoded(tpch, root.encoded).walk(), strict=True):
        assert (node.kind, node.partitions) == (again.kind, again.partitions)
        assert node.kind in kept or node.text == again.text


def test_equal_children_are_replaced_by_their_places(
    session: SessionContext, numbers: Path
) -> None:
    root = _node(session, "select n from numbers union all select n from numbers")
    union = next(node for node in root.walk() if node.kind == "UnionExec")
    one, two = union.children
    assert one.encoded == two.encoded
    kept = with_children(
        union.encoded, [one.encoded, two.encoded], [one.encoded, narrowed(two.encoded, 0)]
    )
    counts = [_rows(session, each).num_rows for each in (union.encoded, one.encoded, kept)]
    assert counts[0] == 2 * ROWS
    assert counts[1] == ROWS
    assert ROWS < counts[2] < 2 * ROWS


def test_each_row_of_a_scan_is_in_one_group(session: SessionContext, numbers: Path) -> None:
    scan = _node(session, "select n from numbers")
    assert scan.is_scan
    assert scan.partitions == 3
    assert set(files_of(scan.encoded)) == {str(numbers)} == {scan.scanned_file}
    parts = [_rows(session, narrowed(scan.encoded, group)) for group in range(3)]
    assert all(part.num_rows for part in parts)
    assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(ROWS))
    assert _decoded(session, narrowed(scan.encoded, 1)).partitions == 1
    assert not list(session.execute(_plan(session, narrowed(scan.encoded, 99)), 0))


def _plan(session: SessionContext, encoded: bytes) -> object:
    from datafusion import ExecutionPlan

    return ExecutionPlan.from_bytes(session, encoded)


def test_statistics_of_files_are_left_out(session: SessionContext, numbers: Path) -> None:
    scan = _node(session, "select * from numbers where n >= 9995").encoded
    (found,) = (
        node.encoded for node in _decoded(session, scan).walk() if node.kind == "DataSourceExec"
    )
    light = with_groups(found, [without_statistics(group) for group in groups_of(found)])
    assert len(light) < len(found)
    plan = replaced(scan, found, light)
    assert _rows(session, plan)["n"].to_pylist() == list(range(9995, ROWS))


def test_the_fields_of_a_scan(session: SessionContext, numbers: Path) -> None:
    _, node = only_field(_node(session, "select n as m from numbers").encoded)
    (config,) = values_of(node, of.SCAN_CONFIG)
    groups = values_of(config, of.FILE_GROUPS)
    files = [file for group in groups for file in values_of(group, of.FILES)]
    assert len(groups) == 3
    assert {values_of(file, of.FILE_PATH)[0] for file in files} == {str(numbers)[1:].encode()}
    assert all(values_of(file, of.FILE_RANGE) for file in files)
    (projection,) = values_of(config, of.PROJECTION)
    (column,) = values_of(projection, of.PROJECTED)
    assert values_of(column, of.ALIAS) == [b"m"]


KINDS = pa.schema(
    [
        ("same", pa.int64()),
        ("same", pa.string()),
        ("view", pa.string_view()),
        ("bytes", pa.binary_view()),
        ("decimal", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.string())]))),
        ("struct", pa.struct([("a", pa.decimal128(5, 1)), ("b", pa.list_(pa.int32()))])),
        ("none", pa.null()),
        ("flag", pa.bool_()),
    ]
)


@pytest.fixture
def probe(tmp_path: Path, session: SessionContext) -> PlanProbe:
    (tmp_path / "probe").mkdir()
    return PlanProbe(session, tmp_path / "probe")


@pytest.mark.parametrize("schema", [KINDS, KINDS.empty_table().select([]).schema])
def test_a_scan_of_a_schema_takes_the_place_of_a_part(
    tmp_path: Path, session: SessionContext, probe: PlanProbe, schema: pa.Schema
) -> None:
    """Also with columns of equal names, and without columns."""
    scan = probe.scan(schema, "/rows")
    empty = probe.empty_scan(scan)
    assert _types(probe.schema(empty)) == _types(schema)
    path = tmp_path / "rows.arrow"
    in_file = positional(schema)
    rows = [dict.fromkeys(in_file.names)] * 7
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, in_file) as out:
        out.write_batch(pa.RecordBatch.from_pylist(rows, in_file))
    read = reading(scan, str(path), path.stat().st_size)
    (batch,) = (each.to_pyarrow() for each in session.execute(_plan(session, read), 0))
    assert (batch.num_rows, _types(batch.schema)) == (7, _types(schema))


def _types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def test_the_schema_of_a_part_is_found_without_rows(
    session: SessionContext, numbers: Path, probe: PlanProbe
) -> None:
    root = _node(session, "select s, s as t, sum(n) as total, avg(n) from numbers group by s")
    (scan,) = (node.encoded for node in root.walk() if node.is_scan)
    found = probe.schema(replaced(root.encoded, scan, narrowed(scan, 99)))
    assert found.names == ["s", "t", "total", "avg(numbers.n)"]
    assert found.types == [pa.string_view(), pa.string_view(), pa.int64(), pa.float64()]


def test_a_stand_in_has_columns_and_rows_without_having_them(
    tmp_path: Path, session: SessionContext, probe: PlanProbe
) -> None:
    kinds = pa.schema([*list(KINDS)[1:], ("second", pa.timestamp("s"))])
    stand_in = StandIn("t", tmp_path / "t", 3, rows=7_000_000)
    files = stand_in.register(session, kinds)
    plan = session.sql("select * from t").execution_plan()
    assert plan.partition_count == len(files) == 3
    explained = session.sql("explain select * from t").to_pydict()["plan"][-1]
    (rows,) = expected_rows(explained)
    assert rows == 3 * 2**20  # no file has more
    scan = of_arrow(Node(plan, session, iter(())).encoded)
    read = probe.schema(probe.empty_scan(scan))
    assert _types(read) == _types(with_views(kinds))


def test_the_schema_of_a_part_with_many_rows(session: SessionContext, probe: PlanProbe) -> None:
    root = _node(session, "select value v from generate_series(1, 30000)")
    assert probe.schema(root.encoded).names == ["v"]


_TIMES = "arrow_cast('2026-01-0{}', 'Timestamp(Nanosecond, {})')"


@pytest.mark.parametrize(
    ("series", "rows"),
    [
        ("range(20000)", 20_000),
        ("generate_series(1, 3)", 3),
        ("range(date '2026-01-01', date '2026-01-04', interval '1 day')", 3),
        *(
            (f"range({_TIMES.format(1, zone)}, {_TIMES.format(5, zone)}, interval '1 day')", 4)
            for zone in ("None", 'Some("UTC")')
        ),
    ],
)
def test_a_series_without_columns_has_rows(session: SessionContext, series: str, rows: int) -> None:
    *_, leaf = _node(session, f"select 1 from {series}").walk()
    mended = mended_series(leaf.encoded)
    found = _rows(session, mended)
    assert (found.num_rows, found.num_columns) == (rows, 0)
    *_, whole = _decoded(session, mended).walk()
    *_, planned = _node(session, f"select * from {series}").walk()
    assert whole.encoded == planned.encoded == mended_series(planned.encoded)


def test_columns_of_a_scan_are_renamed(session: SessionContext, numbers: Path) -> None:
    scan = _node(session, "select * from numbers").encoded
    assert _rows(session, named(scan, ["x", "x"])).schema.names == ["x", "x"]
    assert _rows(session, named(scan, [])).num_rows == ROWS


def test_texts_of_parquet_files_are_views(session: SessionContext, numbers: Path) -> None:
    found = pa.schema(session.table("numbers").schema())
    assert found.field("s").type == pa.string_view()
    assert with_views(pa.schema([("s", pa.string())])) == pa.schema([("s", pa.string_view())])


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("select n from numbers order by n", "SortExec", of.SORT_NODE),
        ("select n from numbers order by n", "SortPreservingMergeExec", of.MERGE_NODE),
        ("select count(n + 1) from numbers", "CoalescePartitionsExec", of.COALESCE_NODE),
        ("select n from numbers union all select n from numbers", "UnionExec", of.UNION_NODE),
    ],
)
def test_the_numbers_of_nodes(
    session: SessionContext, numbers: Path, text: str, kind: str, number: int
) -> None:
    found = [node for node in _node(session, text).walk() if node.kind == kind]
    assert [only_field(node.encoded)[0] for node in found] == [number]


def test_a_merge_is_a_sort_of_one_partition(session: SessionContext, numbers: Path) -> None:
    root = _node(session, "select n from numbers order by n % 10, n desc limit 25 offset 2")
    (merge,) = (node for node in root.walk() if node.kind == "SortPreservingMergeExec")
    (child,) = merge.children
    (scan,) = (node.encoded for node in root.walk() if node.is_scan)
    (group,) = {values_of(_config(narrowed(scan, 0)), of.FILE_GROUPS)[0]}
    assert group
    one = with_children(merge.encoded, [child.encoded], [encode_field(*_one_partition(scan))])
    sort = encode_field(of.SORT_NODE, only_field(one)[1])
    assert _decoded(session, sort).kind == "SortExec"
    found = _rows(session, replaced(root.encoded, merge.encoded, sort))["n"].to_pylist()
    assert found == sorted(range(ROWS), key=lambda n: (n % 10, -n))[2:27]


def test_the_leading_columns_of_an_order(session: SessionContext, numbers: Path) -> None:
    root = _node(
        session,
        "select n, s from numbers order by s desc nulls last, n nulls first, n % 3, length(s)",
    )
    merge = last_merge(root)
    assert merge is not None
    assert leading_columns(merge.encoded) == (OrderKey(1, True, False), OrderKey(0, False, True))
    assert unsorted(merge).kind != "SortExec"
    limited = _node(session, "select n from numbers order by n limit 3")
    assert last_merge(limited) is None


def _config(scan: bytes) -> bytes:
    return values_of(only_field(scan)[1], of.SCAN_CONFIG)[0]


def _one_partition(scan: bytes) -> tuple[int, bytes]:
    """Return the number and the value of a scan with all files in one group."""
    kind, node = only_field(scan)
    config = _config(scan)
    groups = values_of(config, of.FILE_GROUPS)
    files = [file for group in groups for file in values_of(group, of.FILES)]
    one = with_values(b"", of.FILES, files)
    config = with_values(config, of.FILE_GROUPS, [one])
    return kind, with_values(node, of.SCAN_CONFIG, [config])


def test_a_union_of_one_partition(session: SessionContext, numbers: Path) -> None:
    """An interleave is decoded from the fields of a union."""
    root = _node(
        session,
        "select n, count(*) c from numbers group by n union all "
        "select n, count(*) c from numbers group by n",
    )
    (union,) = (n for n in root.walk() if n.kind in ("UnionExec", "InterleaveExec"))
    _, inputs = only_field(union.encoded)
    merged = encode_field(of.COALESCE_NODE, encode_field(1, encode_field(of.UNION_NODE, inputs)))
    node = _decoded(session, merged)
    assert (node.kind, node.partitions) == ("CoalescePartitionsExec", 1)
    assert [child.kind for child in node.children] == ["UnionExec"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select count(*), s, n % 3 from numbers group by n % 3, s", [0, 1]),
        ("select count(*) over (partition by n % 3, s) from numbers", [None, 1]),
    ],
)
def test_the_keys_of_a_hash_repartition(
    session: SessionContext, numbers: Path, text: str, columns: list[int | None]
) -> None:
    root = _node(session, text)
    (node,) = (n for n in root.walk() if n.kind == "RepartitionExec" and n.is_hashed)
    assert node.partitions == 3
    assert [column_of(key) for key in hash_keys(node.encoded)] == columns


def test_computed_keys_are_columns_after_those_of_a_plan(
    session: SessionContext, numbers: Path
) -> None:
    root = _node(session, "select count(*) over (partition by n % 3, s) from numbers")
    (node,) = (n for n in root.walk() if n.kind == "RepartitionExec" and n.is_hashed)
    (child,) = node.children
    key, _ = hash_keys(node.encoded)
    found = _rows(session, with_computed(child.encoded, ["n", "s"], [key]))
    assert found["key 0"].to_pylist() == [n % 3 for n in found["n"].to_pylist()]
    assert found.select(["n", "s"]).equals(_rows(session, child.encoded))


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("BoundedWindowAggExec", "sum(s) over (partition by n, g order by n, s desc nulls first)"),
        ("WindowAggExec", "count(*) over (partition by g, n)"),
    ],
)
def test_a_window_is_given_sorted_rows(
    session: SessionContext, numbers: Path, kind: str, call: str
) -> None:
    """As it is where DataFusion knew that they are sorted, and a task does not."""
    text = f"select g, {call} c from (select n % 7 g, n % 3 n, n % 4 s from numbers)"
    root = _node(session, text)
    (window,) = (node for node in root.walk() if node.kind == kind)
    (sort,) = window.children
    assert sort.kind == "SortExec"
    assert is_sorted_for(window.encoded, sort.encoded)
    (below,) = sort.children
    one = encode_field(of.COALESCE_NODE, encode_field(1, below.encoded))  # as in a task
    other = sorted_for(window.encoded, one)
    assert is_sorted_for(window.encoded, other)
    assert _decoded(session, other).kind == "SortExec"
    again = as_sorted(with_children(window.encoded, [sort.encoded], [other]))
    assert _decoded(session, again).kind == kind
    plan = replaced(root.encoded, window.encoded, again)
    found, expected = (_rows(session, each).to_pylist() for each in (plan, root.encoded))
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_a_sort_by_other_columns_does_not_suit_a_window(
    session: SessionContext, numbers: Path
) -> None:
    root = _node(
        session,
        "select count(*) over (partition by n % 7), rank() over (partition by s, n order by n) "
        "from numbers",
    )
    windows = [node for node in root.walk() if node.kind.endswith("WindowAggExec")]
    sorts = [node.children[0] for node in windows if node.children[0].kind == "SortExec"]
    suits = [[is_sorted_for(w.encoded, s.encoded) for s in sorts] for w in windows]
    assert suits == [[True, False], [False, True]]


@pytest.mark.parametrize("condition", ["", " where s = 'ab'"])
def test_a_bounded_scan_leaves_row_groups_out(
    condition: str, session: SessionContext, numbers: Path
) -> None:
    root = _node(session, f"select s, n from numbers{condition}")
    column = scanned_column(root, 1, lambda _: False)
    assert column is not None
    bounds = ScanBounds(0, column.column, pa.scalar(2_500), pa.scalar(3_499))
    bounded = replaced(root.encoded, column.scan, with_bounds(column.scan, bounds, session))
    assert _rows(session, bounded)["n"].to_pylist() == list(range(2_000, 4_000))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int32(), pa.date32()], ids=str)
def test_a_bound_may_be_of_any_type_of_whole_numbers_and_days(
    kind: pa.DataType, session: SessionContext, tmp_path: Path
) -> None:
    low, value, high = pa.array([6, 7, 8], pa.int32()).cast(kind)
    pq.write_table(pa.table({"n": pa.array([value, None], kind)}), tmp_path / "n.parquet")
    session.register_parquet("typed", str(tmp_path / "n.parquet"))
    root = _node(session, "select n from typed")
    column = scanned_column(root, 0, lambda _: False)
    assert column is not None
    for ends, count in (((low, value), 2), ((value, high), 2), ((high, high), 0), ((low, low), 0)):
        scan = with_bounds(column.scan, ScanBounds(0, column.column, *ends), session)
        decoded = _decoded(session, scan)
        assert f"predicate=n@0 >= {ends[0]} AND n@0 <= {ends[1]}" in decoded.text
        parts = [_rows(session, scan)] if count else []
        assert sum(each.num_rows for each in parts) == count


def test_the_keys_of_a_join_are_found_in_its_exchanges(
    session: SessionContext, numbers: Path
) -> None:
    root = _node(
        session,
        "select b.s from (select s, n + 0 as m, n from numbers where n > 5) a "
        "join (select n, max(s) s from numbers group by n having max(s) > 'a') b on a.n = b.n",
    )
    (join,) = (node for node in root.walk() if node.kind == "HashJoinExec")
    keys = join_keys(join)
    assert keys is not None
    found = [
        [each.node.hash_columns for each in exchanges_by(child, columns)]
        for child, columns in zip(join.children, keys, strict=True)
    ]
    assert found == [[(0,)], [(0,)]]
    assert [is_having(child) for child in join.children].count(True) == 1
    assert not join.matches_nulls
    same = _node(session, "select n from numbers intersect select n from numbers")
    assert [node.matches_nulls for node in same.walk() if node.kind == "HashJoinExec"] == [True]
