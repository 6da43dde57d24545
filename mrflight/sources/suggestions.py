"""What a path that leads nowhere was probably meant to be."""

from __future__ import annotations

import difflib

from mrflight.storage import Location


def nearest_path(missing: Location) -> str | None:
    """The file or folder whose name is nearest to the first part of the path that is not there."""
    from pyarrow import fs

    parts = missing.path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        folder = missing.at("/".join(parts[:depth]) or "/")
        if folder.info().type == fs.FileType.Directory:
            names = [info.base_name for info in folder.children()]
            near = difflib.get_close_matches(parts[depth], names, n=1)
            return folder.child(near[0]).url if near else None
    return None
