"""A real kernel of Jupyter, whose cells a test runs, with what a notebook shows below them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.support.suite.waiting import hang_s

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Shown:
    """What a notebook shows below a cell."""

    streams: dict[str, str] = field(default_factory=dict)
    """What was written to ``stdout`` and ``stderr``."""
    displays: list[list[Mapping[str, str]]] = field(default_factory=list)
    """The outputs by MIME type: each place with what was shown there, one after the other."""
    result: Mapping[str, str] = field(default_factory=dict)
    """The value of the last line, by MIME type."""
    error: str = ""
    """The traceback as the notebook prints it, without colours."""


class Notebook:
    """Runs cells in a kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client

    def run(self, cell: str, *, interrupt_at: str | None = None) -> Shown:
        """Run a cell to its end; interrupt the kernel once the cell has printed a text."""
        request = self._client.execute(cell)
        shown = Shown()
        places: dict[str, list[Mapping[str, str]]] = {}
        while True:
            message = self._client.get_iopub_msg(timeout=hang_s())
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                assert interrupt_at is None, "it was never printed"
                return shown
            _add(kind, content, shown, places)
            if interrupt_at is not None and interrupt_at in shown.streams.get("stdout", ""):
                self._manager.interrupt_kernel()
                interrupt_at = None


def _add(
    kind: str, content: Mapping[str, Any], shown: Shown, places: dict[str, list[Mapping[str, str]]]
) -> None:
    """Add a message of the kernel to what is shown."""
    if kind == "stream":
        name = content["name"]
        shown.streams[name] = shown.streams.get(name, "") + content["text"]
    elif kind == "display_data":
        place = [content["data"]]
        shown.displays.append(place)
        places[content["transient"].get("display_id", "")] = place
    elif kind == "update_display_data":
        places[content["transient"]["display_id"]].append(content["data"])
    elif kind == "execute_result":
        shown.result = content["data"]
    elif kind == "error":
        shown.error = _COLOURS.sub("", "\n".join(content["traceback"]))


@contextmanager
def open_notebook(folder: Path, own: Path, environment: Mapping[str, str]) -> Iterator[Notebook]:
    """Start a kernel in ``folder``, whose own files are in ``own``; it ends with the context."""
    sockets = own / "kernel"  # the kernel adds to it
    manager = KernelManager(
        connection_file=str(own / "kernel.json"), transport="ipc", ip=str(sockets)
    )
    manager.start_kernel(
        cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(own / "ipython"), **environment}
    )
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=hang_s())
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
