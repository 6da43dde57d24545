"""Iceberg's REST catalog of its own tests, on loopback, with a catalog in SQLite behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.built import iceberg_class_path
from tests.services.java import QUICK_START, java_command
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.starts import answers, wait_for

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


@dataclass(frozen=True)
class IcebergRest:
    """One that runs."""

    port: int
    warehouse: Path
    server: ServerProcess

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def await_ready(self) -> None:
        """Wait until it answers."""
        wait_for(lambda: answers(self.port, "/v1/config"), [self.server])


@contextmanager
def running_iceberg_rest(port: int = 0) -> Iterator[IcebergRest]:
    """One that is ready; port 0 stands for any. Raises NotBuiltError and StartFailedError."""
    jars = iceberg_class_path()
    with reserved_port(port) as port, service_folder("iceberg") as folder:
        warehouse = folder / "warehouse"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CATALOG_REST_PORT": str(port),
            "CATALOG_WAREHOUSE": str(warehouse),
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
        }
        command = [*java_command(folder, QUICK_START, jars), _MAIN]
        with server_process("iceberg-rest", command, folder, environment) as server:
            catalog = IcebergRest(port, warehouse, server)
            catalog.await_ready()
            yield catalog
