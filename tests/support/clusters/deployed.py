"""The commands of the servers in deploy/, as Compose, systemd and Kubernetes would run them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file of YAML."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def composed() -> dict[str, Any]:
    """Return the services of Compose by their names."""
    services: dict[str, Any] = documents("compose.yaml")[0]["services"]
    return services


def unit_command(name: str) -> list[str]:
    """Return what a unit of systemd starts. Variables stand for themselves."""
    text = (DEPLOY / "systemd" / f"{name}.service").read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart="))


def pod_arguments(name: str) -> list[str]:
    """Return the arguments of the servers of a stateful set of Kubernetes."""
    kinds = documents(f"kubernetes/{name}.yaml")
    (found,) = (each for each in kinds if each["kind"] == "StatefulSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def commands() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the arguments of mrflight in all files, with where they are."""
    for name, service in composed().items():
        if isinstance(service["command"], str):
            yield f"compose {name}", shlex.split(service["command"])
    for name in ("metadata", "data"):
        yield f"systemd {name}", unit_command(f"mrflight-{name}")[1:]
        yield f"kubernetes {name}", pod_arguments(name)
    (ray_job,) = documents("kubernetes/ray-job.yaml")
    yield "ray-job", shlex.split(ray_job["spec"]["entrypoint"])[1:]
