"""Tells which options of a store are secrets, and leaves them out of what is shown."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "..."
"""Stands for a secret in what is shown."""
USERINFO = re.compile(r"(?<=://)[^/\s]*@")
"""The user and password of a URL; those of an endpoint or a proxy may have them."""

_NAMES = re.compile(r"secret|token|password|access_key|_key$|_key_base64$")
_FILE_NAMES = re.compile(r"_(file|path)$")


def holds_secret(name: str, value: Any) -> bool:
    """Return whether the value of an option is a secret.

    The id of an access key counts as a secret, because it is half of the credentials. The path of
    a file that contains a secret does not.
    """
    if isinstance(value, str) and USERINFO.search(value):
        return True
    name = name.lower()
    return bool(_NAMES.search(name)) and not _FILE_NAMES.search(name)
