"""Which options of a store are secrets."""

from __future__ import annotations

import re
from typing import Any

USERINFO = re.compile(r"(?<=://)[^/\s]*@")
"""Of a URL, as that of an endpoint or a proxy may have it."""

_NAMES = re.compile(r"secret|token|password|access_key|_key$|_key_base64$")
_OF_FILES = re.compile(r"_(file|path)$")


def holds_secret(name: str, value: Any) -> bool:
    """Whether nobody but the store may see the value of an option.

    The id of an access key counts as one: it says who asks, and is half of what is needed to. The
    path of a file that holds one does not.
    """
    if isinstance(value, str) and USERINFO.search(value):
        return True
    name = name.lower()
    return bool(_NAMES.search(name)) and not _OF_FILES.search(name)
