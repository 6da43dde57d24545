"""Answers to a query over small tables: by the stages of its plan, by DataFusion, and by DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyarrow import feather

from mrflight.compute.sql.engine import new_session
from mrflight.planner.fragment_stage import FragmentStage
from mrflight.planner.job_plan import JobPlan
from tests.support.queries import stages_in_process
from tests.support.queries.random_queries import RandomQuery

if TYPE_CHECKING:
    from datafusion import SessionContext

Answer = list[tuple[object, ...]]


class Way(NamedTuple):
    """How the stages of a query are planned and run."""

    partitions: int
    broadcast: str
    """See `tests.support.queries.stages_in_process.BROADCASTS`."""
    tables: str
    """``scanned``: a Parquet file each, which DataFusion reads by itself; ``files``: several of
    them; ``delta``: Delta tables; ``fed``: Arrow files, whose rows tasks are given; ``mixed``: some
    of each."""
    is_written: bool = False
    """True if the result is written to a table: its order is then that of the part files."""
    joined_bytes: int | None = None
    """The bytes that the joins of a task may hold, if not what its memory allows."""
    is_sliced: bool = False
    """True if each partition of which a table can be sliced is one, as skewed partitions are."""


WAYS = (
    Way(1, "planned", "scanned"),
    Way(1, "planned", "fed"),
    Way(2, "never", "scanned"),
    Way(2, "always", "mixed"),
    Way(7, "planned", "scanned"),
    Way(7, "never", "mixed"),
    Way(7, "planned", "files"),
    Way(7, "never", "fed"),
    Way(7, "always", "delta"),
    Way(7, "always", "scanned"),
    Way(2, "always", "fed"),
    Way(3, "planned", "fed", is_written=True),
    Way(7, "never", "files", is_written=True),
    Way(2, "never", "mixed", joined_bytes=300),
    Way(7, "planned", "fed", joined_bytes=0),
    Way(2, "never", "files", is_sliced=True),
    Way(3, "never", "fed", is_sliced=True),
    Way(2, "planned", "mixed", is_sliced=True),
)


class ParquetFiles:
    """Tables as files of several kinds."""

    def __init__(self, folder: Path, tables: Mapping[str, pa.Table]) -> None:
        self._folder = folder
        self._tables = tables
        self._paths: dict[str, dict[str, str]] = {}
        for name, table in tables.items():
            self._paths[name] = {
                "scanned": str(folder / f"{name}.parquet"),
                "files": str(folder / name / "*.parquet"),
                "delta": str(folder / name / "table"),
                "fed": str(folder / name / "*.arrow"),
            }
            pq.write_table(table, self._paths[name]["scanned"], row_group_size=5)
            (folder / name).mkdir()
            third = max(1, -(-len(table) // 3))
            for number in range(3):
                part = table.slice(number * third, third)
                pq.write_table(part, folder / name / f"{number}.parquet", row_group_size=5)
                feather.write_feather(part, str(folder / name / f"{number}.arrow"))
                write_deltalake(self._paths[name]["delta"], part, mode="append")

    def by_datafusion(self, query: RandomQuery) -> Answer:
        """The answer of DataFusion in one piece, with its own options."""
        return answer(_collected(self._in_one_piece(), query), query)

    def fails_in_datafusion(self, query: RandomQuery) -> bool:
        """Return whether DataFusion cannot answer the query in one piece either."""
        session = self._in_one_piece()
        try:
            _collected(session, query)
        except Exception:  # DataFusion raises a bare Exception for all errors; nothing else is here
            return True
        return False

    def _in_one_piece(self) -> SessionContext:
        session = new_session({})
        for name in self._tables:
            session.register_parquet(name, self._paths[name]["scanned"])
        return session

    def by_stages(
        self, query: RandomQuery, way: Way, functions: Mapping[str, str] | None = None
    ) -> Answer:
        """The answer of the stages that are planned, run in this process."""
        plan = self._planned(query, way, functions)
        rows = stages_in_process.run(plan, self._folder, way.joined_bytes, is_sliced=way.is_sliced)
        return answer(rows, query)

    def planned(
        self, query: RandomQuery, way: Way, functions: Mapping[str, str] | None = None
    ) -> list[FragmentStage]:
        """The stages of a query, in the order in which they run."""
        found = (stage.fragment for stage in self._planned(query, way, functions).stages)
        return [fragment for fragment in found if fragment is not None]

    def _planned(
        self, query: RandomQuery, way: Way, functions: Mapping[str, str] | None
    ) -> JobPlan:
        kinds = dict.fromkeys(self._paths, way.tables)
        if way.tables == "mixed":
            mixed = {"big": "files", "mid": "fed", "few": "delta", "none": "scanned"}
            kinds = {name: mixed.get(name, "files") for name in self._paths}
        paths = {name: self._paths[name][kind] for name, kind in kinds.items()}
        spec = stages_in_process.query_spec(query.text, paths, way.partitions, functions)
        return stages_in_process.planned(
            spec, self._folder, way.broadcast, is_written=way.is_written
        )


class Files(ParquetFiles):
    """Tables as files of several kinds, which DuckDB has as well."""

    def __init__(self, folder: Path, tables: Mapping[str, pa.Table]) -> None:
        super().__init__(folder, tables)
        self._duckdb = duckdb.connect(config={"threads": 1})
        for name, table in tables.items():
            self._duckdb.register(name, table)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._duckdb.close()

    def by_duckdb(self, query: RandomQuery) -> Answer:
        return answer(self._duckdb.sql(query.text).to_arrow_table(), query)


def _collected(session: SessionContext, query: RandomQuery) -> pa.Table:
    rows = session.sql(query.text)
    return pa.Table.from_batches(rows.collect(), rows.schema())


def answer(table: pa.Table, query: RandomQuery) -> Answer:
    """The rows, sorted unless the query orders them; equal numbers of several types are equal."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    rows = list(zip(*columns, strict=True))
    return rows if query.is_ordered else sorted(rows, key=repr)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return value
    number = round(float(value), 6)
    return 0.0 if number == 0 else number
