"""The installed version, kernel, Arrow and extras, for ``mrflight --version``."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from mrflight import __version__
from mrflight.compute.kernel_choice import kernel_language
from mrflight.system.standard_streams import print_answer

_FOR_DEVELOPERS = {"bench", "dev", "docs"}
"""Extras with which mrflight can do nothing more."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*extra == ['\"]([a-z0-9-]+)['\"]")


class PrintVersion(argparse.Action):
    """The option ``--version``, which says what is installed."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(
            option_strings,
            argparse.SUPPRESS,
            nargs=0,
            help="print the version, and which kernel, Arrow and extras are installed",
        )

    def __call__(self, *_: object) -> None:
        raise SystemExit(print_answer("\n".join(_lines())))


def _lines() -> Iterator[str]:
    yield f"mrflight {__version__}"
    kernel = kernel_language()
    yield f"kernel: {'native (Rust)' if kernel == 'rust' else 'in Python, which is slower'}"
    yield f"pyarrow {version('pyarrow')}, Python {platform.python_version()}"
    found, missing = installed_extras()
    yield f"extras: {', '.join(found) or 'none'}"
    if missing:
        yield f"not installed: {', '.join(missing)}"


def installed_extras() -> tuple[list[str], list[str]]:
    """Return the extras that are installed, with the versions of their packages, and the others."""
    found, missing = [], []
    for extra, packages in _extras().items():
        versions = [_version_of(package) for package in packages]
        known = [f"{name} {is_}" for name, is_ in zip(packages, versions, strict=True) if is_]
        if len(known) == len(packages):
            found.append(f"{extra} ({', '.join(known)})")
        else:
            missing.append(extra)
    return found, missing


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra that users can install."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("mrflight") or ():
        found = _REQUIREMENT.match(requirement)
        if found is not None and found[2] not in _FOR_DEVELOPERS:
            extras.setdefault(found[2], []).append(found[1])
    return extras


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
