"""Imports go one way: a module knows those of its own layer and of the layers below."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = [
    "errors early_interrupt ids in_common quantities schemas closing free_memory lifeline "
    "fork_server fork_server_process forked_process forking locations malloc memory_meter "
    "numpy_arrays "
    "oom_kills pandas_later prefetch private_folder scratch server_process signal_name "
    "stopped_process supervision timeouts deadline patience interruptible interrupts signal_relay",
    "spec job_file job_graph functions pickled memory merge_counts run_settings "
    "secret_options sort_key",
    "canonical_floats comparable few_values kernel kernel_native kernel_reference _kernel "
    "join_keys key_types order_codes ordering plain_types storage shuffle.protocol shuffle.share "
    "shuffle.tickets",
    "aggregates sources sinks shuffle sql",
    "workers executors sql.reduce",
    "plan side_plan stream_plan narrowing reduction_plan job_plan meeting_plan merge_plan "
    "reduce_plan reduce_stage stage running_stage attempts mender losses produced "
    "produced_stage shuffle_watch cluster client silence_probe job job_opening job_record "
    "job_run job_shuffles moving sink_stage stage_clock api driver cli maintain_command "
    "preload partition_count job_words stage_words explain explain_command dataset drafts "
    "writes result progress __init__ __main__ ray_cluster supervised_cluster job_place "
    "ray_paths ray_place ray_layout local_place placing on_ray job_storage table_argument",
    "servers testing",
]
"""From the lowest to the highest. A folder stands for its modules but those named elsewhere."""

EXCEPTIONS: set[tuple[str, str]] = set()
"""Imports that go up, each with its reason."""

NOT_FOR_SERVERS = {"workers", "executors", "driver", "job", "plan"}

STORAGE_LIBRARIES = {"deltalake", "pyarrow.fs"}
STORAGE_FOLDERS = {"storage", "sinks", "sources"}
"""Which may name what they are handed; deltalake only for type checking."""
STORAGE_CLIENTS = {"obstore", "hdfs_native"}
TYPE_CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
BANNED = {"pyarrow.dataset", "pyarrow.acero"}
"""But for `sql.passing_rows`, which reads nothing by it: as such a table DataFusion takes ours."""
ON_RAY = {
    *(f"executors.ray_{name}" for name in ("gateway", "losses", "server", "worker", "workers")),
    *("on_ray.servers", "on_ray.datasets"),
}
"""Run in processes of Ray, in the one that speaks to it, or in its users'; others where there may
be no Ray."""

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
    """A source file; ``name`` is without ``mrflight.`` in front."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    @property
    def package(self) -> list[str]:
        """The parts of the package that relative imports start from."""
        parts = f"mrflight.{self.name}".split(".")
        return parts[:-1] if self.path.name != "__init__.py" or self.name == "__init__" else parts


