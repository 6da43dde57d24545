"""The file of a catalog, which other processes lock, or make at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from mrflight.config.output_section import OutputSection
from mrflight.errors import CatalogLockedError
from mrflight.storage.iceberg import CatalogAddress
from mrflight.storage.sqlite_lock import describe_holder, lock_holder
from tests.support.suite.waiting import await_end

STOPPED = """
import signal, sqlite3, sys, threading
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute(f"BEGIN {sys.argv[2]}")
print(flush=True)
signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
database.execute("COMMIT")
"""


def opened(folder: Path) -> CatalogAddress:
    uri = "sqlite:///catalog.db?timeout=0.01"
    spec = OutputSection(table="ns.t", format="iceberg", catalog=uri, warehouse="w")
    return CatalogAddress.of("output", spec, folder, {})


@contextmanager
def stopped(folder: Path, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has stopped itself in a transaction of the catalog."""
    opened(folder).open()  # which makes its tables
    command = [sys.executable, "-S", "-c", STOPPED, str(folder / "catalog.db"), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield process
        finally:
            process.kill()


def is_locked_by(pid: int) -> str:
    return (
        f"the catalog sqlite:///catalog.db is locked: process {pid} holds its lock, "
        f"and is stopped; let it go on (kill -CONT {pid}), or end it"
    )


def test_a_catalog_tells_which_process_was_stopped(tmp_path: Path) -> None:
    with stopped(tmp_path, "IMMEDIATE") as process:
        catalog = opened(tmp_path).open()
        assert catalog.list_namespaces() == [], "readers are not locked out"
        with pytest.raises(CatalogLockedError) as caught:
            catalog.create_namespace("ns")
        assert str(caught.value) == is_locked_by(process.pid)
        assert caught.value.retryable
        process.send_signal(signal.SIGCONT)
        assert await_end(process, "the process") == 0
    catalog.create_namespace("ns")
    assert catalog.list_namespaces() == [("ns",)]


def test_a_catalog_that_readers_are_locked_out_of_tells_so_when_it_is_opened(
    tmp_path: Path,
) -> None:
    """A stream, which opens it for each try, would else wait for ever: see `Outage`."""
    with stopped(tmp_path, "EXCLUSIVE") as process:
        with pytest.raises(CatalogLockedError) as caught:
            opened(tmp_path).open()
        assert str(caught.value) == is_locked_by(process.pid)


def test_a_catalog_whose_tables_others_make_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two, and of each it was seen that it is not there."""
    tables = iter(SqlCatalogBaseTable.metadata.sorted_tables)

    def create_tables(catalog: SqlCatalog) -> None:
        table = next(tables)
        for _ in range(2):
            table.create(catalog.engine, checkfirst=False)

    monkeypatch.setattr(SqlCatalog, "create_tables", create_tables)
    catalog = opened(tmp_path).open()
    assert list(tables) == []
    assert catalog.list_namespaces() == []


def test_the_writer_is_named_before_readers(tmp_path: Path) -> None:
    file, locks = tmp_path / "catalog.db", tmp_path / "locks"
    file.touch()
    status = file.stat()
    place = f"{status.st_dev >> 8:02x}:{status.st_dev & 255:02x}:{status.st_ino}"
    reader = f"1: POSIX  ADVISORY  READ 1000001 {place} 1073741826 1073742335"
    writer = f"2: POSIX  ADVISORY  WRITE 1000002 {place} 1073741825 1073741825"
    other = "3: FLOCK  ADVISORY  WRITE 1000003 fe:00:1 0 EOF"
    for lines, holder in (
        ([other, reader, writer], 1000002),
        ([reader], 1000001),
        ([other], None),
        (["what no kernel writes"], None),
    ):
        locks.write_text("\n".join(lines))
        assert lock_holder(str(file), locks) == holder, lines
    assert lock_holder(str(tmp_path / "gone"), locks) is None
    assert "another process" in describe_holder(str(file), tmp_path / "none")
