"""The topics of a cluster are read while its only broker is fenced.

A real broker is fenced for a moment after its start, or when its heartbeats are late. The metadata
that it then returns has no brokers. This one returns that to each request for no topics. It speaks
as much of Kafka's protocol as that takes (https://kafka.apache.org/protocol).
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.commands.scripts import run_script

METADATA, API_VERSIONS = 3, 18
UNSUPPORTED_VERSION = 35
VERSIONS = {METADATA: 4, API_VERSIONS: 0}

PROGRAM = """
import sys
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.topic_offsets import KafkaCluster

found = KafkaCluster(ClientSettings("events", sys.argv[1])).topics(["visits"])
print(found.cluster_id, [(topic.name, topic.partitions) for topic in found.topics])
"""


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class FencedBroker(socketserver.StreamRequestHandler):
    """Has a topic of one partition, which it leads while it is not fenced."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", size))
            key, version, number, client = struct.unpack(">hhih", request[:10])
            body = (
                self._versions(version)
                if key == API_VERSIONS
                else self._metadata(request[10 + client :])
            )
            self.wfile.write(struct.pack(">ii", 4 + len(body), number) + body)

    def _versions(self, asked: int) -> bytes:
        supported = [struct.pack(">hhh", key, 0, last) for key, last in VERSIONS.items()]
        error = UNSUPPORTED_VERSION if asked > VERSIONS[API_VERSIONS] else 0
        return struct.pack(">hi", error, len(supported)) + b"".join(supported)

    def _metadata(self, request: bytes) -> bytes:
        (asked,) = struct.unpack(">i", request[:4])  # -1 stands for all topics
        end = string("fenced") + struct.pack(">i", 1)  # the id of the cluster, and its controller
        if asked == 0:
            return struct.pack(">ii", 0, 0) + end + struct.pack(">i", 0)
        host, port = self.server.server_address
        broker = struct.pack(">iii", 0, 1, 1) + string(host) + struct.pack(">ih", port, -1)
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        topic = struct.pack(">ih", 1, 0) + string("visits") + struct.pack(">bi", 0, 1)
        return broker + end + topic + partition


@pytest.fixture
def fenced() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), FencedBroker) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_topics_of_a_fenced_broker_do_not_end_the_process(fenced: str) -> None:
    done = run_script(PROGRAM, fenced)
    assert (done.stdout, done.returncode) == ("fenced [('visits', (0,))]\n", 0), done.stderr
