"""How a notebook shows a dataset and a plan."""

from __future__ import annotations

import re

import pyarrow as pa

import mrflight
from mrflight.frontend.dataset_html import PlanText

VISITS = mrflight.read("visits/*.csv")
USERS = mrflight.read("users.parquet")
CLICKS = VISITS.group_by("url").agg(clicks="sum(weight)")


def test_a_notebook_shows_the_steps_of_a_dataset() -> None:
    users = USERS.map(len).filter("id > 1").key_by("id")
    rows = CLICKS.join(users, left_on="url", right_on="id", how="left").sort_by("clicks desc")
    html = rows.repartition(partitions=3)._repr_html_()
    assert ">Dataset repartitioned (nothing has run yet: " in html
    text = re.sub("<[^>]*>", "|", html.partition("</caption>")[2])
    assert [part for part in text.split("|") if part.strip()] == [
        *("visits", "path: visits/*.csv"),
        *("grouped", "of visits\ngroup_by: url\nagg: clicks = sum(weight)"),
        *("users", "path: users.parquet\nmap: len\nfilter(&quot;id &gt; 1&quot;)\nkey: id"),
        *("joined", "of grouped by url, users by id\njoin: left\nsort_by: clicks desc"),
        *("repartitioned", "of joined\npartitions: 3"),
    ]


def test_a_notebook_shows_a_stage_that_is_read_twice_once() -> None:
    html = CLICKS.join(CLICKS.map("clicks:of <b>"), on="url")._repr_html_()
    assert html.count(">grouped<") == 1
    assert ">map: clicks:of &lt;b&gt;\nkey: url</td>" in html


def test_a_notebook_shows_the_kind_of_rows_in_memory() -> None:
    assert ">frame: pyarrow.Table</td>" in mrflight.read(pa.table({"n": [1]}))._repr_html_()


def test_a_plan_is_shown_in_lines() -> None:
    plan = PlanText("job:  <x>\nstage: 1")
    assert repr(plan) == str(plan) == plan
    assert plan._repr_html_().endswith(">job:  &lt;x&gt;\nstage: 1</pre>")
