"""A stream can be live if its rows are what its table gets, and readers can reach them."""

from __future__ import annotations

from typing import Any

import pytest

from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError
from mrflight.streams.stream_settings import StreamSettings

INPUT = {"kafka": "localhost:1", "topic": "trips", "format": "json"}


def document(**more: dict[str, Any]) -> dict[str, Any]:
    """Return a job file of a live stream, with more keys of its sections."""
    sections: dict[str, dict[str, Any]] = {
        "job": {"name": "trips"},
        "inputs": {"trips": INPUT},
        "stream": {"live": True},
        "output": {"table": "out", "mode": "append"},
    }
    return sections | {name: sections.get(name, {}) | keys for name, keys in more.items()}


LOG = {"log": "trips"}
MAPPED = LOG | {"map": "trips:clean"}
STANDING = {"metadata": "grpc+tcp://127.0.0.1:5005"}


@pytest.mark.parametrize("is_live", [True, False])
def test_a_stream_is_live_if_it_says_so(is_live: bool) -> None:
    spec = decode_job(document(stream={"live": is_live}))
    assert StreamSettings.of(spec).is_live is spec.is_live is is_live


def test_changes_have_an_order_without_a_setting() -> None:
    output = {"mode": "merge", "keys": ["id"]}
    more = document(inputs={"trips": INPUT | {"envelope": "debezium"}}, output=output)
    assert StreamSettings.of(decode_job(more)).is_live


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"output": {"mode": "merge", "keys": ["id"]}}, "(output.order_by)"),
        ({"output": {"format": "iceberg", "catalog": "sqlite:///c.db"}}, "writes a Delta table"),
        ({"reduce": {"group_by": ["id"], "aggregate": {"n": "count(*)"}}}, "only maps its events"),
        ({"inputs": {"zones": {"path": "zones.csv", "key": ["id"]}}}, "only"),
        ({"cluster": {"executor": "ray"}}, 'cluster.executor = "local"'),
        ({"cluster": {"executor": "ray"}, "inputs": {"trips": MAPPED}}, "maps nothing"),
        ({"cluster": {"data_servers": 0}}, "has a data server"),
    ],
)
def test_others_are_refused(more: dict[str, dict[str, Any]], reason: str) -> None:
    with pytest.raises(JobFileError, match=r"stream\.live is only for a stream that") as caught:
        StreamSettings.of(decode_job(document(**more)))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "cluster", "feeds"),
    [
        (None, STANDING, True),
        (LOG, STANDING, False),
        (LOG, STANDING | {"executor": "ray"}, False),
        (LOG | {"columns": ["id"]}, STANDING, False),
        (MAPPED, STANDING, True),
        (LOG | {"filter": "id > 1"}, STANDING, True),
    ],
)
def test_a_log_that_is_not_mapped_is_a_tail_itself(
    inputs: dict[str, Any] | None, cluster: dict[str, Any], feeds: bool
) -> None:
    sections = document(cluster=cluster)
    if inputs is not None:
        sections["inputs"] = {"trips": inputs}
    settings = StreamSettings.of(decode_job(sections))
    assert (settings.is_live, settings.feeds_tail) == (True, feeds)
