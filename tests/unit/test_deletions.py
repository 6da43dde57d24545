"""Nothing but `mrflight.storage.deletion` deletes files of tables: the code is searched for others.

Each use of a name that deletes is in a table here, with what it deletes. One that is not in it is
to go through `mrflight.storage.deletion`, unless what it deletes can be no file of a table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

DELETING = {
    "delete",
    "delete_created",
    "delete_created_folder",
    "delete_dir",
    "delete_dir_contents",
    "delete_empty_folder",
    "delete_file",
    "delete_objects",
    "purge_table",
    "removedirs",
    "rm",
    "rmdir",
    "rmtree",
    "unlink",
    "vacuum",
    "_clean_all_uncommitted",
    "_delete_old_metadata",
}
"""Names of functions and methods of libraries, and of our own, that delete files."""

OF_OS = {"os": {"remove", "rename", "renames", "replace"}, "shutil": {"move"}}
"""Names that delete files only as attributes of these modules; they put one in another's place."""

SQL = ("ducklake_cleanup_old_files", "ducklake_delete_orphaned_files", "drop table", "drop schema")

DECIDED = {
    "storage.deletion": {"delete_file", "delete_empty_folder"},
    # What is deleted by `TableFiles`.
    "sinks.commit.job_files": {"delete_created", "delete_created_folder", "delete_empty_folder"},
    "sinks.delta.vacuum": {"delete", "vacuum"},
    "sinks.delta.maintenance": {"vacuum"},
    "sinks.delta.upkeep": {"vacuum"},
    "sinks.ducklake.expiry": {"ducklake_cleanup_old_files"},
    "sinks.folder.tombstones": {"delete", "delete_empty_folder"},
    "sinks.iceberg.expiry": {"delete"},
    "sinks.iceberg.own_location": {"_delete_old_metadata"},
    "sinks.orphan_files": {"delete", "delete_empty_folder"},
    "storage.manifest_log": {"delete", "delete_created_folder"},
    "storage.tail_file": {"delete"},
    # What this process, or its job, has created under a name that nothing else has.
    "sinks.bad_row_marks": {"delete_created"},
    "sinks.iceberg.snapshot": {"_clean_all_uncommitted"},
    "sinks.parts.open_files": {"delete_created"},
    "tasks.bad_row_file": {"delete_created"},
}
"""Where files of tables and of bad rows are deleted, by decision of `mrflight.storage.deletion`."""

STORES = {
    "storage.disk": {"delete_file", "rmdir", "unlink"},
    "storage.hdfs": {"delete_file"},
    "storage.hdfs_put": {"delete"},
    "storage.location": {"delete_file", "delete_empty_folder"},
    "storage.s3": {"delete"},
    "storage.whole_files": {"delete_file"},
}
"""The stores, which delete what they are told to, and their own temporary files."""

OTHERS = {
    # Temporary files and folders of this machine.
    "frontend.tune.job_file_edit": {"os.replace", "unlink"},
    "frontend.tune.trial_process": {"rmtree"},
    "planner.stand_ins": {"rmtree"},
    "storage.ducklake.lake": {"unlink"},
    "system.fork_server.client": {"rmtree"},
    "system.fork_server.main": {"rmtree"},
    "system.private_file": {"unlink"},
    "system.scratch": {"rmdir", "rmtree", "unlink"},
    "tasks.leaf_file": {"unlink"},
    "tasks.operators.spill_partitions": {"unlink"},
    # Sockets, tokens, and a file that shows whether a folder is shared.
    "runtime.local.server_process": {"unlink"},
    "runtime.ray.shared_paths": {"unlink"},
    "security.job_tokens": {"unlink"},
    # Spilled blocks, and event logs.
    "shuffle.log.durable_log": {"rmtree"},
    "shuffle.log.log_folder": {"os.rename", "rmtree"},
    "shuffle.log.segment": {"unlink"},
    "shuffle.store.spiller": {"rmtree"},
    # Commits: older versions keep the files.
    "sinks.delta.removed_rows": {"delete"},
    "sinks.ducklake.commit": {"drop table"},
    # Arrays, and a field of a report.
    "sinks.commit.maintenance_report": {"vacuum"},
    "sources.csv_short_rows": {"delete"},
    "sources.kafka.formats.avro_format": {"delete"},
}
"""What can be no file of a table."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder, prefix in (("mrflight", ()), ("servers", ("servers",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join([*prefix, *path.relative_to(ROOT / folder).with_suffix("").parts])
            yield name, ast.parse(path.read_text(encoding="utf-8"), str(path))


def deleting_names(tree: ast.Module) -> set[str]:
    """Return the names that delete something, wherever code refers to them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in OF_OS.get(
                module, ()
            ):
                found.add(f"{module}.{name}")
            case ast.Attribute(attr=name) if name in DELETING:
                found.add(name)
            case ast.ImportFrom(module=module, names=names):
                known = DELETING | OF_OS.get(module or "", set())
                found |= {alias.name for alias in names if alias.name in known}
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found |= {name} & DELETING
            case ast.Constant(value=str(text)):
                found |= {each for each in SQL if each in text.lower()}
    return found


def test_files_of_tables_are_deleted_by_one_module() -> None:
    found = {name: names for name, tree in modules() if (names := deleting_names(tree))}
    assert found == {**DECIDED, **STORES, **OTHERS}


def test_every_way_to_name_a_function_is_found() -> None:
    code = """
from obstore import delete as forget
import os, shutil
os.replace("a", "b"), text.replace("a", "b"), names.remove("a"), os.remove("a")
drop = [path.unlink for path in paths]
shutil.rmtree("a")
getattr(store, "delete_dir")("a")
session.rows(f"CALL ducklake_cleanup_old_files('lake', {age})")
"""
    assert deleting_names(ast.parse(code)) == {
        "delete", "os.replace", "os.remove", "unlink", "rmtree", "delete_dir",
        "ducklake_cleanup_old_files",
    }  # fmt: skip
