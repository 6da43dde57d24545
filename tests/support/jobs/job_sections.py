"""Sections of job files, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_section(title: str, keys: Mapping[str, Any]) -> str:
    """One section, whose values are texts, numbers, booleans and lists of these."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    return "\n".join([f"[{title}]", *lines, ""])
