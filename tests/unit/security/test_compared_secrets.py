"""No secret is compared in a time that tells how much of it is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mrflight

ROOTS = (Path(mrflight.__file__).parent, Path(mrflight.__file__).parents[1] / "servers")
SECRET = re.compile(r"(^|_)(tokens?|secrets?|proof|password)$")
WORD = re.compile(r"(?:token|secret|proof|password)")
NO_SECRETS = {
    "compute/sql/statements.py": "tokens of SQL",
    "owned_logs.py": "both are what the metadata server has said",
}
COMPARES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def compared(source: str) -> Iterator[int]:
    """Yield the lines that compare a secret with something that is not written there."""
    if not WORD.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, COMPARES) for op in node.ops):
            sides = [node.left, *node.comparators]
            if any(map(is_secret, sides)) and not any(map(is_written, sides)):
                yield node.lineno


def is_secret(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_secret, node.elts))
    if isinstance(node, ast.Call):
        return is_secret(node.func)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(SECRET.search(name))


def is_written(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(is_written, node.elts))
    return isinstance(node, ast.Constant)


def test_secrets_are_compared_in_constant_time() -> None:
    found = {
        f"{path.relative_to(root)}:{line}"
        for root in ROOTS
        for path in root.rglob("*.py")
        if str(path.relative_to(root)) not in NO_SECRETS
        for line in compared(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("token == other", True),
        ("a.token != b", True),
        ("x in ('', self._token)", True),
        ("(a.token, 1) == (b, 1)", True),
        ("store.token(name) == sent", True),
        ("token == ''", False),
        ("same_token(token, other)", False),
        ("token is None", False),
        ("tokenizer == other", False),
    ],
)
def test_such_comparisons_are_found(source: str, is_found: bool) -> None:
    assert bool(list(compared(source))) is is_found