def _modules() -> Iterator[Module]:
    for folder, prefix in (("mrflight", ()), ("servers", ("servers",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [*prefix, *path.relative_to(ROOT / folder).with_suffix("").parts]
            if parts[-1] == "__init__" and len(parts) > 1:
                parts.pop()
            yield Module(".".join(parts), path)


MODULES = list(_modules())
NAMES = {module.name for module in MODULES} | {"_kernel"}


def imports_of(module: Module, *, at_runtime: bool = False) -> set[str]:
    """The full names that a module imports anywhere: in functions and for type checking as well.

    ``from package import name`` gives ``package.name`` where that may be a module. ``at_runtime``
    leaves out what is only for type checking.
    """
    found: set[str] = set()
    for node in _run(module.tree) if at_runtime else ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.package[: len(module.package) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{source}.{alias.name}" for alias in node.names}
    return found


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """What `ast.walk` gives, but for what stands under ``if TYPE_CHECKING``."""
    yield tree
    is_unrun = isinstance(tree, ast.If) and ast.unparse(tree.test) in TYPE_CHECKING
    for child in tree.orelse if is_unrun else ast.iter_child_nodes(tree):
        yield from _run(child)


def library_imports_of(module: Module) -> set[str]:
    """The modules of ours that a module imports, without ``mrflight.`` in front."""
    found = set()
    for name in imports_of(module):
        package, _, inner = name.partition(".")
        if package == "servers":
            found.add(name)
        if package != "mrflight":
            continue
        while inner and inner not in NAMES:
            inner = inner.rpartition(".")[0]
        found.add(inner or "__init__")
    return found - {module.name}


def layer_of(name: str) -> int:
    """The number of a module's layer, by its name or the longest folder of it that has one."""
    while name:
        for number, layer in enumerate(LAYERS):
            if name in layer.split():
                return number
        name = name.rpartition(".")[0]
    raise KeyError(name)


def imports_any(module: Module, libraries: set[str], *, at_runtime: bool = False) -> set[str]:
    return {
        name
        for name in imports_of(module, at_runtime=at_runtime)
        if any(name == library or name.startswith(f"{library}.") for library in libraries)
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_module_has_a_layer(module: Module) -> None:
    assert layer_of(module.name) >= 0


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_imports_from_above(module: Module) -> None:
    upward = {
        name
        for name in library_imports_of(module)
        if layer_of(name) > layer_of(module.name) and (module.name, name) not in EXCEPTIONS
    }
    assert upward == set()


def test_every_exception_is_needed() -> None:
    imports = {(module.name, name) for module in MODULES for name in library_imports_of(module)}
    assert imports >= EXCEPTIONS


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = {module.name: library_imports_of(module) for module in MODULES}
    before = 0
    while before != len(imports):  # take away what imports nothing, and what nothing imports
        before = len(imports)
        wanted = set().union(*imports.values()) if imports else set()
        imports = {
            name: inner
            for name, names in imports.items()
            if name in wanted and (inner := names & imports.keys())
        }
    assert {name: sorted(names) for name, names in imports.items()} == {}


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.name.startswith("servers")], ids=lambda module: module.name
)
def test_servers_know_nothing_of_jobs(module: Module) -> None:
    folders = {name.partition(".")[0] for name in library_imports_of(module)}
    assert folders & NOT_FOR_SERVERS == set()


def test_the_library_knows_no_server() -> None:
    users = [
        module.name
        for module in MODULES
        if not module.name.startswith("servers")
        and any(name.startswith("servers") for name in library_imports_of(module))
    ]
    assert users == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_storage_libraries_stay_behind_their_door(module: Module) -> None:
    if module.name.partition(".")[0] not in STORAGE_FOLDERS:
        assert imports_any(module, STORAGE_LIBRARIES) == set()
    if module.name.partition(".")[0] != "storage":
        assert imports_any(module, STORAGE_CLIENTS) == set()
        assert imports_any(module, {"deltalake"}, at_runtime=True) == set()
    if module.name != "sql.passing_rows":
        assert imports_any(module, BANNED) == set()


def test_an_import_is_run_unless_it_is_for_type_checking(tmp_path: Path) -> None:
    path = tmp_path / "sinks.py"
    path.write_text(IMPORTS)
    module = Module("sinks.some", path)
    assert imports_any(module, {"deltalake"}) == {f"deltalake.{name}" for name in "abcde"}
    run = imports_any(module, {"deltalake"}, at_runtime=True)
    assert run == {f"deltalake.{name}" for name in "bde"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_ray_is_for_its_own_modules(module: Module) -> None:
    if module.name not in ON_RAY:
        assert imports_any(module, {"ray"}) == set()


def test_nobody_imports_the_gateway_to_ray() -> None:
    users = {m.name for m in MODULES if library_imports_of(m) & {"executors.ray_gateway"}}
    assert users == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_nothing_prints(module: Module) -> None:
    lines = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert lines == []


def loaded_by(statement: str) -> set[str]:
    """The modules in a fresh interpreter after a statement."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["mrflight", "mrflight.errors", "mrflight.driver"])
def test_importing_costs_nothing_that_is_not_used(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert loaded & {"deltalake", "pandas", "pyarrow.dataset", "ray", "rich"} == set()


@pytest.mark.parametrize("module", ["mrflight", "mrflight.errors", "mrflight.driver"])
def test_importing_does_not_load_arrow(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert {name for name in loaded if name.partition(".")[0] in ("pyarrow", "numpy")} == set()
