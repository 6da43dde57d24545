"""Reads the manifests of folders with plain means, without mrflight's own code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def manifests(table: Path) -> list[Path]:
    """The numbered files, of which the last counts."""
    found = (table / "_mrflight").glob("*.json")
    return sorted(path for path in found if re.fullmatch(r"\d{8}\.json", path.name))


def newest_manifest(table: Path) -> Path:
    """The file that counts; FileNotFoundError where there is none."""
    if not (found := manifests(table)):
        raise FileNotFoundError(f"no manifest is in {table}")
    return found[-1]


def runs_of(table: Path) -> list[dict[str, Any]]:
    """Return the committed runs, the newest last."""
    runs: list[dict[str, Any]] = json.loads(newest_manifest(table).read_text())["runs"]
    return runs
