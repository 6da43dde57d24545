"""The report of `mrflight maintain` for a Delta table on a disk, and the tables that it refuses."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from mrflight.errors import OutputError
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.vacuum import Retention
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.maintained_table import append, maintain


def test_a_dry_run_changes_nothing_and_reports_what_would_be_done(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(3)))
    before = tree(tmp_path)
    report = maintain(
        tmp_path, MaintenanceOptions(retention=Retention(timedelta(0), True)), dry_run=True
    )
    assert tree(tmp_path) == before
    lines = report.summary().splitlines()
    assert re.fullmatch(r"compact     3 files, 1\.\d KiB, would be written as 1", lines[0])
    assert lines[1:] == [
        "vacuum      nothing to do",
        "checkpoint  of version 2 would be written",
        f"{tmp_path}/t, version 2",
    ]


def set_features(folder: Path, *features: str, **configuration: str) -> None:
    """Give the table these writer features and properties."""
    path = folder / "t" / "_delta_log" / f"{0:020}.json"
    lines = []
    for line in path.read_text().splitlines():
        action = json.loads(line)
        if "protocol" in action:
            both = [name for name in features if name in ("deletionVectors", "columnMapping")]
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": both,
                "writerFeatures": list(features),
            }
        lines.append(json.dumps(action))
    path.write_text("\n".join(lines))


def test_a_table_with_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    append(tmp_path, *(pa.table({"n": [n]}) for n in range(2)))
    set_features(tmp_path, "rowTracking")
    with refused(OutputError):
        maintain(tmp_path)


def test_a_folder_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with refused(OutputError):
        maintain(tmp_path)
