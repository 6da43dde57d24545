"""Rows of a file for tests of datasets."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight import Dataset
from tests.support.queries.mapped_rows import ROWS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(ROWS, folder / "visits.parquet")
    return folder


@pytest.fixture
def visits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.chdir(folder)
    return mrflight.read("visits.parquet")
