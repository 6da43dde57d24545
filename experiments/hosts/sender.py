"""Write rows into a shuffle and read them again, each phase when a line comes on stdin.

It prints "ready", and after each phase a JSON object: the seconds, the bytes of Arrow data, and the
processor seconds of this process. The arguments are the location of the metadata server, the number
of batches, and the files ca, certificate and key, if there are any.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import pyarrow as pa

import mrflight
from experiments.shuffle_rate import BATCH_ROWS, lineitem
from mrflight.shuffle.client.reader import read_partitions
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.system.malloc import keep_freed_blocks

PARTITIONS = 20


def phase(do: Callable[[], int]) -> None:
    """Wait for a line, do it, and print what it took."""
    sys.stdin.readline()
    used_s, started = sum(os.times()[:2]), time.perf_counter()
    size = do()
    seconds = time.perf_counter() - started
    took = {"seconds": seconds, "bytes": size, "cpu_s": sum(os.times()[:2]) - used_s}
    print(json.dumps(took), flush=True)


def put(shuffle: Shuffle, batches: list[pa.RecordBatch]) -> int:
    with shuffle.writer(0, key=["orderkey"]) as out:
        for batch in batches:
            out.write(batch)
    return sum(batch.nbytes for batch in batches)


def get(shuffle: Shuffle) -> int:
    with shuffle.connections() as connections:
        read = read_partitions(shuffle.key, shuffle.layout()[1], connections)
        return sum(batch.nbytes for partition in read for batch in partition)


def main() -> None:
    metadata, count, *files = sys.argv[1:]
    pa.set_cpu_count(1)  # as a worker does
    keep_freed_blocks()  # as a worker does
    identity = mrflight.Identity(**dict(zip(("ca", "certificate", "key"), files, strict=False)))
    batches = [lineitem(BATCH_ROWS)] * int(count)
    with mrflight.connect(metadata, identity=identity) as cluster:
        shuffle = cluster.create_shuffle(f"rate-{os.getpid()}", partitions=PARTITIONS)
        print("ready", flush=True)
        phase(lambda: put(shuffle, batches))
        phase(lambda: get(shuffle))
        shuffle.drop()


if __name__ == "__main__":
    main()
