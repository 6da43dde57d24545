"""Tests of what ``mrflight explain`` prints about joins and sql."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mrflight.planner.explain_stage import StageExplanation
from mrflight.planner.stages import Stage
from mrflight.sources import open_source
from tests.support.commands.explain_command import CLICKS, explained
from tests.support.jobs.plans import job, planner

JOIN = """
[job]
name = "joined"
[inputs.visits]
path = "visits"
key = ["visitor"]
columns = ["visitor"]
[inputs.users]
path = "visits/a.csv"
key = ["url"]
columns = ["url"]
[reduce]
join = "left"
left = "visits"
[output]
table = "out"
"""


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            [],
            [
                "  shuffle:      by hash of visitor",
                "  shuffle:      by hash of url",
                "combine:        no (rows are joined first)",
                "reduce:         left join of visits by visitor and users by url",
            ],
        ),
        (
            ["inputs.users.broadcast=true"],
            [
                "  shuffle:      broadcast to every task",
                "  shuffle:      none (joined with the broadcast inputs as it is read)",
                "partitions:     1 (every task reads all rows)",
                "reduce:         left join of visits by visitor and users by url",
                "part files:     after another shuffle, by round robin",
            ],
        ),
        (
            ['reduce.sort_by=["visitor"]', "reduce.limit=3"],
            [
                "stage:          the job's own",
                "stage:          sort_by",
                "input rows:     result of the job's own stage",
                "partitions:     1 (each map sends only its first rows)",
                "combine:        first 3 rows of each map",
                "reduce:         rows as they are, sorted by visitor, first 3 rows",
            ],
        ),
    ],
)
def test_joins_and_limits_are_explained(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], lines: list[str]
) -> None:
    (clicks_folder / "visits" / "a.csv").write_text("url,visitor\n3,1\n")
    (clicks_folder / "visits" / "b.csv").unlink()
    code, out, err = explained(clicks_folder, capsys, JOIN, *(f"--set={each}" for each in options))
    assert (code, err) == (0, "")
    printed = iter(out.splitlines())
    assert [line for line in lines if line not in printed] == []  # in this order


SKEW = "a large partition is split into slices of {}{}{}"


@pytest.mark.parametrize(
    ("sections", "partitions", "names"),
    [
        ({"reduce": {"join": "inner"}}, 3, "visits or users"),
        ({"reduce": {"join": "semi"}}, 3, "visits"),
        ({"reduce": {"join": "left"}}, 3, "visits or users, users"),
        ({"reduce": {"join": "right"}}, 3, "visits or users, visits"),
        ({"reduce": {"join": "full"}}, 3, "visits or users, visits or users"),
        ({"reduce": {"sql": "select v.* from visits v left join users using (url)"}}, 3, "visits"),
        ({"reduce": {"sql": "select url from users"}}, 3, "users"),
        ({"reduce": {"sql": "select url from users union all select url from visits"}}, 3, None),
        (
            {
                "inputs": {"visits": {"path": "visits.csv", "key": ["url"]}},
                "reduce": {"sql": "select url from visits"},
            },
            3,
            "visits",
        ),
        ({"reduce": {"join": "inner"}}, 1, None),  # a single partition is not skewed
        ({"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}}, 3, None),  # sets 3 files
        (
            {"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}, "output": {"table": ""}},
            3,
            "visits or users",
        ),
    ],
)
def test_which_inputs_of_a_join_are_sliced(
    tmp_path: Path, sections: dict[str, Any], partitions: int, names: str | None
) -> None:
    """``names`` has the sliceable inputs, and after a comma those with an outer remainder."""
    files = {"visits": "visits.csv", "users": "more.csv"}
    inputs = {
        name: {"path": path, "key": ["url"], "broadcast": False} for name, path in files.items()
    }
    plan, spec = planner(tmp_path), job(**{"inputs": inputs, **sections})
    planned = plan(spec)
    planned = replace(planned, counted=replace(planned.counted, number=partitions))
    sources = {
        name: open_source(name, spec.inputs[name], tmp_path, {}, 100) for name in spec.inputs
    }
    others = "; each task reads the other inputs whole" if len(spec.inputs) > 1 else ""
    explained_lines = dict(StageExplanation(Stage("", "", spec), planned, sources, {}).lines())
    sliceable, _, with_remainder = (names or "").partition(", ")
    remainder = f"; if {with_remainder} is sliced, one more task returns the other's unmatched rows"
    expected = SKEW.format(sliceable, others, remainder if with_remainder else "")
    assert explained_lines.get("skew") == (expected if names else None)


def test_sql_that_needs_rows_of_other_keys_is_refused(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datafusion")
    text = CLICKS[: CLICKS.index("[reduce]")] + CLICKS[CLICKS.index("[output]") :]
    text = text.replace('map = "clicks:weigh"\n', 'key = ["url"]\n')
    sql = "select visitor, count(*) n from visits group by visitor"
    code, out, err = explained(clicks_folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, out) == (2, "")
    assert "reduce.sql: this sql runs over a partition at a time, of visits by url, but it" in err
    text = text.replace("partitions = 7", "partitions = 1")
    code, out, err = explained(clicks_folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, err) == (0, "")
    keyless = text.replace("partitions = 1", "partitions = 7").replace('key = ["url"]\n', "")
    code, out, err = explained(clicks_folder, capsys, f'{keyless}[reduce]\nsql = "{sql}"\n')
    assert (code, err) == (0, "")
    assert "1 (sql without a key sees all rows)" in out
