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
from tests.support.suite.messages import refused


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_visits(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        (
            VISITS_BY_USER + "[reduce]\njoin = 'inner'\n",
            "reduce.join",
        ),
        (
            JOIN.format("inner") + "left = 'user'\n",
            "reduce.left",
        ),
        (
            JOIN.format("inner") + "group_by = ['user']\n",
            "reduce.join",
        ),
        (
            JOIN.format("inner").replace("key = ['id']", ""),
            "inputs.users.key",
        ),
        (
            VISITS_BY_USER.replace("['user']", "['usr']")
            + BROADCAST
            + "[reduce]\njoin = 'inner'\n",
            "inputs.visits.key",
        ),
        (
            JOIN.format("inner").replace("['id']", "['country']"),
            "reduce.join",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsort_by = ['wieght desc']\n",
            "reduce.sort_by",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsort_by = ['weight Descending nulls first']\n",
            "reduce.sort_by",
        ),
        (
            JOIN.format("right").replace(USERS_BY_ID, BROADCAST),
            "inputs.users.broadcast",
        ),
        (
            VISITS_BY_USER + BROADCAST + "[reduce]\ngroup_by = ['user']\n",
            "inputs.users.broadcast",
        ),
        (VISITS_BY_USER + "[reduce]\nlimit = -1\n", "reduce.limit"),
        (
            VISITS_BY_USER + "[reduce]\nleft = 'visits'\n",
            "reduce.left",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsql = 'select * from visits order by weight'\n",
            "reduce.sql",
        ),
        (
            VISITS_BY_USER
            + USERS_BY_ID.replace("key = ['id']", "")
            + "[reduce]\nsql = 'select * from visits join users on id = user'\n",
            "inputs.users.key",
        ),
        (
            VISITS_BY_USER + "[reduce]\nsql = 'select weight, count(*) n from visits group by 1'\n",
            "reduce.sql",
        ),
        (
            VISITS
            + BROADCAST
            + "[reduce]\nsql = 'select count(*) n from visits join users on id = \"user\"'\n",
            "reduce.sql",
        ),
        (
            VISITS + BROADCAST + "[reduce]\nsql = 'select * from users'\n",
            "reduce.sql",
        ),
        (
            VISITS_BY_USER + "sql = 'select wieght from visits'\n",
            "inputs.visits.sql",
        ),
        (
            VISITS_BY_USER + "[reduce]\norder_by = ['row']\n",
            "reduce.order_by",
        ),
        (
            "[inputs.visits]\npath = 'visits.parquet'\n[reduce]\nkeep = 'last'\n",
            "inputs.visits.key",
        ),
        (
            "[stages.s.inputs.visits]\npath = 'visits.parquet'\nkey = ['usr']\n"
            "[inputs.s]\nstage = 's'\nkey = ['user']\n",
            "stages.s.inputs.visits.key",
        ),
        (
            "[stages.s.inputs.visits]\npath = 'visits.parquet'\nkey = ['user']\n"
            "[inputs.s]\nstage = 's'\nkey = ['usr']\n",
            "inputs.s.key",
        ),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(
    sections: str, key: str, inputs: Path, tmp_path: Path
) -> None:
    job = load_job(write_job(tmp_path, HEAD + sections.replace("path = '", f"path = '{inputs}/")))
    with refused(JobError, key):
        analyze(job, tmp_path, "job-1", WORKERS, MEMORY)
    assert not (tmp_path / "out").exists()
