"""Tests of the public names: the list is fixed, and each exists, is documented and typed."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import mrflight
from mrflight.frontend import cli
from mrflight.shuffle.client.append_message import Appended
from mrflight.shuffle.client.appender import Appender
from mrflight.shuffle.client.cluster import Cluster
from mrflight.shuffle.client.log_client import LogRows
from mrflight.shuffle.wire.log_protocol import LogPlacement, LogState
from mrflight.streams.stream_result import StreamResult

NAMES = [
    "Cluster",
    "Dataset",
    "Identity",
    "JobResult",
    "MrflightError",
    "Shuffle",
    "ShuffleWriter",
    "StreamResult",
    "col",
    "connect",
    "fresh_token",
    "ingest",
    "lit",
    "partition_ids",
    "read",
    "read_table",
    "run",
    "scan_table",
    "sql",
    "udaf",
    "udf",
]


def test_the_public_names_are_these() -> None:
    assert mrflight.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_exists(name: str) -> None:
    assert getattr(mrflight, name).__name__ == name
    assert name in dir(mrflight)


def test_unknown_names_are_an_attribute_error() -> None:
    hint = "'from_pandas'; mrflight.read reads files of every format, and tables in memory"
    with pytest.raises(AttributeError, match=hint):
        mrflight.from_pandas  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'mrflight' has no attribute 'rnu'$"):
        mrflight.rnu  # noqa: B018 - the access raises


def test_all_public_names_can_be_imported_at_once() -> None:
    names: dict[str, Any] = {}
    exec("from mrflight import *", names)
    assert set(NAMES) <= set(names)


def test_the_version_is_the_installed_one() -> None:
    assert mrflight.__version__ == version("mrflight")


def test_the_command_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith(f"mrflight {version('mrflight')}\nkernel: ")


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(mrflight.__file__).parent / "py.typed").is_file()


def _public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in NAMES:
        value = getattr(mrflight, name)
        if not inspect.isclass(value):
            yield name, value
            continue
        for attribute, member in vars(value).items():
            if attribute.startswith("_") or not (
                inspect.isfunction(member) or isinstance(member, property)
            ):
                continue
            yield f"{name}.{attribute}", member.fget if isinstance(member, property) else member  # type: ignore[misc]


CALLABLES = dict(_public_callables())


@pytest.mark.parametrize("name", [*NAMES, *CALLABLES])
def test_a_public_name_is_documented(name: str) -> None:
    value = CALLABLES[name] if name in CALLABLES else getattr(mrflight, name)
    assert value.__doc__
    assert value.__doc__.strip()[0].isupper() or value.__doc__.startswith("``")


ONLY_FOR_TYPES = {
    each.__name__: each
    for each in (Appended, Appender, Cluster, LogPlacement, LogRows, LogState, StreamResult)
}
"""What is imported where it is used, as most programs append nothing and run no stream."""


@pytest.mark.parametrize("name", CALLABLES)
def test_a_public_callable_is_typed(name: str) -> None:
    function = CALLABLES[name]
    hints = typing.get_type_hints(function, localns=ONLY_FOR_TYPES)
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert set(hints) == parameters | {"return"}
