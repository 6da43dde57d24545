"""Validates the files of deploy/, in the environment of tests/services/validators.txt.

``python -m tests.support.clusters.validate_deployments DEPLOY CRD`` prints what it has
validated, and raises what is wrong. CRD is KubeRay's definition of a RayJob.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from compose_spec import PyCompose

NEWER_THAN_THE_CRD = {"authOptions": {"mode": "token"}}
"""A field of KubeRay 1.5.1; the Go module of it that can be had is that of 1.5.0."""


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def validate_compose(path: Path) -> None:
    (document,) = documents(path)
    PyCompose.from_json(json.dumps(document)).to_spec()


def validate_manifest(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def validate_ray_job(document: dict[str, Any], crd: Path) -> None:
    """Validate a RayJob, in which no field may be unknown."""
    cluster = document["spec"]["rayClusterSpec"]
    for field, value in NEWER_THAN_THE_CRD.items():
        assert cluster.pop(field) == value
    (definition,) = documents(crd)
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1")
    schema = version["schema"]["openAPIV3Schema"]
    jsonschema.validate(document, closed(schema))


def closed(schema: Any) -> Any:
    """Return a schema that permits no properties but those that it lists."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and schema.get("properties"):
        inner.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        inner["type"] = ["integer", "string"]
    return inner


def validate_all(deploy: Path, crd: Path) -> Iterator[str]:
    validate_compose(deploy / "compose.yaml")
    yield "compose.yaml"
    (kustomization,) = documents(deploy / "kubernetes/kustomization.yaml")
    for name in kustomization["resources"]:
        for document in documents(deploy / "kubernetes" / name):
            validate_manifest(document)
            yield f"{name} {document['kind']}"
    (ray_job,) = documents(deploy / "kubernetes/ray-job.yaml")
    validate_ray_job(ray_job, crd)
    yield "ray-job.yaml"


if __name__ == "__main__":
    for valid in validate_all(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.stdout.write(f"{valid}\n")
