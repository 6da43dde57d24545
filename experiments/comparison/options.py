"""The options that all comparisons with other engines have."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from experiments import machine
from experiments.datasets import WORK


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of time, cores, peers and inputs."""
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds per run")
    parser.add_argument("--cores", type=int, default=machine.cores(), help="for every engine")
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(os.environ.get("MRFLIGHT_PEERS_PYTHON", sys.executable)),
        help="the interpreter that has the peers; default: $MRFLIGHT_PEERS_PYTHON, or this one",
    )
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")


def names(text: str) -> list[str]:
    """Return the names in an argument, which has commas between them."""
    return text.split(",")


def refuse_unknown(
    parser: argparse.ArgumentParser, given: list[str], known: tuple[str, ...]
) -> None:
    """End the program if a name is not one of those that there are."""
    if unknown := set(given) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
