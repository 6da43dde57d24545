"""Flight actions by name: decode the body, call a handler, encode its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.shuffle.wire.protocol import Done, Message, decode
from mrflight.system.malloc import return_freed_memory

LARGE_BYTES = 2**20
"""The size of a large request: far more than a job of thousands of partitions sends."""


def answer_keepalive(_: Done) -> Message:
    """Answer, and do nothing else."""
    return Done()


class Actions:
    """The actions of one server, each with its message and its handler."""

    def __init__(
        self, handlers: Mapping[str, tuple[type[Message], Callable[[Any], Message]]]
    ) -> None:
        self._handlers = handlers

    def answer(self, action: flight.Action) -> list[bytes]:
        """Return the results of an action; raise ProtocolError if it is unknown or malformed."""
        if action.type not in self._handlers:
            raise ProtocolError(
                f"unknown action {action.type[:64]!r}; the actions are {', '.join(self._handlers)}"
            )
        message, handler = self._handlers[action.type]
        body = memoryview(action.body)
        if len(body) >= LARGE_BYTES:
            # gRPC received it in thousands of pieces, and malloc keeps 30 to 100 MiB of 100 MB.
            return_freed_memory()
        return [msgspec.json.encode(handler(decode(body, message)))]

    def listing(self) -> list[tuple[str, str]]:
        """Return the name and meaning of each action, as Flight lists them."""
        return [
            (str(name), (message.__doc__ or "").partition("\n")[0])
            for name, (message, _) in self._handlers.items()
        ]
