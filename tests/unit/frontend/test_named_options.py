"""Tests of the keyword arguments that a TypedDict lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.config.keyword_options import DeltaOptions, OutputOptions, ReadOptions
from mrflight.config.output_section import OutputSection
from tests.support.suite.messages import refused

ROWS = mrflight.read("visits.csv")


@pytest.mark.parametrize(
    "call",
    [
        lambda: mrflight.read("visits.csv", colums=["url"]),
        lambda: mrflight.read("visits.csv", nothing=1),
        lambda: ROWS.write_delta("out", key="url"),
        lambda: ROWS.write_delta("out", format="csv"),
    ],
)
def test_a_wrong_name_is_an_error_that_tells_the_right_ones(call: Callable[[], object]) -> None:
    with refused(TypeError):
        call()


@pytest.mark.parametrize(
    ("function", "options", "section"),
    [
        (mrflight.read, ReadOptions, InputSpec()),
        (mrflight.Dataset.write_delta, DeltaOptions, OutputSection(table="out")),
    ],
)
def test_signatures_list_each_option_with_its_default(
    function: Callable[..., object], options: Any, section: object
) -> None:
    parameters = inspect.signature(function).parameters
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters.values()}
    for name in options.__annotations__:
        default = getattr(section, name)
        shown = default if isinstance(default, str | bool) else None
        assert parameters[name].default == shown


def test_all_keys_of_an_output_are_options_of_a_job() -> None:
    keys = {*OutputOptions.__annotations__, "table"}
    assert keys | {"unstored"} == set(OutputSection.__struct_fields__)
