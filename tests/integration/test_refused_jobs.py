"""Jobs whose sections do not go together, or not with their inputs: refused before they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.config.job_file import load_job
from mrflight.errors import JobError
from mrflight.planner.analyze import analyze
from tests.support.commands.driver import write_job
from tests.support.jobs.plans import MEMORY, WORKERS
from tests.support.jobs.visit_jobs import (
    BROADCAST,
    HEAD,
    JOIN,
    USERS_BY_ID,
    VISITS,
    VISITS_BY_USER,
    write_visits,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_visits(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            VISITS_BY_USER + "[reduce]\njoin = 'inner'\n",
            "reduce.join needs two inputs, and there is only visits; add a second [inputs.NAME]",
        ),
        (
            JOIN.format("inner") + "left = 'user'\n",
            "reduce.left: no input 'user'; there are visits, users",
        ),
        (
            JOIN.format("inner") + "group_by = ['user']\n",
            "reduce.join cannot be combined with group_by; keep one",
        ),
        (
            JOIN.format("inner").replace("key = ['id']", ""),
            "inputs.users.key: a join needs the columns that are equal in both inputs",
        ),
        (
            VISITS_BY_USER.replace("['user']", "['usr']")
            + BROADCAST
            + "[reduce]\njoin = 'inner'\n",
            "inputs.visits.key: inputs.visits has no column 'usr'; did you mean",
        ),
        (
            JOIN.format("inner").replace("['id']", "['country']"),
            "reduce.join: key column 'user' of the left is int64 and 'country' of the right is",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsort_by = ['wieght desc']\n",
            "reduce.sort_by: a row of the result has no column 'wieght'; did you mean 'weight'?",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsort_by = ['weight Descending nulls first']\n",
            "reduce.sort_by: a row of the result has no column 'weight Descending'; it has 'user', "
            "'weight', 'row'; write 'weight desc' to order by 'weight'",
        ),
        (
            JOIN.format("right").replace(USERS_BY_ID, BROADCAST),
            "inputs.users.broadcast: a right join returns the rows of this input without a match",
        ),
        (
            VISITS_BY_USER + BROADCAST + "[reduce]\ngroup_by = ['user']\n",
            "inputs.users.broadcast only applies to reduce.join and reduce.sql",
        ),
        (VISITS_BY_USER + "[reduce]\nlimit = -1\n", "reduce.limit must be 0 or more, not -1"),
        (
            VISITS_BY_USER + "[reduce]\nleft = 'visits'\n",
            "reduce.left only applies to reduce.join; set that, or leave it out",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsql = 'select * from visits order by weight'\n",
            "reduce.sql: this sql runs over a partition at a time, and would sort the rows of ",
        ),
        (
            VISITS_BY_USER
            + USERS_BY_ID.replace("key = ['id']", "")
            + "[reduce]\nsql = 'select * from visits join users on id = user'\n",
            "inputs.users.key is missing, and inputs.visits has one; give both the same number ",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsql = 'select weight, count(*) n from visits group by 1'\n",
            "reduce.sql: this sql runs over a partition at a time, of visits by user, but it "
            "groups by visits.weight, which is not the whole key; set inputs.visits.key "
            "to these columns, do ",
        ),
        (
            VISITS
            + BROADCAST
            + "[reduce]\nsql = 'select count(*) n from visits join users on id = \"user\"'\n",
            "reduce.sql: visits has no key, so this sql runs over a slice of its rows at a ",
        ),
        (
            VISITS + BROADCAST + "[reduce]\nsql = 'select * from users'\n",
            "reduce.sql: visits has no key, so this sql runs over a slice of its rows at a "
            "time, but it does not read visits, and would return its whole result for each "
            "slice",
        ),
        (
            VISITS_BY_USER + "sql = 'select wieght from visits'\n",
            "inputs.visits.sql: visits has no column 'wieght'; did you mean 'weight'?",
        ),
        (
            VISITS_BY_USER + "[reduce]\norder_by = ['row']\n",
            "reduce.order_by only applies to reduce.keep",
        ),
        (
            "[inputs.visits]\npath = 'visits.parquet'\n[reduce]\nkeep = 'last'\n",
            "inputs.visits.key: keep needs key columns, the same for every input",
        ),
        (
            "[stages.s.inputs.visits]\npath = 'visits.parquet'\nkey = ['usr']\n"
            "[inputs.s]\nstage = 's'\nkey = ['user']\n",
            "stages.s.inputs.visits.key: stages.s.inputs.visits has no column 'usr'; did you mean",
        ),
        (
            "[stages.s.inputs.visits]\npath = 'visits.parquet'\nkey = ['user']\n"
            "[inputs.s]\nstage = 's'\nkey = ['usr']\n",
            "inputs.s.key: inputs.s has no column 'usr'; did you mean",
        ),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(
    sections: str, message: str, inputs: Path, tmp_path: Path
) -> None:
    job = load_job(write_job(tmp_path, HEAD + sections.replace("path = '", f"path = '{inputs}/")))
    with pytest.raises(JobError) as raised:
        analyze(job, tmp_path, "job-1", WORKERS, MEMORY)
    assert str(raised.value).startswith(message)
    assert not (tmp_path / "out").exists()
