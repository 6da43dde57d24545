"""Tests that the files of deploy/ start mrflight with options that it has, and encrypted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mrflight.config.identity_options import identity_of
from mrflight.frontend import cli
from tests.support.clusters.deployed import commands

COMMANDS = dict(commands())
VALUES = {"${MRFLIGHT_METADATA}": "grpc+tls://metadata:5005", "${MRFLIGHT_MEMORY}": "2GiB"}


def test_all_files_are_looked_at() -> None:
    places = [
        f"{tool} {name}" for tool in ("systemd", "kubernetes") for name in ("metadata", "data")
    ]
    composed = [f"compose {name}" for name in ("metadata", "data-1", "data-2", "client")]
    assert sorted(COMMANDS) == sorted([*places, *composed, "ray-job"])


@pytest.mark.parametrize("place", COMMANDS)
def test_the_commands_are_those_of_mrflight(place: str) -> None:
    parsed = cli.command_parser().parse_args(_with_values(COMMANDS[place]))
    if parsed.command != "run":
        identity = identity_of(parsed)
        assert all([identity.ca, identity.certificate, identity.key])
    if parsed.command == "serve":
        assert parsed.verify_client
        assert parsed.access is not None
        assert not parsed.insecure_network
        assert parsed.http_token.startswith("file:")
        assert parsed.advertise.startswith("grpc+tls://")


def _with_values(arguments: Sequence[str]) -> list[str]:
    return [VALUES.get(each, each).replace("${MRFLIGHT_HOST}", "host") for each in arguments]
