"""Texts of SQL are divided into statements."""

from __future__ import annotations

import pytest

from mrflight.compute.sql.statements import is_view, named_paths, split_statements


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


@pytest.mark.parametrize(
    ("text", "expected", "paths"),
    [
        ("select * from 'a.csv'", 'select * from "a"', ["a.csv"]),
        ("select * from -- all\n 'a.csv'", 'select * from -- all\n "a"', ["a.csv"]),
        ("from 'a.csv' x, 'b.csv' y", 'from "a" x, "b" y', ["a.csv", "b.csv"]),
        (
            "from (select f('x'), 'y' from 'a.csv' where k in ('u', 'v')) s, 'b.csv'",
            "from (select f('x'), 'y' from \"a\" where k in ('u', 'v')) s, \"b\"",
            ["a.csv", "b.csv"],
        ),
        (
            "from t join u on t.k = 'x' and f(t.k, 'y'), 'b.csv' where k = g('z')",
            "from t join u on t.k = 'x' and f(t.k, 'y'), \"b\" where k = g('z')",
            ["b.csv"],
        ),
        ("select 1) , 'a'", "select 1) , 'a'", []),
        ("from t join delta.'a' using (k)", 'from t join "a" using (k)', ["a"]),
        ("select 'a' from t where k = 'b'", "select 'a' from t where k = 'b'", []),
        ("extract(year from date '2020-01-01')", "extract(year from date '2020-01-01')", []),
    ],
)
def test_paths_are_named_where_a_table_is_expected(
    text: str, expected: str, paths: list[str]
) -> None:
    written, tables = named_paths(text, lambda path: path.partition(".")[0])
    assert written == expected
    assert [table.path for table in tables] == paths
