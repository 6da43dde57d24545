"""Tests of how a path becomes files and a format, and of the errors if there are none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.csv_source import open_csv
from mrflight.sources.discovery import find_input
from mrflight.sources.formats import compression_of, format_of, is_tab_separated
from mrflight.sources.found_input import FoundInput
from tests.support.suite.messages import refused


def find(folder: Path, path: str, **spec: Any) -> FoundInput:
    return find_input("visits", InputSpec(path=path, **spec), folder, {})


def names(folder: Path, path: str, **spec: Any) -> list[str]:
    return [file.path.removeprefix(f"{folder}/") for file in find(folder, path, **spec).files]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "visits/a.csv",
        "visits/b.csv",
        "visits/2024/a.csv",
        "visits/2024/_log/c.csv",
        "visits/2024/jan/a1.csv",
        "visits/.git/d.csv",
        "visits/_tmp.csv",
        "[draft]/a.csv",
        "odd/a[1].csv",
        "odd/a1.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("n\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("visits/a.csv", ["visits/a.csv"]),
        ("./visits//a.csv", ["visits/a.csv"]),
        (
            "visits/",
            ["visits/2024/a.csv", "visits/2024/jan/a1.csv", "visits/a.csv", "visits/b.csv"],
        ),
        ("visits/*.csv", ["visits/a.csv", "visits/b.csv"]),
        ("visits/*/a.csv", ["visits/2024/a.csv"]),
        ("visits/**/a*.csv", ["visits/2024/a.csv", "visits/2024/jan/a1.csv", "visits/a.csv"]),
        ("**/jan/*", ["visits/2024/jan/a1.csv"]),
        ("**/**/jan/*", ["visits/2024/jan/a1.csv"]),
        ("visits/2024/**", ["visits/2024/a.csv", "visits/2024/jan/a1.csv"]),
        ("visits/[ab].csv", ["visits/a.csv", "visits/b.csv"]),
        ("visits/[!a].csv", ["visits/b.csv"]),
        ("visits/?.csv", ["visits/a.csv", "visits/b.csv"]),
        ("visits/20*", ["visits/2024/a.csv", "visits/2024/jan/a1.csv"]),
        ("visits/_*.csv", ["visits/_tmp.csv"]),
        ("visits/_tmp.csv", ["visits/_tmp.csv"]),
        ("visits/2024/_log", ["visits/2024/_log/c.csv"]),
        ("[draft]", ["[draft]/a.csv"]),
        ("[draft]/*.csv", ["[draft]/a.csv"]),
        ("odd/a[1].csv", ["odd/a[1].csv"]),
        ("odd/a?.csv", ["odd/a1.csv"]),
    ],
)
def test_a_path_is_resolved_to_its_files(folder: Path, path: str, found: list[str]) -> None:
    assert names(folder, path) == found
    assert names(folder, str(folder / path)) == found
    assert names(folder, f"file://{folder}/{path}") == found


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("visits/c.csv", "/visits/b.csv"),
        ("visit", "/visits"),
        ("vists/*.csv", "/visits"),
        ("visits/2024/feb/*.csv", None),
        ("visits/*.parquet", None),
        ("nowhere/at/all", None),
    ],
)
def test_a_path_that_matches_nothing_is_refused(folder: Path, path: str, hint: str | None) -> None:
    with pytest.raises(InputError) as raised:
        find(folder, path)
    message = str(raised.value)
    assert message.startswith(f"inputs.visits.path: nothing matches {folder}/{path}")
    if hint:
        assert re.search(r"; did you mean .*/visits(/[ab]\.csv)?\?$", message)
    else:
        assert "did you mean" not in message


def test_a_folder_with_only_ignored_files_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "empty" / "_SUCCESS").touch()
    with refused(InputError, "inputs.visits.path"):
        find(folder, "empty")


@pytest.mark.parametrize(
    ("name", "format", "compression", "tabs"),
    [
        ("a.csv", "csv", None, False),
        ("a.CSV", "csv", None, False),
        ("a.tsv", "csv", None, True),
        ("a.tsv.gz", "csv", "gzip", True),
        ("a.csv.bz2", "csv", "bz2", False),
        ("a.jsonl.zst", "json", "zstd", False),
        ("a.json", "json", None, False),
        ("a.ndjson", "json", None, False),
        ("a.parquet", "parquet", None, False),
        ("a.pq", "parquet", None, False),
        ("a.parquet.gz", None, "gzip", False),
        ("a.arrow", "arrow", None, False),
        ("a.feather", "arrow", None, False),
        ("a.ipc", "arrow", None, False),
        ("a.gz", None, "gzip", False),
        ("a.txt", None, None, False),
        ("csv", None, None, False),
        ("x.csv/part-0", None, None, False),
    ],
)
def test_the_suffix_determines_format_and_compression(
    name: str, format: str | None, compression: str | None, tabs: bool
) -> None:
    assert format_of(f"/data/{name}") == format
    assert compression_of(f"/data/{name}") == compression
    assert is_tab_separated(f"/data/{name}") == tabs


def test_files_of_several_formats_need_an_explicit_format(folder: Path) -> None:
    (folder / "visits" / "c.json").touch()
    (folder / "visits" / "notes.txt").touch()
    with refused(InputError, "inputs.visits.path"):
        find(folder, "visits/[ac]*")
    with refused(InputError):
        find(folder, "visits/*")
    assert names(folder, "visits", format="json") == ["visits/c.json", "visits/notes.txt"]
    assert find(folder, "visits/notes.txt", format="csv").format == "csv"


def test_a_delta_table_is_recognised_by_its_log(folder: Path) -> None:
    (folder / "tables" / "t" / "_delta_log").mkdir(parents=True)
    (folder / "tables" / "t" / "a.parquet").touch()
    found = find(folder, "tables/t")
    assert found.format == "delta"
    assert found.root.path == f"{folder}/tables/t"
    assert find(folder, "tables/t", format="delta").format == "delta"
    assert names(folder, "tables/t", format="parquet") == ["tables/t/a.parquet"]
    for path in ("tables", "tables/*"):
        with refused(InputError):
            find(folder, path)
    with refused(InputError, "inputs.visits.path"):
        find(folder, "visits", format="delta")


def test_a_file_that_is_emptied_after_it_was_found_is_refused(tmp_path: Path) -> None:
    """An empty file is left out of the input, so no task would notice that its rows are lost."""
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.csv").write_text("k\n2\n")
    found = find(tmp_path, "*.csv")
    (tmp_path / "b.csv").write_text("")
    with refused(InputError):
        open_csv(found, 1 << 20)
