"""The core knows no device: no name of one is in its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tgcore

NAMES = re.compile(r"(CPU|NULL|NV|AMD|CUDA|HIP|METAL|QCOM|WEBGPU)(:\d+)?", re.IGNORECASE)
CORE = Path(tgcore.__file__).parent
FILES = sorted(CORE.rglob("*.py"))


def code_strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String constants that are no docstrings."""
    expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in expressions:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CORE)))
def test_no_device_is_named(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [
        (line, text)
        for line, text in code_strings(tree)
        if NAMES.fullmatch(text) or re.fullmatch(r"tg_(cpu|null|nv|amd).*", text)
    ]
    assert not found, f"{path} names a device"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CORE)))
def test_no_plugin_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        assert not [m for m in modules if m.startswith("tg_")]
