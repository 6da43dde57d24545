"""Lambdas, closures and objects are pickled, or are refused with a reason."""

from __future__ import annotations

import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.functions import FunctionRef
from mrflight.config.pickled_functions import MAX_BYTES, name_of, pickle_function
from mrflight.errors import UserFunctionError
from tests.support.suite.messages import refused


@pytest.fixture(autouse=True)
def _restore_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Times:
    """A callable with state."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, number: int) -> int:
        return number * self.factor


def plus_one(number: int) -> int:
    return number + 1


def ref(text: str) -> FunctionRef:
    return FunctionRef.parse(text, "inputs.visits.map", "/nowhere")


def test_lambdas_closures_objects_and_partials_are_pickled() -> None:
    factor = 3

    def times(number: int) -> int:
        return number * factor

    functions: list[Any] = [lambda number: number * 3, times, Times(3), partial(max, 6), plus_one]
    assert [ref(pickle_function(each, "map")).load()(2) for each in functions] == [6, 6, 6, 6, 3]


def test_messages_name_a_function() -> None:
    def inner(number: int) -> int:
        return number

    unnamed = lambda number: number  # noqa: E731 - the test needs an unnamed function
    line = unnamed.__code__.co_firstlineno
    where = f"<lambda> (test_pickled_functions.py, line {line})"
    assert name_of(unnamed) == where
    assert name_of(plus_one) == "plus_one"
    assert name_of(Times(3)) == "Times"
    assert name_of(partial(plus_one)) == "plus_one"
    assert str(ref(pickle_function(unnamed, "map"))) == where
    assert name_of(inner).startswith("inner (test_pickled_functions.py, line ")


def test_a_function_is_loaded_once_per_process() -> None:
    text = pickle_function(Times(3), "map")
    assert ref(text).load() is ref(text).load()


def test_references_are_equal_if_their_functions_are() -> None:
    text = pickle_function(Times(3), "map")
    copy = pickle.loads(pickle.dumps(ref(text)))
    assert copy == ref(text)
    assert hash(copy) == hash(ref(text))
    assert ref(pickle_function(Times(4), "map")) != copy
    assert copy.load()(2) == 6


def test_a_function_is_pickled_in_its_present_state() -> None:
    times = Times(3)
    text = pickle_function(times, "map")
    times.factor = 4
    assert ref(text).load()(2) == 6


def test_a_function_that_cannot_be_pickled_is_reported_with_its_name() -> None:
    lock = threading.Lock()

    def locked(number: int) -> int:
        with lock:
            return number

    with pytest.raises(UserFunctionError) as caught:
        pickle_function(locked, "map")
    message = str(caught.value)
    assert message.startswith("map: locked (test_pickled_functions.py, line ")
    assert " cannot be sent to workers: TypeError: cannot pickle '_thread.lock' object; " in message


def test_a_function_with_too_much_data_is_refused() -> None:
    table = bytes(MAX_BYTES)
    with refused(UserFunctionError):
        pickle_function(lambda number: table[number], "map")


@pytest.mark.parametrize("text", ["pickled:", "pickled::a", "pickled:a:"])
def test_a_text_without_a_name_or_bytes_is_not_a_function(text: str) -> None:
    with refused(UserFunctionError, "inputs.visits.map"):
        ref(text)


@pytest.mark.parametrize("body", ["AAAA", "!", "gASVAAAA"])
def test_bytes_that_are_not_a_callable_are_reported(body: str) -> None:
    with refused(UserFunctionError, "inputs.visits.map"):
        ref(f"pickled:weigh:{body}").load()


@pytest.fixture
def weigh(tmp_path: Path) -> str:
    """Return a pickled function from a module beside a script, which is no longer imported."""
    (tmp_path / "users_weights.py").write_text("def weigh(number):\n    return number * 5\n")
    sys.path.insert(0, str(tmp_path))
    text = pickle_function(import_module("users_weights").weigh, "map")
    sys.path.remove(str(tmp_path))
    del sys.modules["users_weights"]
    return text


def test_modules_beside_the_script_are_found(weigh: str) -> None:
    assert ref(weigh).load()(2) == 10


def test_a_module_that_the_worker_does_not_have_is_reported(weigh: str, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    with refused(UserFunctionError, "inputs.visits.map"):
        ref(weigh).load()
