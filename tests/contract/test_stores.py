"""The contract of stores: files are written, listed, read by ranges and removed by URL."""

from __future__ import annotations

import hashlib
import pickle
import random
from functools import partial
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources import open_source
from mrflight.sources.read_checks import translate_read_errors
from mrflight.storage import Location, locate
from tests.support.commands.threads import run_threads

ODD_NAMES = ["a b", "ü", "x%20y", "100%", "k=a b", "q?x#y", "a+b&c", "'\"", "ж", "~$@!,;()"]
MANY, THREADS = 24, 4
LARGE_BYTES = 20 << 20


def write(location: Location, data: bytes) -> Location:
    with location.create() as file:
        file.write(data)
    return location


def names(infos: list[fs.FileInfo], below: Location) -> dict[str, str]:
    """Return the paths relative to a folder, each with F for a file or D for a folder."""
    start = len(below.path.rstrip("/")) + 1
    kinds = {fs.FileType.File: "F", fs.FileType.Directory: "D"}
    return {info.path[start:]: kinds[info.type] for info in infos}


@pytest.mark.everywhere
def test_a_file_is_written_described_and_read(place: Location) -> None:
    file = write(place.child("some/file.txt"), b"0123456789")
    info = file.info()
    assert (info.type, info.size, info.path) == (fs.FileType.File, 10, file.path)
    assert info.mtime_ns
    with file.open_input() as stream:
        assert stream.size() == 10
        assert stream.read(2) == b"01"
        assert stream.read_at(3, 4) == b"456"
        stream.seek(8)
        assert stream.tell() == 8
        assert stream.read() == b"89"
        assert stream.read() == b""
    assert file.read_bytes() == b"0123456789"
    with file.open_mapped() as stream:
        assert stream.read() == b"0123456789"


@pytest.mark.everywhere
def test_a_file_is_replaced_as_a_whole(place: Location) -> None:
    file = write(place.child("file"), b"the first one, which is longer")
    assert write(file, b"the second").read_bytes() == b"the second"


@pytest.mark.everywhere
def test_an_empty_file(place: Location) -> None:
    file = write(place.child("empty"), b"")
    assert (file.info().type, file.info().size, file.read_bytes()) == (fs.FileType.File, 0, b"")


@pytest.mark.everywhere
def test_a_missing_file(place: Location) -> None:
    nothing = place.child("nothing")
    assert nothing.info().type == fs.FileType.NotFound
    assert nothing.walk() == nothing.children() == []
    with pytest.raises(FileNotFoundError):
        nothing.read_bytes()
    with pytest.raises(InputError, match=r"/nothing cannot be read: "):
        nothing.open_input()
    nothing.delete_file()


@pytest.mark.everywhere
def test_a_truncated_or_missing_file_is_no_store_error(place: Location) -> None:
    """The store works, so a retry would not help."""
    source = BytesIO()
    pq.write_table(pa.table({"n": [1, 2]}), source)
    cut = write(place.child("cut.parquet"), source.getvalue()[:-20])
    with pytest.raises(InputError, match=r"cannot be read as parquet: .* is truncated, damaged or"):
        open_source("rows", InputSpec(path=cut.url), Path("/"), cut.options, 1 << 20)
    gone = write(place.child("gone.csv"), b"n\n1\n")
    gone.delete_file()
    message = r"gone\.csv cannot be read: (?!.*damaged)"
    with pytest.raises(InputError, match=message), translate_read_errors("csv", gone):
        gone.open_input().read(2)


@pytest.mark.everywhere
def test_a_file_is_removed_without_its_neighbours(place: Location) -> None:
    file, other = write(place.child("a/file"), b"1"), write(place.child("a/file2"), b"2")
    file.delete_file()
    assert file.info().type == fs.FileType.NotFound
    assert other.read_bytes() == b"2"


