"""Tests of the HDFS that tests and experiments use: a name node and two data nodes."""

from __future__ import annotations

from pathlib import Path

import deltalake
import psutil
import pyarrow as pa
import pytest

from tests.services.hdfs import Hdfs, running_hdfs
from tests.support.clusters.service_processes import ended_without_a_trace, somebody_listens

pytestmark = pytest.mark.slow

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.mark.smoke
def test_a_delta_table_is_written_and_read_back(hdfs: Hdfs) -> None:
    table = f"{hdfs.folder()}/table"
    deltalake.write_deltalake(table, ROWS)
    assert deltalake.DeltaTable(table).to_pyarrow_table().equals(ROWS)


def test_there_are_two_data_nodes(hdfs: Hdfs) -> None:
    addresses = hdfs.live_data_nodes()
    assert len(addresses) == 2
    listening = {
        f"{connection.laddr.ip}:{connection.laddr.port}"
        for server in hdfs.data_nodes
        for connection in psutil.Process(server.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert set(addresses) <= listening


def test_it_listens_on_loopback_only(hdfs: Hdfs) -> None:
    for server in (hdfs.name_node, *hdfs.data_nodes):
        connections = psutil.Process(server.pid).net_connections()
        listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}


def test_with_two_replicas_both_data_nodes_have_each_block(needs_hdfs: None) -> None:
    with running_hdfs(replication=2) as hdfs:
        servers = [hdfs.name_node, *hdfs.data_nodes]
        deltalake.write_deltalake(f"{hdfs.folder()}/table", ROWS)
        one, other = (_blocks(hdfs.name_node.log.parent / f"data-{node}") for node in range(2))
        assert one == other
        assert len(one) == 2  # the part and the log
    ended_without_a_trace(servers)


def _blocks(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("blk_*") if path.suffix != ".meta"}


def test_the_error_for_a_port_in_use_names_it(needs_hdfs: None) -> None:
    with somebody_listens() as (port, refused), refused, running_hdfs(port):
        pytest.fail("it listens on a port in use")
