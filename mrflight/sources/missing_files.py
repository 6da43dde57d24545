"""Says why a path has no files to read, with a similar path that has."""

from __future__ import annotations

import difflib

from mrflight.storage import Location


def why_nothing(root: Location, *, is_folder: bool) -> str:
    """Return why there are no files in a folder, or none that a file's path or a glob matches."""
    if is_folder:
        return (
            f"the folder {root.url} has no files to read (names that start with '_' or '.' are "
            "ignored)"
        )
    near = _suggest_path(root)
    return f"nothing matches {root.url}" + (f"; did you mean {near}?" if near else "")


def _suggest_path(missing: Location) -> str | None:
    """Return the URL whose name is most similar to the first missing part of a path."""
    from pyarrow import fs

    parts = missing.path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        folder = missing.at("/".join(parts[:depth]) or "/")
        if folder.info().type == fs.FileType.Directory:
            names = [info.base_name for info in folder.children()]
            near = difflib.get_close_matches(parts[depth], names, n=1)
            return folder.child(near[0]).url if near else None
    return None
