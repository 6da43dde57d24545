"""The modules that the processes of a job will import are known from its file."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from deltalake import DeltaTable

from mrflight.config.job_file import load_job
from mrflight.config.spec import InputFormat, OutputFormat
from mrflight.runtime.preload import modules_for, worker_modules
from tests.support.driver import drive, write_job
from tests.support.plans import job


@pytest.mark.parametrize("output", get_args(OutputFormat))
@pytest.mark.parametrize("given", get_args(InputFormat))
def test_every_module_exists(given: str, output: str) -> None:
    inputs = {"visits": {"path": "visits", "format": given, "key": ["url"]}}
    modules = modules_for(job(inputs=inputs, output={"table": "out", "format": output}))
    assert f"mrflight.sources.{given}_source" in modules
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


@pytest.mark.parametrize("output", get_args(OutputFormat))
def test_workers_on_ray_load_no_servers_and_no_sinks(output: str) -> None:
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
    meet = {"mrflight.tasks.broadcast_join", "mrflight.tasks.cogroup"}
    assert meet <= set(modules)
    assert [module for module in modules if find_spec(module) is None] == []
    assert not meet & set(modules_for(job()))


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


@pytest.mark.parametrize("beside", ["", BESIDE], ids=["without sql", "with sql"])
def test_a_worker_has_all_modules_before_its_first_map(beside: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "loaded.py").write_text(LOADED)
    path = write_job(tmp_path, JOB + beside)
    run = drive(path)
    assert run.code == 0, run.stderr
    loaded = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()["module"].to_pylist()
    assert set(modules_for(load_job(path))) <= set(loaded)
    assert "pandas" not in loaded
