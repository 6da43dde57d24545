"""Whoever may write to a table's folder runs nothing in its readers, and names no host to them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import mrflight
from mrflight.errors import JobFileError, TailNotFoundError

PAYLOAD = "from pathlib import Path\nPath({mark!r}).touch()\ndef fetch(name): ...\n"


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
