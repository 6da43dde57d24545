"""What ``mrflight explain`` says where tables meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mrflight.planner.explain_stage import StageWords
from mrflight.planner.stages import Stage
from mrflight.sources import open_source
from tests.support.explained import CLICKS, explained
from tests.support.plans import job, planner

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
                "  rows go       by the hash of visitor",
                "  rows go       by the hash of url",
                "combined        no: rows meet those of the other inputs first",
                "makes           the left join of visits by visitor and users by url",
            ],
        ),
        (
            ["inputs.users.broadcast=true"],
            [
                "  rows go       to everyone",
                "  rows go       nowhere: they meet those of the other inputs where they are read",
                "partitions      1, as everyone reads all of it",
                "makes           the left join of visits by visitor and users by url",
                "part files      of rows that are shuffled once more, in turn",
            ],
        ),
        (
            ['reduce.sort_by=["visitor"]', "reduce.limit=3"],
            [
                "stage job.rows",
                "partitions      1, as each map sends only its first rows",
                "combined        each map sends at most 3 rows, the first in the order",
                "makes           its rows, sorted by visitor, the first 3 of the result",
            ],
        ),
    ],
)
def test_joins_and_limits(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], lines: list[str]
) -> None:
    (clicks_folder / "visits" / "a.csv").write_text("url,visitor\n3,1\n")
    (clicks_folder / "visits" / "b.csv").unlink()
    code, out, told = explained(clicks_folder, capsys, JOIN, *(f"--set={each}" for each in options))
    assert (code, told) == (0, "")
    told_lines = iter(out.splitlines())
    assert [line for line in lines if line not in told_lines] == []  # in this order


SHARED = "a partition much larger than others is shared by several tasks: the rows of {}{}{}"


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
        ({"reduce": {"join": "inner"}}, 1, None),  # it is not larger than others
        ({"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}}, 3, None),  # as many files
        (
            {"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}, "output": {"table": ""}},
            3,
            "visits or users",
        ),
    ],
)
def test_who_shares_the_heavy_keys_of_a_join(
    tmp_path: Path, sections: dict[str, Any], partitions: int, names: str | None
) -> None:
    """``names`` are of the sides, and after a comma those that leave a rest."""
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
    others = ", and each reads all of the other side" if len(spec.inputs) > 1 else ""
    words = dict(StageWords(Stage("", "", spec), planned, sources).lines())
    shared, _, leaving = (names or "").partition(", ")
    rest = f"; where they share {leaving}, one more makes the other's rows that meet none"
    told = SHARED.format(shared, others, rest if leaving else "")
    assert words.get("heavy keys") == (told if names else None)


def test_sql_that_is_not_of_whole_keys_is_told(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datafusion")
    text = CLICKS[: CLICKS.index("[reduce]")] + CLICKS[CLICKS.index("[output]") :]
    text = text.replace('map = "clicks:weigh"\n', 'key = ["url"]\n')
    sql = "select visitor, count(*) n from visits group by visitor"
    code, out, told = explained(clicks_folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, out) == (2, "")
    assert "reduce.sql: this sql is told of a partition at a time, of visits by url, and it" in told
    text = text.replace("partitions = 7", "partitions = 1")
    code, out, told = explained(clicks_folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, told) == (0, "")
    keyless = text.replace("partitions = 1", "partitions = 7").replace('key = ["url"]\n', "")
    code, out, told = explained(clicks_folder, capsys, f'{keyless}[reduce]\nsql = "{sql}"\n')
    assert (code, told) == (0, "")
    assert "1, as sql of inputs without a key sees all rows" in out
