"""The Spark that answers are compared with reads what is written here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.suite.waiting import hang_s

QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
rows = builder.getOrCreate().read.parquet(sys.argv[1]).collect()
print(json.dumps([list(row) for row in rows]))
"""


def test_spark_reads_parquet(needs_spark: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]}), tmp_path / "rows.parquet")
    done = subprocess.run(
        [needs_spark, "-c", PROGRAM, tmp_path / "rows.parquet"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(needs_spark), "JAVA_TOOL_OPTIONS": QUICK_START},
        capture_output=True,
        text=True,
        check=False,
        timeout=hang_s(),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)) == [["a", 1], ["a", 3], ["b", 2]]
