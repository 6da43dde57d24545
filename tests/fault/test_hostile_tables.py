"""Whoever may write to a table's folder runs nothing in its readers, and names no host to them."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import InputError, JobFileError, MrflightError, OutputError, TailNotFoundError
from mrflight.sources import open_source
from mrflight.storage.iceberg import CatalogAddress
from tests.support.suite.messages import refused
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.lakes import Lake
from tests.support.tables.outputs import NEW, OLD, SCHEMA, finish

PAYLOAD = """
from pathlib import Path

Path({mark!r}).touch()


def fetch(*given):
    raise AssertionError("code of a table was called")
"""


class Listener:
    """A port of this machine, at which nobody may call."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"

    def was_called(self) -> bool:
        try:
            self._listening.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def listener() -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield Listener(listening)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What `payload`, a module that can be imported, leaves when it is."""
    (tmp_path / "payload.py").write_text(PAYLOAD.format(mark=str(tmp_path / "mark")))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists(), "the table's code ran"


def tail_file(folder: Path, **keys: object) -> Path:
    """Write a table, and a file of a tail beside it; return the table."""
    write_deltalake(folder / "table", pa.table({"n": [1, 2, 3]}))
    tails = folder / "table" / "_mrflight" / "tails"
    tails.mkdir(parents=True)
    (tails / "a.json").write_text(json.dumps({"stream": "a", "tail": "a.12345678", **keys}))
    return folder / "table"


OWN = {
    "a module": {"identity": {"given": "it", "giver": "payload"}},
    "a file": {"identity": {"token": "file:/proc/self/status"}},
    "a variable": {"identity": {"token": "env:PATH"}},
    "certificates": {"identity": {"ca": "/etc/hostname", "certificate": "a", "key": "b"}},
    "nothing": {},
    "a name that is none": {"tail": "../../tmp/a.12345678/../b"},
}
"""What a file may say of a tail on a server of the stream's own, besides its location."""


@pytest.mark.parametrize("given", OWN.values(), ids=OWN)
def test_a_file_of_a_tail_is_a_name_of_one(
    tmp_path: Path, mark: Path, listener: Listener, given: dict[str, object]
) -> None:
    """The server of such a tail is found among those of this user, whatever the file says."""
    table = tail_file(tmp_path, location=f"grpc+tcp://{listener.address}", **given)
    with pytest.raises(TailNotFoundError, match="no stream of this user on this machine has it"):
        mrflight.read_table(table, fresh=True, wait=0)
    assert not listener.was_called()


ELSEWHERE = {
    "a cluster elsewhere": ("grpc+tcp://192.0.2.1:5005", "grpc+tcp://192.0.2.1:5010"),
    "an encrypted cluster": ("grpc+tls://{here}", "grpc+tls://{here}"),
    "a server elsewhere": ("grpc+tcp://{here}", "grpc+tcp://192.0.2.1:5010"),
    "a host that looks like this one": ("grpc+tcp://127.0.0.1:1@{here}", "grpc+tcp://{here}"),
}
"""The metadata server and the data server."""


