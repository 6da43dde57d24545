"""A job uses no Ray that runs anybody's code, unless it is told to."""

from __future__ import annotations

import pytest

from mrflight.config.cluster_section import ClusterSection
from mrflight.errors import JobFileError
from mrflight.runtime.ray.messages import Connected, Node
from mrflight.runtime.ray.start import _check_token
from tests.support.suite.messages import refused

OUTSIDE, INSIDE = "192.0.2.7", "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "ray_address", "mode", "insecure", "is_refused"),
    [
        (OUTSIDE, "auto", None, False, True),
        (OUTSIDE, "auto", "disabled", False, True),
        (OUTSIDE, "auto", "token", False, False),
        (OUTSIDE, "auto", None, True, False),
        (INSIDE, "auto", None, False, False),
        (OUTSIDE, None, None, False, False),  # a Ray of the job's own, which has a token
    ],
)
def test_a_ray_without_a_token(
    address: str,
    ray_address: str | None,
    mode: str | None,
    insecure: bool,
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    cluster = ClusterSection(executor="ray", ray_address=ray_address, insecure_ray=insecure)
    ray = Connected("home", (Node("home", address, 2, 2**30),))
    if not is_refused:
        _check_token(cluster, ray)
        return
    with refused(JobFileError, "cluster.ray_address"):
        _check_token(cluster, ray)
