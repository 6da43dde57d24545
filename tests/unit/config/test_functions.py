"""A function is loaded from a module beside the job file or from an installed one."""

from __future__ import annotations

import colorsys
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrflight.config.functions import FunctionRef, calling_user, check_function
from mrflight.errors import UserFunctionError, UserFunctionRaisedError
from tests.support.suite.messages import refused

Write = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _restore_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a user's module into the job file's folder."""

    def write_module(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write_module


@pytest.fixture
def ref(tmp_path: Path) -> Callable[[str], FunctionRef]:
    return lambda text: FunctionRef.parse(text, "inputs.visits.map", str(tmp_path))


Ref = Callable[[str], FunctionRef]


def reason(ref: FunctionRef) -> str:
    with pytest.raises(UserFunctionError) as caught:
        ref.load()
    return str(caught.value)


def test_a_module_beside_the_job_file_is_loaded(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "def weigh(batch): return ('weighed', batch)")
    assert ref("users_clicks:weigh").load()(1) == ("weighed", 1)


def test_a_module_beside_the_job_file_may_import_another(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "from users_helpers import weigh")
    write("users_helpers.py", "def weigh(batch): return batch + 1")
    assert ref("users_clicks:weigh").load()(1) == 2


def test_a_module_in_a_package_is_loaded(write: Write, ref: Ref) -> None:
    write("users_package/__init__.py", "")
    write("users_package/clicks.py", "class Weights:\n    @staticmethod\n    def one(b): return 1")
    assert ref("users_package.clicks:Weights.one").load()(None) == 1


def test_an_installed_module_is_loaded(ref: Ref) -> None:
    assert ref("math:sqrt").load() is math.sqrt


def test_a_module_beside_the_job_file_comes_before_an_installed_one(write: Write, ref: Ref) -> None:
    write("sched.py", "def weigh(batch): return 'ours'")
    loaded = sys.modules.pop("sched", None)
    try:
        assert ref("sched:weigh").load()(None) == "ours"
    finally:
        sys.modules.pop("sched", None)
        if loaded is not None:
            sys.modules["sched"] = loaded


def test_a_module_beside_the_job_file_comes_before_one_that_is_loaded(
    write: Write, ref: Ref
) -> None:
    assert sys.modules["colorsys"] is colorsys
    write("colorsys.py", "def weigh(batch): return 'ours'")
    assert ref("colorsys:weigh").load()(None) == "ours"


def test_a_module_in_a_package_is_not_a_file_of_its_last_name(write: Write, ref: Ref) -> None:
    write("users_package/__init__.py", "")
    write("users_package/clicks.py", "def weigh(batch): return 'inner'")
    write("clicks.py", "def weigh(batch): return 'outer'")
    for _ in range(2):
        assert ref("users_package.clicks:weigh").load()(None) == "inner"


def test_a_folder_of_data_beside_the_job_file_is_not_a_module(write: Write, ref: Ref) -> None:
    write("colorsys/visits.csv", "url")
    assert ref("colorsys:rgb_to_hsv").load() is colorsys.rgb_to_hsv


def test_a_module_is_loaded_once(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "def weigh(batch): return 3")
    write("colorsys.py", "def weigh(batch): return 3")
    for name in ("users_clicks:weigh", "colorsys:weigh"):
        assert ref(name).load() is ref(name).load()


def test_the_reference_is_pickled_and_not_the_function(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "def weigh(batch): return 3")
    copy = pickle.loads(pickle.dumps(ref("users_clicks:weigh")))
    assert str(copy) == "users_clicks:weigh"
    assert copy.load()(None) == 3
    assert len(pickle.dumps(copy)) < 1000


def test_a_check_loads_the_function(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "def weigh(batch): return 3")
    check_function(ref("users_clicks:weigh"))
    with pytest.raises(UserFunctionError):
        check_function(ref("users_clicks:wiegh"))


def test_a_missing_module_is_reported(ref: Ref, tmp_path: Path) -> None:
    message = reason(ref("users_nothing:weigh"))
    assert message == (
        f"inputs.visits.map: there is no module 'users_nothing' in {tmp_path}, nor an installed one"
    )


def test_a_missing_module_of_a_package_is_reported(write: Write, ref: Ref) -> None:
    write("users_package/__init__.py", "")
    message = reason(ref("users_package.nothing:weigh"))
    assert message.startswith("inputs.visits.map: ")
    assert "'users_package.nothing'" in message


def test_a_missing_function_is_reported(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "def weigh(batch): return batch\nlimit = 3")
    assert reason(ref("users_clicks:wiegh")) == (
        f"inputs.visits.map: module 'users_clicks' ({sys.modules['users_clicks'].__file__}) has no "
        "function 'wiegh'; did you mean 'weigh'?"
    )
    assert reason(ref("users_clicks:limit")).endswith("has no function 'limit'")
    assert reason(ref("users_clicks:nothing.deeper")).endswith("no function 'nothing.deeper'")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("raise ValueError('no weights')", "ValueError: no weights"),
        ("def weigh(:", "SyntaxError: "),
        ("import users_missing_dependency", "No module named 'users_missing_dependency'"),
        ("from math import nothing", "ImportError: cannot import name 'nothing'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_of_an_import_is_reported(write: Write, ref: Ref, text: str, cause: str) -> None:
    write("users_clicks.py", text)
    message = reason(ref("users_clicks:weigh"))
    assert message.startswith("inputs.visits.map: importing 'users_clicks' failed: ")
    assert cause in message


@pytest.mark.parametrize("code", ["0", "1", "'usage: clicks FILE'"])
def test_an_exit_in_an_import_is_reported(write: Write, ref: Ref, code: str) -> None:
    write("users_clicks.py", f"import sys\nsys.exit({code})")
    message = reason(ref("users_clicks:weigh"))
    assert message.startswith("inputs.visits.map: importing 'users_clicks' failed: SystemExit")


def test_a_failed_import_keeps_its_cause(write: Write, ref: Ref) -> None:
    write("users_clicks.py", "raise ValueError('no weights')")
    with pytest.raises(UserFunctionError) as caught:
        ref("users_clicks:weigh").load()
    assert isinstance(caught.value.__cause__, ValueError)


def connect() -> None:
    """Raise an error of a library that does not say that the system is its cause."""
    try:
        raise ConnectionRefusedError(111, "Connection refused")
    except OSError:
        raise RuntimeError("the service does not answer") from None


@pytest.mark.parametrize(
    ("function", "by_system"),
    [
        (lambda: {}["weight"], False),
        (lambda: 1 // 0, False),
        (lambda: sys.exit("no weight"), False),
        (lambda: Path("/nothing/here").read_text(), True),
        (lambda: bytes(2**62), True),
        (connect, True),
    ],
)
def test_a_function_that_raised_may_have_met_a_failure_of_the_system(
    function: Callable[[], object], by_system: bool
) -> None:
    with pytest.raises(UserFunctionRaisedError) as raised, calling_user("the map weigh"):
        function()
    sent: UserFunctionRaisedError = pickle.loads(pickle.dumps(raised.value))
    assert sent.has_system_cause is by_system
    assert str(sent).startswith("the map weigh raised:\nTraceback")


@pytest.mark.parametrize(
    "text",
    ["", "weigh", ":weigh", "clicks:", "a:b:c", "../clicks:weigh", "clicks.py:weigh()", ".a:b"],
)
def test_a_text_that_names_no_function_is_refused(ref: Ref, text: str) -> None:
    with refused(UserFunctionError, "inputs.visits.map"):
        ref(text)
