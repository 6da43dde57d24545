"""Tests of the import rule: a module imports only from its own room and the rooms below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS = [
    "errors",
    "ids",
    "units",
    "result",
    "system",
    "config",
    "events",
    "security",
    "page",
    "compute",
    "storage",
    "shuffle.wire",
    "shuffle.metadata",
    "shuffle.store",
    "shuffle.log",
    "shuffle.client",
    "sources",
    "sinks.parts",
    "sinks.commit",
    "sinks.folder",
    "sinks.delta",
    "sinks.iceberg",
    "sinks.ducklake",
    "sinks",
    "tasks.operators",
    "tasks",
    "planner",
    "runtime",
    "scheduler",
    "driver",
    "streams",
    "frontend",
    "on_ray",
    "servers",
]
"""From lowest to highest. A folder stands for those of its modules that are not listed."""

AT_THE_TOP = {"__init__", "__main__"}
"""Modules that may import from any room, because they load public names on demand."""

NOT_FOR_SERVERS = {
    "tasks",
    "planner",
    "runtime",
    "scheduler",
    "driver",
    "streams",
    "frontend",
}

STORAGE_LIBRARIES = {"deltalake", "pyarrow.fs"}
STORAGE_FOLDERS = {"storage", "sinks", "sources"}
"""Rooms that may import these libraries, to name the types of what they are given. Only `storage`
imports deltalake at runtime."""
STORAGE_CLIENTS = {"obstore", "hdfs_native"}
TYPE_CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
LOADS_CODE = {
    "__init__": "public names",
    "compute.arrow_compute": "functions of pyarrow.compute",
    "config.frames": "pandas and Polars",
    "config.functions": "functions that a job names",
    "config.pickled_functions": "functions of a job that was made in Python",
    "frontend.dataset_reader": "pandas and Polars",
    "runtime.calls": "calls from a driver to its own workers",
    "runtime.ray.server_actor": "our servers",
    "runtime.ray.shared_payloads": "calls from a driver to its own workers",
    "runtime.ray.worker_actor": "modules that a driver has its workers load",
    "security.credentials": "the module that gets certificates from Ray",
    "system.fork_server.main": "functions that a driver has its fork server run",
    "system.lazy_pandas": "pandas",
    "system.progress.notebook": "IPython",
}
"""The modules that import by a name, or unpickle, and what. None takes either from a table, a log,
a catalog or the network: docs/security.md has what is decoded from these."""
LOADING = {"import_module", "exec_module", "__import__", "eval", "exec", "Unpickler"}
PICKLES = {"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads"}
BANNED = {"pyarrow.dataset", "pyarrow.acero"}
"""Only `planned_query` imports `pyarrow.dataset`, to hand a table to DataFusion, not to read."""
IMPORTS = """
if TYPE_CHECKING:
    from deltalake import a
else:
    import deltalake.b
if typing.TYPE_CHECKING:
    from deltalake import c
if not TYPE_CHECKING:
    from deltalake import d

def f():
    try:
        from deltalake import e
    except ImportError: ...
"""


@dataclass(frozen=True)
class Module:
    """A source file; ``name`` is its module name without the prefix ``mrflight.``."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    @property
    def package(self) -> list[str]:
        """Return the parts of the package name that relative imports start from."""
        parts = f"mrflight.{self.name}".split(".")
        return parts[:-1] if self.path.name != "__init__.py" or self.name == "__init__" else parts

    @cached_property
    def all_imports(self) -> set[str]:
        return imports_of(self, ast.walk(self.tree))

    @cached_property
    def imports_at_runtime(self) -> set[str]:
        """Return the imports without those for type checking."""
        return imports_of(self, _nodes_at_runtime(self.tree))

    @cached_property
    def imports_when_loaded(self) -> set[str]:
        """Return the imports that run when the module is imported, and not in a function."""
        return imports_of(self, _nodes_at_runtime(self.tree, into_functions=False))

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]


