"""What goes wrong in a function of the user is told with the function's name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.sql.user_functions import FunctionCalls, UserFunction, check_names
from mrflight.config.functions import FunctionRef
from mrflight.errors import UserFunctionError
from tests.support.queries.functions import HERE
from tests.support.suite.messages import refused

pytest.importorskip("datafusion")

ROWS = pa.table({"v": [1, 2, None], "s": ["a", None, "c"]})


def function(name: str, called: str) -> UserFunction:
    return UserFunction.of(called, FunctionRef.parse(f"{HERE}:{name}", "job.functions.f", "/"))


def answer(text: str, name: str) -> list[Any]:
    """The rows of a query that calls a function ``f``."""
    functions = (function(name, "F"),)
    calls = FunctionCalls(functions)
    session = PlanSession({}, functions).open(calls, partitions=2)
    with calls.raising_cause():
        halves = [ROWS.slice(0, 2).to_batches(), ROWS.slice(2).to_batches()]
        session.register_record_batches("t", halves)
        return list(session.sql(text).to_arrow_table().to_pylist())


def test_names_of_functions_have_no_case() -> None:
    assert answer("select F(v) a, f(v) b from t order by v", "plus_one") == [
        {"a": 2, "b": 2},
        {"a": 3, "b": 3},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("shorter", "f(s)", "must return a value for each row; it was given . rows? and returned"),
        ("other_type", "f(s)", "returned values of type int64, and not int32 as declared; cast"),
        ("nothing", "f(s)", "must return an array of pyarrow .* None; does it end with return"),
        ("raising", "f(s)", "(?s), given . rows?, raised:.*, in raising\n.*no text of . is good"),
        ("BadState", "f(v)", "state must return 2 values in a list or tuple; .* tuple of 1"),
        ("BadResult", "f(v)", "evaluate returned 'many', which is no int64 as declared"),
        ("NoList", "f(v)", "evaluate returned a null of type list<.*>.* return an empty list"),
        ("RaisingMerge", "f(v)", "(?s)merge of the .* raised:.*KeyError: 'lost'"),
        ("Spread", "f(v order by s)", "called with `order by`: the states of several tasks"),
    ],
)
def test_what_functions_get_wrong(name: str, text: str, said: str) -> None:
    """How many rows a function is given first is DataFusion's affair."""
    with pytest.raises(UserFunctionError, match=said) as raised:
        answer(f"select {text} from t", name)
    assert f"function f ({HERE}:{name})" in str(raised.value)


def test_a_function_of_sql_is_not_replaced() -> None:
    for name in ("SUM", "lower", "row_number"):
        with refused(UserFunctionError, "job.functions.f"):
            check_names([function("plus_one", name)])
    check_names([function("plus_one", "f")])
