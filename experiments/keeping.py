"""What an experiment leaves: its figures as JSON beside a page for people, which is printed too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from experiments import machine


def keep(folder: Path, name: str, figures: Mapping[str, object], page: str) -> None:
    """Write ``<name>.json``, which names the machine as well, and ``<name>.md`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.description(), **figures}
    text = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (folder / f"{name}.json").write_bytes(text + b"\n")
    (folder / f"{name}.md").write_text(page)
    print(page)
