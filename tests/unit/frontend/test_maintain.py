"""Tests of the command ``mrflight maintain`` and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.frontend import cli
from tests.support.commands.leftovers import tree


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Return a table of two files, and a third that an overwrite removed."""
    write_deltalake(tmp_path / "t", pa.table({"n": [0]}))
    write_deltalake(tmp_path / "t", pa.table({"n": [1]}), mode="overwrite")
    write_deltalake(tmp_path / "t", pa.table({"n": [2]}), mode="append")
    return str(tmp_path / "t")


def maintain(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr."""
    code = cli.main(["maintain", *options])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_work_is_reported(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = maintain(capsys, table)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"compact     2 files, \d+ B, written as 1, \d+ B\n"
        r"vacuum      nothing to do\n"
        rf"checkpoint  of version 3 written\n{table}, version 3\n",
        out,
    )


def test_json_has_the_whole_report(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = maintain(capsys, table, "--retain", "0 s", "--force", "--json")
    assert code == 0
    report = json.loads(out)
    assert set(report) == {
        *("table", "dry_run", "version", "compaction", "vacuum", "checkpoint"),
    }
    assert (report["table"], report["dry_run"]) == (table, False)
    assert (report["version"], report["checkpoint"]) == (5, 5)
    assert (report["compaction"]["files"], report["compaction"]["into_files"]) == (2, 1)
    assert report["vacuum"]["files"] == 3
    assert sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist()) == [1, 2]


def test_work_that_is_switched_off_is_not_done(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(Path(table))
    options = ("--no-compact", "--no-vacuum", "--no-checkpoint")
    assert maintain(capsys, table, *options) == (0, f"{table}, version 2\n", "")
    assert maintain(capsys, table, "--dry-run", "--retain", "0 s", "--force")[0] == 0
    assert tree(Path(table)) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target-size", "much"], "--target-size: 'much' is not a size such as '512 MiB'"),
        (["--target-size", "0"], "--target-size must be more than 0; use --no-compact"),
        (["--retain", "long"], "--retain: 'long' is not a time such as '10 min'"),
        (["--retain", "1 h"], "keeps removed files for longer than that"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_done(
    table: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(Path(table))
    code, out, err = maintain(capsys, table, *options)
    assert (code, out) == (2, "")
    assert err.startswith("mrflight: ")
    assert message in err
    assert tree(Path(table)) == before


def test_a_store_that_fails_is_not_a_mistake_of_the_user(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for entry in (Path(table) / "_delta_log").glob("*.json"):
        entry.write_text("{")
    code, _, err = maintain(capsys, table)
    assert code == 1
    assert err.startswith(f"mrflight: the Delta table {table} cannot be read: ")