@pytest.mark.everywhere
def test_folders_are_listed_alone_and_recursively(place: Location) -> None:
    for path in ("a/one", "a/b/two", "a/b/c/d/e/f/three", "ab/four"):
        write(place.child(path), b"x")
    folder = place.child("a")
    assert names(folder.children(), folder) == {"one": "F", "b": "D"}
    below = {"one": "F", "b": "D", "b/two": "F", "b/c": "D", "b/c/d": "D", "b/c/d/e": "D"}
    assert names(folder.walk(), folder) == {**below, "b/c/d/e/f": "D", "b/c/d/e/f/three": "F"}
    assert folder.info().type == fs.FileType.Directory
    assert names(place.children(), place) == {"a": "D", "ab": "D"}


@pytest.mark.everywhere
def test_unusual_names_are_taken_literally(place: Location) -> None:
    for name in ODD_NAMES:
        file = write(place.child(f"{name}/{name}.bin"), name.encode())
        folder = place.child(name)
        assert names(folder.children(), folder) == {f"{name}.bin": "F"}, name
        (info,) = folder.children()
        assert place.at(info.path).read_bytes() == file.read_bytes() == name.encode()
        assert file.info().size == len(name.encode()), name


@pytest.mark.everywhere
def test_the_url_of_an_unusual_name_leads_to_the_file(place: Location) -> None:
    for name in ODD_NAMES:
        file = write(place.child(f"{name}/{name}.bin"), name.encode())
        url = file.url if "://" in file.url else f"file://{file.url}"
        found = locate(url, Path(), place.options)
        assert found == file
        assert found.read_bytes() == name.encode()
        again = write(locate(f"{url} again", Path(), place.options), name.encode() + b" again")
        assert place.child(f"{name}/{name}.bin again").read_bytes() == again.read_bytes()


@pytest.mark.everywhere
def test_many_files_in_one_folder(place: Location) -> None:
    def write_some(first: int) -> None:
        for number in range(first, MANY, THREADS):
            write(place.child(f"many/{number:04}"), b"x" * number)

    run_threads([partial(write_some, first) for first in range(THREADS)])
    infos = place.child("many").children()
    sizes = {info.base_name: info.size for info in infos}
    assert sizes == {f"{number:04}": number for number in range(MANY)}


@pytest.mark.everywhere
def test_a_large_file_is_written_and_read_in_parts_of_any_size(place: Location) -> None:
    seed = 11
    chance = random.Random(seed)
    data = chance.randbytes(LARGE_BYTES)
    file = place.child("large")
    with file.create() as stream:
        at = 0
        while at < LARGE_BYTES:
            size = chance.choice([1, 1000, 1 << 16, 3 << 20])
            stream.write(memoryview(data)[at : at + size])
            at += size
        assert stream.tell() == LARGE_BYTES
    assert file.info().size == LARGE_BYTES
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(data).digest(), seed
    with file.open_input() as stream:
        for _ in range(20):
            start = chance.randrange(LARGE_BYTES)
            size = chance.randrange(1 << 20)
            assert stream.read_at(size, start) == data[start : start + size], (seed, start, size)


def test_a_location_can_be_pickled(place: Location) -> None:
    write(place.child("file"), b"x")
    other: Location = pickle.loads(pickle.dumps(place.child("file")))
    assert other == place.child("file")
    assert other.read_bytes() == b"x"


@pytest.mark.also_on("s3")
def test_secrets_are_not_shown(place: Location) -> None:
    for secret in place.options.values():
        assert secret not in repr(place) + str(place) + place.url


@pytest.mark.everywhere
def test_of_several_concurrent_puts_if_absent_one_succeeds(place: Location) -> None:
    once = place.child("new folder/once %20")
    assert once.why_no_put_if_absent() is None
    won, refused = [], []

    def put(number: int) -> None:
        try:
            once.put_if_absent(str(number).encode())
            won.append(number)
        except FileExistsError as error:
            refused.append(str(error))

    run_threads([partial(put, number) for number in range(8)])
    assert len(won) == 1
    assert len(refused) == 7
    assert once.read_bytes() == str(won[0]).encode()
    assert names(place.walk(), place) == {"new folder": "D", "new folder/once %20": "F"}
    assert all(once.url in message and "\n" not in message for message in refused)