@pytest.mark.parametrize(("cluster", "location"), ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("log", ["", "rows:0123456789abcdef"])
def test_a_cluster_of_other_machines_is_asked_if_the_reader_names_it(
    tmp_path: Path, listener: Listener, cluster: str, location: str, log: str
) -> None:
    here = listener.address
    names = {"cluster": cluster.format(here=here), "location": location.format(here=here)}
    table = tail_file(tmp_path, **names, **({"log": log} if log else {}))
    with pytest.raises(JobFileError, match=r"read_table\(cluster=") as caught:
        mrflight.read_table(table, fresh=True, wait=0)
    assert "which has to know who reads" in str(caught.value)
    assert not listener.was_called()


def edit(lake: Lake, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the newest metadata of a table, as whoever may write to its folder does."""
    path = Path(lake.load().metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def of_files(address: str) -> dict[str, str]:
    """Properties by which pyiceberg opens files, with code and a host in them."""
    return {
        "py-io-impl": "payload.fetch",
        "s3.retry-strategy-impl": "payload.fetch",
        "s3.endpoint": f"http://{address}",
        "s3.proxy-uri": f"http://{address}",
        "s3.access-key-id": "of the table",
    }


def read(lake: Lake) -> list[tuple[object, ...]]:
    table = mrflight.read_table(lake.table, catalog=lake.catalog)
    return sorted((row["n"], row["k"]) for row in table.to_pylist())


@pytest.fixture
def table(sqlite_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table with rows, in the catalog of the current folder."""
    monkeypatch.chdir(sqlite_lake.base)
    lake = replace(sqlite_lake, namespace="web")
    finish(lake.open(), OLD, SCHEMA)
    return lake


def test_the_properties_of_an_iceberg_table_say_nothing_of_how_it_is_opened(
    table: Lake, mark: Path, listener: Listener
) -> None:
    edit(table, lambda document: document["properties"].update(of_files(listener.address)))
    assert read(table) == sorted(OLD)
    finish(table.open("append", "next"), NEW, SCHEMA)
    assert read(table) == sorted([*OLD, *NEW])
    assert not listener.was_called()


def test_a_table_whose_metadata_names_code_for_writers_is_only_read(
    table: Lake, mark: Path
) -> None:
    provider = {"write.py-location-provider.impl": "payload.Provider"}
    edit(table, lambda document: document["properties"].update(provider))
    assert read(table) == sorted(OLD)
    with refused(OutputError):
        finish(table.open("append"), NEW, SCHEMA)
    assert read(table) == sorted(OLD)


def test_a_table_that_names_code_once_it_was_loaded_is_not_written(table: Lake, mark: Path) -> None:
    provider = {"write.py-location-provider.impl": "payload.Provider"}
    section = OutputSection(**table.section())
    catalog = CatalogAddress.of("output", section, table.base, {}).open()
    loaded = catalog.load_table(table.table)
    edit(table, lambda document: document["properties"].update(provider))
    with refused(OutputError), loaded.transaction() as transaction:
        transaction.set_properties(a="b")
    assert read(table) == sorted(OLD)


def test_the_files_of_an_iceberg_table_name_no_host(table: Lake, listener: Listener) -> None:
    manifests = f"hdfs://{listener.address}/manifests.avro"

    def change(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["manifest-list"] = manifests

    edit(table, change)
    with pytest.raises(MrflightError, match="is no place for files of a table"):
        read(table)
    assert not listener.was_called()


@contextmanager
def rest_catalog(answers: dict[str, Any]) -> Iterator[str]:
    """A catalog that answers a path with what it is given; yields its URI."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_what_a_rest_catalog_answers_is_neither_code_nor_a_host(
    table: Lake, mark: Path, listener: Listener
) -> None:
    files = of_files(listener.address)
    code = {"type": "custom", "impl": "payload.fetch", "custom": {}}
    overrides = {**files, "uri": f"http://{listener.address}", "auth": code, "prefix": "lake"}
    stored = table.load()
    metadata = json.loads(stored.metadata.model_dump_json())
    metadata["properties"] |= files
    answer = {
        "metadata-location": stored.metadata_location,
        "metadata": metadata,
        "config": files,
        "storage-credentials": [{"prefix": "file:", "config": files}],
    }
    namespace, name = table.table.split(".")
    answers = {
        "/v1/config": {"defaults": files, "overrides": overrides},
        f"/v1/lake/namespaces/{namespace}/tables/{name}": answer,
    }
    with rest_catalog(answers) as uri:
        rows = mrflight.read_table(table.table, catalog=uri)
    assert sorted((row["n"], row["k"]) for row in rows.to_pylist()) == sorted(OLD)
    assert not listener.was_called()


@pytest.mark.parametrize("kind", ["ducklake_data_file", "ducklake_delete_file", "ducklake_table"])
def test_duckdb_asks_no_host_that_a_ducklake_names(
    own_ducklake: DuckLake, listener: Listener, kind: str
) -> None:
    """Its rows are read by DuckDB where some are deleted."""
    own_ducklake.run(OLD)
    delete = f"DELETE FROM lake.{own_ducklake.table} WHERE n = 1"
    own_ducklake.query("CALL lake.set_option('data_inlining_row_limit', 0)", delete)
    with sqlite3.connect(own_ducklake.base / "lake.sqlite") as catalog:
        catalog.execute(
            f"UPDATE {kind} SET path_is_relative = 0, path = 'http://{listener.address}/' || path"
        )
    catalog.close()
    section = own_ducklake.section()
    spec = InputSpec(path=own_ducklake.table, format="ducklake", catalog=section.catalog)
    with pytest.raises(InputError, match="has a file at a host that its catalog names"):
        open_source("orders", spec, own_ducklake.base, {}, 1 << 20)
    assert not listener.was_called()
