"""The modules that the processes of a job will import are known from its file."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mrflight.config.formats import InputFormat, OutputFormat
from mrflight.config.job_file import load_job
from mrflight.config.kafka_input import KAFKA_FORMATS
from mrflight.config.spec import JobSpec
from mrflight.runtime.preload import (
    driver_modules,
    fork_server_modules,
    is_likely_direct,
    worker_modules,
)
from tests.support.commands.driver import drive, write_job
from tests.support.jobs.plans import job
from tests.support.suite.cases import cases


def modules_for(spec: JobSpec) -> list[str]:
    return fork_server_modules(spec, is_direct=False)


def test_every_module_exists() -> None:
    with cases() as case:
        for given, output in product(get_args(InputFormat), get_args(OutputFormat)):
            with case(f"{given} to {output}"):
                inputs = {"visits": {"path": "visits", "format": given, "key": ["url"]}}
                spec = job(inputs=inputs, output={"table": "out", "format": output})
                modules = modules_for(spec) + driver_modules(spec)
                assert f"mrflight.sources.{given}_source" in modules
                assert [module for module in modules if find_spec(module) is None] == []


def test_every_module_for_messages_exists() -> None:
    of_formats = {"avro": {"schema": "s"}, "protobuf": {"schema": "s", "message": "M"}}
    with cases() as case:
        for given in KAFKA_FORMATS:
            with case(given):
                keys = of_formats.get(given, {})
                inputs = {"trips": {"kafka": "a:1", "topic": "t", "format": given, **keys}}
                modules = modules_for(job(inputs=inputs, output={"table": "out"}))
                assert f"mrflight.sources.kafka.formats.{given}_format" in modules
                assert [module for module in modules if find_spec(module) is None] == []


def test_formats_come_from_suffixes_and_not_from_folders() -> None:
    inputs = {
        name: {"path": path, "key": ["url"]}
        for name, path in {
            "a": "a/*.csv",
            "b": ["b", "b.tsv"],
            "c": "c.json.gz",
            "d": "folder",
        }.items()
    }
    sources = [module for module in modules_for(job(inputs=inputs)) if "sources" in module]
    assert sources == [
        "mrflight.sources.csv_source",
        "mrflight.sources.json_source",
        "mrflight.sources.packed_reader",
    ]


def test_a_standing_cluster_needs_no_modules_of_servers() -> None:
    standing = modules_for(job(cluster={"metadata": "grpc+tcp://127.0.0.1:5005"}))
    assert set(modules_for(job())) - set(standing) == {
        "mrflight.servers.metadata",
        "mrflight.servers.data",
    }


LIKELY_DIRECT: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"shuffle": {"partitions": 1}}, True),
    ({"shuffle": {"partitions": 2}}, False),
    ({"inputs": {"rows": {"path": "large.csv"}}}, False),
    ({"inputs": {"rows": {"path": "folder"}}}, False),
    ({"inputs": {"rows": {"path": "few"}}}, True),
    ({"inputs": {"rows": {"path": "few"}}, "shuffle": {"partitions": 1}}, False),
    ({"inputs": {"rows": {"path": "few", "map": "clicks:parse"}}}, False),
    ({"inputs": {"rows": {"path": "many"}}}, False),
    ({"inputs": {"rows": {"path": "*.csv"}}}, False),
    ({"inputs": {"rows": {"path": "few/*.csv"}}}, True),
    ({"inputs": {"rows": {"path": "missing.csv"}}}, False),
    ({"inputs": {"rows": {"path": "s3://bucket/small.csv"}}}, False),
    ({"inputs": {"rows": {"path": ["small.csv", "few/1.csv"]}}}, True),
    ({"inputs": {n: {"path": "small.csv"} for n in "ab"}}, False),
]


def test_a_small_file_is_likely_to_need_no_servers(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "of a folder").mkdir()
    for name, count in {"few": 4, "many": 64}.items():
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}.csv").write_text("k\n1\n")
    (tmp_path / "small.csv").write_text("k\n1\n")
    with (tmp_path / "large.csv").open("wb") as large:
        large.truncate(9 << 20)
    with cases() as case:
        for changed, is_direct in LIKELY_DIRECT:
            with case(changed):
                spec = job(**({"inputs": {"rows": {"path": "small.csv"}}} | changed))
                assert is_likely_direct(spec, tmp_path) == is_direct
                modules = fork_server_modules(spec, is_direct=is_direct)
                assert any("mrflight.servers" in each for each in modules) != is_direct


def test_workers_on_ray_load_no_servers_and_no_sinks() -> None:
    with cases() as case:
        for output in get_args(OutputFormat):
            with case(output):
                modules = worker_modules(job(output={"table": "out", "format": output}))
                assert [module for module in modules if re.search("servers|_sink", module)] == []


@pytest.mark.parametrize("has_sql", [False, True])
def test_datafusion_is_for_jobs_with_sql(has_sql: bool) -> None:
    inputs = {"rows": {"path": "rows.csv", "key": ["n"]}}
    if has_sql:
        inputs["rows"]["sql"] = "select n from rows"
    assert ("datafusion" in modules_for(job(inputs=inputs))) == has_sql


def test_modules_of_joins_are_for_jobs_with_several_inputs() -> None:
    inputs = {name: {"path": f"{name}.csv"} for name in ("left", "right")}
    modules = modules_for(job(inputs=inputs, reduce={"sql": "select 1 from left", "group_by": []}))
    meet = {"mrflight.tasks.broadcast_join", "mrflight.tasks.cogroup_kinds"}
    assert meet <= set(modules)
    assert [module for module in modules if find_spec(module) is None] == []
    assert not meet & set(modules_for(job()))


@pytest.mark.parametrize(
    ("changed", "is_preloaded"),
    [
        ({}, False),
        ({"reduce": {"group_by": ["url"], "aggregate": {"n": "count(n)"}}}, True),
        ({"reduce": {"group_by": ["url"], "function": "clicks:merge"}}, True),
        ({"inputs": {"rows": {"path": "rows.csv", "sql": "select * from rows"}}}, True),
    ],
)
def test_one_worker_that_sums_needs_no_functions_of_arrow(
    changed: dict[str, Any], is_preloaded: bool
) -> None:
    reduce = {"group_by": ["url"], "aggregate": {"n": "sum(n)"}}
    spec = job(**({"inputs": {"rows": {"path": "rows.csv"}}, "reduce": reduce} | changed))
    assert "pyarrow.compute" in worker_modules(spec)
    assert ("pyarrow.compute" in worker_modules(spec, is_direct=True)) == is_preloaded


SUMS = """
[job]
name = "sums"
[inputs.rows]
path = "in.parquet"
[reduce]
group_by = ["k"]
aggregate = { n = "sum(n)" }
[output]
table = "out"
"""

WITHOUT_COMPUTE = """
import sys
sys.modules["pyarrow.compute"] = None
from mrflight.driver import main
sys.exit(main([sys.argv[1], "-q"]))
"""


@pytest.mark.usefixtures("needs_kernel")
def test_a_small_job_of_sums_runs_without_the_functions_of_arrow(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 1], "n": [10, 20, 30]})
    pq.write_table(rows, tmp_path / "in.parquet")
    path = write_job(tmp_path, SUMS)
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPUTE, str(path)])
    assert done.returncode == 0
    found = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().sort_by("k").to_pylist()
    assert found == [{"k": 1, "n": 40}, {"k": 2, "n": 20}]


LOADED = """
import sys
import pyarrow as pa

