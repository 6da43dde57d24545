"""Texts of SQL are divided into statements."""

from __future__ import annotations

import pytest

from mrflight.compute.sql.statements import is_view, split_statements


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ; -- nothing; here\n;", []),
        ("select ';' as a; select 1", ["select ';' as a", " select 1"]),
        ("-- one; two\nselect 1;", ["-- one; two\nselect 1"]),
        ('select 1 as "a;b" /* ; */', ['select 1 as "a;b" /* ; */']),
    ],
)
def test_statements_end_at_semicolons(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("create view a as select 1", True),
        ("\nCREATE  OR REPLACE\nVIEW a as select 1", True),
        ("-- what it is for\n/* and why */ create view a as select 1", True),
        ('create view "a" as select 1', True),
        ("create table view as select 1", False),
        ("select 1 as view", False),
        ("-- create view a as\nselect 1", False),
    ],
)
def test_a_view_is_told_from_other_statements(statement: str, expected: bool) -> None:
    assert is_view(statement) is expected
