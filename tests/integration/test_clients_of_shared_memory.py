"""Which clients share memory with the servers: the same user on the same machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import mrflight
from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.another_user import NOBODY, needs_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

CLIENT = """
import sys
import pyarrow as pa
import mrflight
from mrflight.errors import JobError
from mrflight.shuffle.wire.transport import channel_to
metadata, name = sys.argv[1:]
rows = pa.record_batch({"key": range(100_000), "n": range(100_000)})
with mrflight.connect(metadata) as cluster:
    shuffle = cluster.create_shuffle(name, partitions=2)
    with shuffle.writer(0, key=["key"]) as out:
        out.write(rows)
    found = sum(each.num_rows for p in range(2) for each in shuffle.reader(p))
    with shuffle.connections() as connections:
        way = "flight" if channel_to(connections, shuffle.placement()[0][0]) is None else "shared"
    print(found, way, flush=True)
with mrflight.connect(metadata, transport="shared") as cluster:
    try:
        cluster.open_shuffle(name).writer(1, key=["key"]).write(rows.slice(0, 0))
        list(cluster.open_shuffle(name).reader(0))
    except JobError as error:
        print(error, flush=True)
    else:
        print("shared", flush=True)
"""


@pytest.fixture(scope="module")
def on_sockets() -> Iterator[str]:
    """Yield the metadata server of a cluster that processes in every network namespace reach."""
    with TemporaryDirectory(prefix="mrf") as folder:
        Path(folder).chmod(0o755)
        with standing_cluster(1, sockets=Path(folder)) as cluster:
            for path in Path(folder).iterdir():
                path.chmod(0o777)
            yield cluster.metadata
            with mrflight.connect(cluster.metadata) as client:
                for shuffle in client.status().shuffles:
                    client.open_shuffle(shuffle.id).drop()


def said(metadata: str, *prefix: str) -> list[str]:
    """Return what a client says that runs behind a command, which has to be possible here."""
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip(f"{' '.join(prefix)} is not permitted here")
    name = "-".join(prefix[:2]) or "here"
    command = [*prefix, sys.executable, "-c", CLIENT, metadata, name.replace("=", "-")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_client_of_this_machine_shares_memory(on_sockets: str) -> None:
    assert said(on_sockets) == ["100000 shared", "shared"]


@needs_root
def test_a_client_that_is_the_same_user_in_another_namespace_of_users_shares_memory(
    on_sockets: str,
) -> None:
    assert said(on_sockets, "unshare", "--user") == ["100000 shared", "shared"]


@needs_root
def test_a_client_in_another_network_goes_over_flight_unless_it_is_forced_not_to(
    on_sockets: str,
) -> None:
    """As in a container: it reaches the servers, and not the socket for shared memory."""
    ways, refusal = said(on_sockets, "unshare", "--net")
    assert ways == "100000 flight"
    assert refusal.startswith('the transport is "shared", and this process shares no memory with ')
    assert "its socket is not in this network, which is that of another machine" in refusal


@pytest.mark.slow
@needs_root
def test_a_client_of_another_user_goes_over_flight_unless_it_is_forced_not_to(
    on_sockets: str,
) -> None:
    """It may read every file, as Python may lie where only root can read it."""
    may_read = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    ways, refusal = said(on_sockets, "setpriv", f"--reuid={NOBODY}", "--clear-groups", *may_read)
    assert ways == "100000 flight"
    assert (
        f"is a process of user 0, and this one of user {NOBODY}; set cluster.transport" in refusal
    )