AT_THE_FIRST_MAP = list(sys.modules)

def loaded(batch):
    return pa.record_batch({"module": pa.array(AT_THE_FIRST_MAP)})
"""

JOB = """
[job]
name = "loaded"
[inputs.rows]
path = "in.csv"
map = "loaded:loaded"
key = ["module"]
[reduce]
group_by = ["module"]
aggregate = { times = "count(*)" }
[output]
table = "out"
[cluster]
workers = 1
"""


BESIDE = """
[inputs.others]
path = "in.csv"
sql = "select cast(k as varchar) as module from others where false"
key = ["module"]
"""


@pytest.mark.slow_but("without sql")
@pytest.mark.parametrize("beside", ["", BESIDE], ids=["without sql", "with sql"])
def test_a_worker_has_all_modules_before_its_first_map(beside: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "loaded.py").write_text(LOADED)
    path = write_job(tmp_path, JOB + beside)
    run = drive(path, environment={"PYTHONHASHSEED": "1"})  # a process that has loaded nothing
    assert run.code == 0, run.stderr
    loaded = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()["module"].to_pylist()
    expected = worker_modules(load_job(path), is_direct=not beside)
    assert set(expected) <= set(loaded)
    assert ("pyarrow.flight" in loaded) == bool(beside)
    assert "pandas" not in loaded
