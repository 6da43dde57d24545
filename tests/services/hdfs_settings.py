"""The files of settings that an HDFS reads from a folder on its class path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from tests.services.reserved_port import LOOPBACK

_LOG = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
# It says more than once that this is the system's own folder, and that libhadoop is not there.
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


def write_settings(
    folder: Path, port: int, http_port: int, data_nodes: int, replication: int, block_bytes: int
) -> None:
    """Into a folder that is then on the class path, with the folders that the servers look for."""
    for webapp in ("hdfs", "datanode"):  # empty: only the metrics are asked for
        (folder / "webapps" / webapp).mkdir(parents=True)
    (folder / "log4j.properties").write_text(_LOG)
    core = {
        "fs.defaultFS": f"hdfs://{LOOPBACK}:{port}",
        "hadoop.tmp.dir": folder.parent / "tmp",
        # Of data nodes that are started before the name node listens.
        "ipc.client.connect.retry.interval": 50,
        "ipc.client.connect.max.retries": 600,
    }
    hdfs = {
        "dfs.namenode.name.dir": folder.parent / "name",
        "dfs.namenode.http-address": f"{LOOPBACK}:{http_port}",
        "dfs.namenode.datanode.registration.ip-hostname-check": False,  # it asks the DNS
        "dfs.namenode.safemode.min.datanodes": data_nodes,
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.fs-limits.min-block-size": min(block_bytes, 1 << 20),
        "dfs.blocksize": block_bytes,
        "dfs.replication": replication,
        "dfs.permissions.enabled": True,  # whoever runs the tests may do all: he started it
        "dfs.heartbeat.interval": 1,
        "dfs.datanode.hostname": LOOPBACK,
    }
    _write(folder / "core-site.xml", core)
    _write(folder / "hdfs-site.xml", hdfs)


def _write(path: Path, settings: Mapping[str, object]) -> None:
    root = ElementTree.Element("configuration")
    for name, value in settings.items():
        element = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(element, "name").text = name
        ElementTree.SubElement(element, "value").text = (
            str(value).lower() if isinstance(value, bool) else str(value)
        )
    ElementTree.ElementTree(root).write(path)
