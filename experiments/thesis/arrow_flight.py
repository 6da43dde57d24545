"""The third prototype: Flight servers store the shuffled rows (section 3.3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from experiments.thesis.arrow_batches import SCHEMA, map_file, read_file, reduce_batches, split
from experiments.thesis.server_process import ServerProcess
from experiments.thesis.step import Folders, Step

DATA_SERVERS = 5  # the number in the example of section 3.3.1
_DATASET = "clicks"


def shuffle_file(mapped: Path, endpoints: list[dict[str, str]]) -> None:
    """Stream the rows of each batch to the servers of their partitions."""
    with ExitStack() as stack:
        clients = {
            location: stack.enter_context(flight.connect(location))
            for location in {endpoint["location"] for endpoint in endpoints}
        }
        writers = []
        for endpoint in endpoints:
            path = flight.FlightDescriptor.for_path(*endpoint["descriptor"].split("/"), mapped.name)
            writer, _ = clients[endpoint["location"]].do_put(path, SCHEMA)
            writers.append(stack.enter_context(writer))
        for batch in read_file(mapped):
            for partition, rows in split(batch, len(writers)):
                writers[partition].write_batch(rows)


def reduce_partition(location: str, ticket: bytes, reduced: Path) -> None:
    """Sum the weights of each key over the stream of one partition."""
    with flight.connect(location) as client:
        reduce_batches(_batches(client.do_get(flight.Ticket(ticket))), reduced)


def _batches(stream: flight.FlightStreamReader) -> Iterator[pa.RecordBatch]:
    for chunk in stream:
        yield chunk.data


def put_shuffle(metadata: flight.FlightClient, partitions: int) -> list[dict[str, str]]:
    """Ask the metadata server to assign the partitions; return location and descriptor of each."""
    request = json.dumps({"id": _DATASET, "Reducers": partitions}).encode()
    (response,) = metadata.do_action(flight.Action("put_shuffle", request))
    endpoints: list[dict[str, str]] = json.loads(response.body.to_pybytes())["partitions"]
    return endpoints


def flight_info(metadata: flight.FlightClient) -> list[tuple[str, bytes]]:
    """Return the location and the ticket of each partition."""
    info = metadata.get_flight_info(flight.FlightDescriptor.for_path(_DATASET))
    return [
        (endpoint.locations[0].uri.decode(), endpoint.ticket.ticket) for endpoint in info.endpoints
    ]


@contextmanager
def prototype(inputs: list[Path], work: Path, partitions: int) -> Iterator[Iterator[Step]]:
    """Yield the steps for ``inputs``, with their files in ``work``, while the servers run."""
    arguments = ("metadata", str(work / "servers"), str(DATA_SERVERS))
    with (
        ServerProcess("experiments.thesis.flight_servers", *arguments) as server,
        flight.connect(server.location()) as metadata,
    ):
        yield _steps(metadata, inputs, Folders(work), partitions)


def _steps(
    metadata: flight.FlightClient, inputs: list[Path], folders: Folders, partitions: int
) -> Iterator[Step]:
    """Yield the steps.

    The driver asks the metadata server for what the tasks of the next step need.
    """
    endpoints = put_shuffle(metadata, partitions)
    mapped = [folders.mapped / f"{path.stem}.arrow" for path in inputs]
    yield Step("map", map_file, list(zip(inputs, mapped, strict=True)))
    yield Step("shuffle", shuffle_file, [(path, endpoints) for path in mapped])
    yield Step(
        "reduce",
        reduce_partition,
        [
            (location, ticket, folders.reduced / f"{number:04}.csv")
            for number, (location, ticket) in enumerate(flight_info(metadata))
        ],
    )
