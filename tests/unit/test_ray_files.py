"""Tests of the list of what runs on Ray: its tests exist, and every file with jobs is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.ray.files import LEFT_OUT, RUN

TESTS = Path(__file__).parents[1]
RUNS_JOBS = re.compile(
    r"\b(drive|driver_command|gated_job|faulty_run|at_the_moment|check_goes_on|reading_job"
    r"|mrflight\.run)\("
)


def test_each_file_with_jobs_is_in_the_list_once() -> None:
    found = {
        str(path.relative_to(TESTS))
        for folder in ("contract", "fault", "integration")
        for path in (TESTS / folder).glob("test_*.py")
        if RUNS_JOBS.search(path.read_text())
    }
    listed = [*RUN, *(name for name in LEFT_OUT if "::" not in name)]
    assert len(listed) == len(set(listed))
    assert found - set(listed) == set()
    assert [name for name in listed if not (TESTS / name).is_file()] == []


def test_each_excluded_test_exists_and_has_a_reason() -> None:
    for name, reason in LEFT_OUT.items():
        path, _, test = name.partition("::")
        assert reason
        if test:
            assert path in RUN
            parsed = ast.parse((TESTS / path).read_text())
            functions = {node.name for node in parsed.body if isinstance(node, ast.FunctionDef)}
            assert test.partition("[")[0] in functions, name
