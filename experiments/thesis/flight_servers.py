"""The servers of the third prototype, each in a process of its own (section 3.3).

``python -m experiments.thesis.flight_servers metadata FOLDER N`` runs the metadata server, which
starts N data servers as the thesis's does. A server prints its location when it is ready, and ends
with its standard input. So no server outlives the process that started it.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyarrow import flight, ipc

from experiments.thesis.arrow_batches import SCHEMA, read_file
from experiments.thesis.server_process import ServerProcess

MODULE = "experiments.thesis.flight_servers"
_ANY_PORT = "grpc+tcp://127.0.0.1:0"


class DataServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Stores what shufflers put, in a file per input file and partition."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_ANY_PORT)
        self._folder = folder

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Store a stream, batch by batch; the path is dataset, partition, input file."""
        dataset, partition, source = (part.decode() for part in descriptor.path)
        folder = self._folder / dataset / partition
        folder.mkdir(parents=True, exist_ok=True)
        with ipc.new_file(str(folder / source), reader.schema) as out:
            for chunk in reader:
                out.write_batch(chunk.data)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        """Stream the files of one partition, one after another."""
        folder = self._folder / ticket.ticket.decode()
        return flight.GeneratorStream(SCHEMA, self._batches(sorted(folder.iterdir())))

    @staticmethod
    def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
        for path in files:
            yield from read_file(path)


class MetadataServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Knows which data server has which partition, and holds no data itself."""

    def __init__(self, data_servers: list[str]) -> None:
        super().__init__(_ANY_PORT)
        self._data_servers = data_servers
        self._partitions: dict[str, list[dict[str, str]]] = {}

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        """Assign the partitions of a data set to data servers: ``put_shuffle`` (Listing 3.1)."""
        if action.type != "put_shuffle":
            raise flight.FlightServerError(f"no action {action.type}")
        request = json.loads(action.body.to_pybytes())
        dataset, servers = request["id"], self._data_servers
        self._partitions[dataset] = [
            {"location": servers[number % len(servers)], "descriptor": f"{dataset}/{number}"}
            for number in range(request["Reducers"])
        ]
        response = {"partitions": self._partitions[dataset]}
        yield flight.Result(json.dumps(response).encode())

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return the ticket and the location of each partition of a data set (Listing 3.2)."""
        endpoints = [
            flight.FlightEndpoint(partition["descriptor"], [partition["location"]])
            for partition in self._partitions[descriptor.path[0].decode()]
        ]
        return flight.FlightInfo(SCHEMA, descriptor, endpoints, -1, -1)


def _serve_until_orphaned(server: flight.FlightServerBase) -> None:
    print(f"grpc+tcp://127.0.0.1:{server.port}", flush=True)
    sys.stdin.buffer.read()
    server.shutdown()


def _serve_metadata(folder: Path, data_servers: int) -> None:
    with ExitStack() as stack:
        started = []
        for number in range(data_servers):
            arguments = ("data", str(folder / f"server-{number}"))
            started.append(stack.enter_context(ServerProcess(MODULE, *arguments)))
        _serve_until_orphaned(MetadataServer([server.location() for server in started]))


if __name__ == "__main__":
    # Ctrl-C is for the driver, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    match sys.argv[1:]:
        case ["metadata", folder, data_servers]:
            _serve_metadata(Path(folder), int(data_servers))
        case ["data", folder]:
            _serve_until_orphaned(DataServer(Path(folder)))
        case _:
            sys.exit("usage: metadata FOLDER DATA_SERVERS | data FOLDER")
