"""The place of a tail is beside its table, for readers of the same store."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mrflight.config.tail_merge import TailMerge
from mrflight.storage import Location, locate
from mrflight.storage.tail_file import (
    TailFile,
    read_tail_files,
    remove_tail_file,
    write_tail_file,
)

FILE = TailFile("trips", "trips.1", "grpc+tcp://a:1", "grpc+tcp://a:2", token="abc")


pytestmark = pytest.mark.also_on("s3")


@pytest.fixture
def table(place: Location) -> Location:
    return place


def test_a_place_is_written_over_and_removed(table: Location) -> None:
    assert read_tail_files(table) == []
    write_tail_file(table, FILE)
    moved = replace(FILE, location="grpc+tcp://b:1")
    write_tail_file(table, moved)
    other = replace(FILE, stream="others", merge=TailMerge(("id",), "_offset"))
    write_tail_file(table, other)
    found = read_tail_files(table)
    assert found is not None
    assert sorted(found, key=lambda file: file.stream) == [other, moved]
    remove_tail_file(table, "trips")
    remove_tail_file(table, "trips")
    assert read_tail_files(table) == [other]


def test_a_file_that_is_just_being_written_is_told(tmp_path: Path) -> None:
    table = locate("table", tmp_path)
    write_tail_file(table, FILE)
    (path,) = (tmp_path / "table" / "_mrflight" / "tails").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert read_tail_files(table) is None
