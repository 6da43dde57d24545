"""The texts of messages: a test checks the class and the key of an error, and a table has its text.

``with refused(JobFileError, "output.mode"):`` fails unless its block raises such an error about
such a key, with the text that ``tests/messages/`` has for the test. The table is written by
``pytest --rewrite-messages PATHS`` (`make messages`); look at its difference before you commit it.
So whoever words a message in another way changes no test.

A part of a text that differs from run to run has a name in the table (`normalised`). Where luck
decides between texts there is none: such a test has ``pytest.raises(..., match=...)`` with the few
words that are always there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

import pytest

from mrflight.errors import MrflightError
from tests.support.suite.message_table import TABLE, Name, name_of, normalised

E = TypeVar("E", bound=BaseException)

_OUTPUT = "messages"
"""The name under which a worker of pytest-xdist hands over what it has seen."""

_is_rewriting = False
_running: pytest.Function | None = None
_seen: dict[Name, list[str]] = {}
"""The texts of each test, in the order in which it asked for them."""
_ran: set[Name] = set()
_collected: dict[Name, None] = {}


def refused(kind: type[E] | tuple[type[E], ...], key: str | None = None) -> _Refused[E]:
    """Fail unless the block raises an error of a class, about a key, with the text of the table.

    ``key`` is a key path of the job file; None says nothing about it.
    """
    return _Refused(pytest.raises(kind), key)


class _Refused(Generic[E]):
    """No generator: that would add its frame to the traceback of the error."""

    def __init__(self, raises: AbstractContextManager[pytest.ExceptionInfo[E]], key: str | None):
        self._raises = raises
        self._key = key

    def __enter__(self) -> pytest.ExceptionInfo[E]:
        self._caught = self._raises.__enter__()
        return self._caught

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        __tracebackhide__ = True
        if not self._raises.__exit__(kind, error, traceback):
            return False
        if self._key is not None:
            assert isinstance(error, MrflightError), f"{type(error).__name__} has no key"
            assert error.key == self._key, f"it is about {error.key}, not {self._key}: {error}"
        said(str(error))
        return True


def said(text: str) -> None:
    """Fail unless the table has this text as the next of the test that runs."""
    __tracebackhide__ = True
    assert _running is not None, "no test runs"
    name = name_of(_running)
    seen = _seen.setdefault(name, [])
    seen.append(normalised(text))
    if not _is_rewriting:
        expected = TABLE.text_of(name, len(seen) - 1)
        hint = "if this is meant: pytest --rewrite-messages, and look at the difference"
        assert seen[-1] == expected, hint


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-messages",
        action="store_true",
        help="write tests/messages by the messages of this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    global _is_rewriting
    _is_rewriting = config.getoption("--rewrite-messages")


@pytest.hookimpl(tryfirst=True)  # before any are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = [name_of(item) for item in items if isinstance(item, pytest.Function)]
    _collected.update(dict.fromkeys(names))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that runs once more asks for its texts from the first on."""
    global _running
    _running = item if isinstance(item, pytest.Function) else None
    if _running is not None:
        _seen.pop(name_of(_running), None)


def pytest_runtest_call() -> None:
    if _running is not None:
        _ran.add(name_of(_running))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table, or hand what this worker has seen to the process that does."""
    if not _is_rewriting:
        return
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        seen = [([*name], texts) for name, texts in _seen.items()]
        output[_OUTPUT] = (seen, [[*name] for name in _ran], [[*name] for name in _collected])
        return
    TABLE.rewrite(_seen, _ran, _collected)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over what a worker has seen."""
    seen, ran, collected = getattr(node, "workeroutput", {}).get(_OUTPUT, ([], [], []))
    _seen.update((Name(*name), texts) for name, texts in seen)
    _ran.update(Name(*name) for name in ran)
    _collected.update((Name(*name), None) for name in collected)