def _modules() -> Iterator[Module]:
    for folder, prefix in (("mrflight", ()), ("servers", ("servers",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [*prefix, *path.relative_to(ROOT / folder).with_suffix("").parts]
            if parts[-1] == "__init__" and len(parts) > 1:
                parts.pop()
            yield Module(".".join(parts), path)


MODULES = list(_modules())
NAMES = {module.name for module in MODULES} | {"_kernel"}


def imports_of(module: Module, nodes: Iterator[ast.AST]) -> set[str]:
    """Return the full names that a module imports anywhere, also inside functions.

    ``from package import name`` gives ``package.name``, because that may be a module.
    """
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.package[: len(module.package) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{source}.{alias.name}" for alias in node.names}
    return found


def _nodes_at_runtime(tree: ast.AST, *, into_functions: bool = True) -> Iterator[ast.AST]:
    """Yield the nodes of `ast.walk` without those under ``if TYPE_CHECKING``."""
    yield tree
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef) and not into_functions:
        return
    is_skipped = isinstance(tree, ast.If) and ast.unparse(tree.test) in TYPE_CHECKING
    for child in tree.orelse if is_skipped else ast.iter_child_nodes(tree):
        yield from _nodes_at_runtime(child, into_functions=into_functions)


def library_imports_of(module: Module) -> set[str]:
    """Return the modules of mrflight that a module imports, without the prefix ``mrflight.``."""
    return library_names(module.all_imports) - {module.name}


def library_names(imports: set[str]) -> set[str]:
    """Return the modules of mrflight among imports, without the prefix ``mrflight.``."""
    found = set()
    for name in imports:
        package, _, inner = name.partition(".")
        if package == "servers":
            found.add(name)
        if package != "mrflight" or inner == "__version__":  # which loads nothing
            continue
        while inner and inner not in NAMES:
            inner = inner.rpartition(".")[0]
        found.add(inner or "__init__")
    return found


def level_of(name: str) -> int:
    """Return the position in `ROOMS` of a module, or of the innermost folder that has one."""
    if name in ("__init__", "_kernel"):  # the version, and the compiled `compute.kernel`
        return 0
    while name:
        if name in ROOMS:
            return ROOMS.index(name)
        name = name.rpartition(".")[0]
    raise KeyError(name)


def imports_any(imports: set[str], libraries: set[str]) -> set[str]:
    return {
        name
        for name in imports
        if any(name == library or name.startswith(f"{library}.") for library in libraries)
    }


def offenders(found: Iterator[tuple[Module, set[str]]]) -> dict[str, list[str]]:
    """Return the names that break a rule, by module."""
    return {module.name: sorted(names) for module, names in found if names}


def test_the_root_holds_rooms_and_few_modules() -> None:
    rooms = {path.parent.name for path in (ROOT / "mrflight").glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / "mrflight").glob("*.py")}
    in_order = {name.partition(".")[0] for name in ROOMS} - {"servers"}
    assert rooms | files == in_order | AT_THE_TOP


def test_every_room_has_a_docstring() -> None:
    undocumented = [
        module.name
        for module in MODULES
        if module.path.name == "__init__.py" and not ast.get_docstring(module.tree)
    ]
    assert undocumented == []


def test_no_module_imports_from_above() -> None:
    assert (
        offenders(
            (module, {n for n in library_imports_of(module) if level_of(n) > level_of(module.name)})
            for module in MODULES
            if module.name not in AT_THE_TOP
        )
        == {}
    )


def test_there_are_no_import_cycles() -> None:
    imports = {module.name: library_imports_of(module) for module in MODULES}
    before = 0
    while before != len(imports):  # drop modules that import none of the rest, or that none imports
        before = len(imports)
        wanted = set().union(*imports.values()) if imports else set()
        imports = {
            name: inner
            for name, names in imports.items()
            if name in wanted and (inner := names & imports.keys())
        }
    assert {name: sorted(names) for name, names in imports.items()} == {}


def test_servers_do_not_import_the_code_of_jobs() -> None:
    of_jobs = (
        (module, {n for n in library_imports_of(module) if n.partition(".")[0] in NOT_FOR_SERVERS})
        for module in MODULES
        if module.room == "servers"
    )
    assert offenders(of_jobs) == {}


def test_storage_libraries_are_imported_only_in_their_rooms() -> None:
    for module in MODULES:
        found = set()
        if module.room not in STORAGE_FOLDERS:
            found |= imports_any(module.all_imports, STORAGE_LIBRARIES)
        if module.room != "storage":
            found |= imports_any(module.all_imports, STORAGE_CLIENTS)
            found |= imports_any(module.imports_at_runtime, {"deltalake"})
        if module.name != "compute.sql.planned_query":
            found |= imports_any(module.all_imports, BANNED)
        assert found == set(), module.name


def test_imports_for_type_checking_are_not_imports_at_runtime(tmp_path: Path) -> None:
    path = tmp_path / "sinks.py"
    path.write_text(IMPORTS)
    module = Module("sinks.some", path)
    assert imports_any(module.all_imports, {"deltalake"}) == {f"deltalake.{n}" for n in "abcde"}
    run = imports_any(module.imports_at_runtime, {"deltalake"})
    assert run == {f"deltalake.{name}" for name in "bde"}


def test_ray_is_imported_in_its_room_and_loaded_by_nothing_else() -> None:
    """Ray's processes, programs that use it, and functions that need it import what loads it."""
    others = [m for m in MODULES if m.room != "on_ray" and not m.name.startswith("runtime.ray.")]
    assert offenders((module, imports_any(module.all_imports, {"ray"})) for module in others) == {}
    with_ray = {m.name for m in MODULES if imports_any(m.imports_when_loaded, {"ray"})}
    before = 0
    while before != len(with_ray):
        before = len(with_ray)
        loading = {m.name for m in MODULES if library_names(m.imports_when_loaded) & with_ray}
        with_ray |= loading
    assert with_ray
    assert with_ray & {module.name for module in others} == set()


def test_no_module_imports_the_gateway_to_ray() -> None:
    users = {m.name for m in MODULES if library_imports_of(m) & {"runtime.ray.gateway"}}
    assert users == set()


def test_nothing_prints() -> None:
    prints = [
        (module.name, node.lineno)
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert prints == []


def loads_code(tree: ast.AST) -> bool:
    """Return whether a module imports by a name, unpickles or evaluates."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names |= {node.attr for node in attributes}
    return bool(names & LOADING or PICKLES & set(map(ast.unparse, attributes)))


def test_code_is_loaded_by_a_name_or_from_a_pickle_in_few_modules() -> None:
    assert {m.name for m in MODULES if loads_code(m.tree)} == LOADS_CODE.keys()


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a fresh interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["mrflight", "mrflight.errors", "mrflight.driver"])
def test_importing_does_not_load_optional_or_slow_libraries(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    slow = {"deltalake", "http.server", "pandas", "pyarrow.dataset", "ray", "rich", "ssl"}
    assert loaded & slow == set()
    assert not [name for name in loaded if name.startswith("mrflight.page.")]


@pytest.mark.parametrize("module", ["mrflight", "mrflight.errors", "mrflight.driver"])
def test_importing_does_not_load_arrow(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert {name for name in loaded if name.partition(".")[0] in ("pyarrow", "numpy")} == set()


def test_only_one_module_imports_the_functions_of_arrow() -> None:
    importing = {m.name for m in MODULES if imports_any(m.all_imports, {"pyarrow.compute"})}
    assert importing == set()  # `arrow_compute` loads it by its name


def test_the_functions_of_arrow_are_loaded_when_one_is_used() -> None:
    statement = "from mrflight.compute import arrow_compute as pc"
    assert "pyarrow.compute" not in loaded_by(statement)
    assert "pyarrow.compute" in loaded_by(f"{statement}; assert pc.sum([1, 2]).as_py() == 3")


@pytest.mark.parametrize("format", ["csv", "json"])
def test_opening_text_does_not_load_the_kernels_of_arrow(format: str) -> None:
    loaded = loaded_by(f"import mrflight.sources.{format}_source")
    assert loaded & {"pyarrow.compute", "pyarrow.parquet"} == set()
