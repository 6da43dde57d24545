"""Refuses catalogs in a PostgreSQL that is told to lose its last commits if the power fails."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote_plus

from mrflight.errors import JobFileError

_OFF = re.compile(r"synchronous[_-]commit\s*=\s*'?(off|of|false|f|no|n|0)\b", re.IGNORECASE)
_VARIABLE = "PGOPTIONS"


def check_synchronous_commit(uri: str, key: str) -> None:
    """Raise JobFileError if a catalog's URI, or the environment, turns synchronous_commit off.

    What is acknowledged, and what is removed then, relies on the commit.
    """
    for where, text in ((key, unquote_plus(uri)), (_VARIABLE, os.environ.get(_VARIABLE, ""))):
        if _OFF.search(text):
            raise JobFileError(
                f"{key}: {where} turns synchronous_commit off, so that PostgreSQL would say that a "
                "commit is there before it is on its disk; leave that out"
            )
