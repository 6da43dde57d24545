"""Flight actions by name: decode the body, call a handler, encode its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.security.principal import Role
from mrflight.shuffle.wire.protocol import Done, Message, decode
from mrflight.system.malloc import return_freed_memory

from .guard import OF_SHUFFLE, Guard, check_token

LARGE_BYTES = 2**20
"""The size of a large request: far more than a job of thousands of partitions sends."""


def answer_keepalive(_: Done) -> Message:
    """Answer, and do nothing else."""
    return Done()


class Handler(NamedTuple):
    """What answers an action, and who may call it."""

    message: type[Message]
    answer: Callable[..., Message]
    allowed: frozenset[Role]
    token_of: str = ""
    """Of what the message has a token, which a caller needs that may not see all: see `Guard`."""
    by_caller: bool = False
    """Whether ``answer`` takes the name of the caller as well."""


def of_shuffle(
    message: type[Message], answer: Callable[[Any], Message], allowed: frozenset[Role]
) -> Handler:
    """Return the handler of a message that names a shuffle."""
    return Handler(message, answer, allowed, OF_SHUFFLE)


class Actions:
    """The actions of one server; ``rare`` are loaded when one that is not in ``handlers`` comes."""

    def __init__(
        self, handlers: Mapping[str, Handler], rare: Callable[[], Mapping[str, Handler]] = dict
    ) -> None:
        self._handlers = handlers
        self._rare = rare

    def answer(self, action: flight.Action, guard: Guard, context: Any) -> list[bytes]:
        """Return the results of an action.

        Raises ProtocolError if it is unknown or malformed, and AccessDeniedError.
        """
        handler = self._handlers.get(action.type) or self._rare().get(action.type)
        if handler is None:
            guard.caller(context)
            raise ProtocolError(
                f"unknown action {action.type[:64]!r}; the actions are {', '.join(self._all())}"
            )
        principal = guard.caller(context, handler.allowed)
        body = memoryview(action.body)
        if len(body) >= LARGE_BYTES:
            # gRPC received it in thousands of pieces, and malloc keeps 30 to 100 MiB of 100 MB.
            return_freed_memory()
        request: Any = decode(body, handler.message)
        if handler.token_of:
            check_token(principal, request.token, handler.token_of)
        more = (principal.name,) if handler.by_caller else ()
        return [msgspec.json.encode(handler.answer(request, *more))]

    def listing(self) -> list[tuple[str, str]]:
        """Return the name and meaning of each action, as Flight lists them."""
        return [
            (str(name), (handler.message.__doc__ or "").partition("\n")[0])
            for name, handler in self._all().items()
        ]

    def _all(self) -> dict[str, Handler]:
        return {**self._handlers, **self._rare()}
