"""Tests of the public names: the list is fixed, and each exists, is documented and typed."""

from __future__ import annotations

import ast
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import mrflight
from mrflight.frontend import cli
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused

FIXED = {"Shuffle", "connect", "partition_ids", "run"}
"""The names that programs of others call, whatever else changes."""


def test_the_fixed_names_are_public() -> None:
    assert set(mrflight.__all__) >= FIXED


def test_the_public_names_exist_once_and_in_order() -> None:
    assert mrflight.__all__ == sorted(set(mrflight.__all__))
    with cases() as case:
        for name in mrflight.__all__:
            with case(name):
                assert getattr(mrflight, name).__name__ == name
                assert name in dir(mrflight)


def test_unknown_names_are_an_attribute_error() -> None:
    hint = "'from_pandas'; mrflight.read reads files of every format, and tables in memory"
    with pytest.raises(AttributeError, match=hint):
        mrflight.from_pandas  # noqa: B018
    with refused(AttributeError):
        mrflight.rnu  # noqa: B018 - the access raises


def test_all_public_names_can_be_imported_at_once() -> None:
    names: dict[str, Any] = {}
    exec("from mrflight import *", names)
    assert set(mrflight.__all__) <= set(names)


def test_the_version_is_the_installed_one() -> None:
    assert mrflight.__version__ == version("mrflight")


def test_the_command_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith(f"mrflight {version('mrflight')}\nkernel: ")


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(mrflight.__file__).parent / "py.typed").is_file()


def _public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in mrflight.__all__:
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


def test_the_public_names_are_documented() -> None:
    callables = dict(_public_callables())
    with cases() as case:
        for name in [*mrflight.__all__, *callables]:
            with case(name):
                value = callables[name] if name in callables else getattr(mrflight, name)
                assert value.__doc__
                assert value.__doc__.strip()[0].isupper() or value.__doc__.startswith("``")


def _names_for_types(module: str) -> dict[str, Any]:
    """Return what a module imports only for its type hints, as most programs use little of it."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    names: dict[str, Any] = {}
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for each in block.body:
                if isinstance(each, ast.ImportFrom | ast.Import):
                    exec(ast.unparse(each), names)
    return names


def test_the_public_callables_are_typed() -> None:
    with cases() as case:
        for name, function in _public_callables():
            with case(name):
                only_for_types = _names_for_types(function.__module__)
                hints = typing.get_type_hints(function, localns=only_for_types)
                parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
                assert set(hints) == parameters | {"return"}
