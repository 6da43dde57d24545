"""A map and a reduce over a standing cluster, for which Arrow Flight is all one has to know.

Usage: client.py METADATA, for example grpc+tcp://127.0.0.1:5005

Words are sent to the partition of their first letter, and counted there.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

PARTITIONS = 3
LINES = ["a tale of two cities", "the tale of a tub", "two on a tower"]


def call(client: flight.FlightClient, action: str, request: Mapping[str, Any]) -> Any:
    """Return the answer to an action, whose body is JSON as the request's is."""
    (answer,) = client.do_action((action, json.dumps(request).encode()))
    return json.loads(answer.body.to_pybytes())


def run_map(metadata: flight.FlightClient, map_id: int, line: str, targets: list[Any]) -> None:
    """Put the words of a line where they belong, and commit them as one attempt of a map."""
    words: list[list[str]] = [[] for _ in targets]
    for word in line.split():
        words[ord(word[0]) % len(targets)].append(word)
    schema = pa.schema([("word", pa.string())])
    for target, rows in zip(targets, words, strict=True):
        if not rows:
            continue
        with flight.FlightClient(target["location"]) as data:
            path = flight.FlightDescriptor.for_path(target["descriptor"], str(map_id), "0")
            writer, answers = data.do_put(path, schema)
            writer.write_batch(pa.record_batch([pa.array(rows)], schema=schema))
            writer.done_writing()
            while answers.read() is not None:  # the rows are stored before the put ends
                pass
            writer.close()
    commit = {
        "id": "words",
        "map_id": map_id,
        "attempt": 0,
        "schema": base64.b64encode(schema.serialize()).decode(),
        "rows": [len(rows) for rows in words],
        "size_bytes": [sum(map(len, rows)) for rows in words],
    }
    call(metadata, "commit_map", commit)


def main() -> None:
    with flight.FlightClient(sys.argv[1]) as metadata:
        request = {"id": "words", "reducers": PARTITIONS}
        targets = call(metadata, "put_shuffle", request)["partitions"]
        for map_id, line in enumerate(LINES):
            run_map(metadata, map_id, line, targets)
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("words"))
        for endpoint in info.endpoints:
            with flight.FlightClient(endpoint.locations[0]) as data:
                words = Counter(data.do_get(endpoint.ticket).read_all()["word"].to_pylist())
            for word, count in sorted(words.items()):
                print(word, count)
        for location in call(metadata, "drop_shuffle", {"id": "words"}).get("locations", []):
            with flight.FlightClient(location) as data:
                call(data, "drop_shuffle", {"id": "words"})


if __name__ == "__main__":
    main()
