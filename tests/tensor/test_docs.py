"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import runpy
from pathlib import Path

import pytest

import tgcore.tensor
from tgcore import Tensor, TinyJit, Variable

MODULES = [m.name for m in pkgutil.iter_modules(tgcore.tensor.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"tgcore.tensor.{name}")
    names = {"Tensor": Tensor, "TinyJit": TinyJit, "Variable": Variable}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_every_public_method_has_a_docstring_with_an_example() -> None:
    public = [n for n in dir(Tensor) if not n.startswith("_") and n not in ("uop", "grad")]
    assert [n for n in public if not getattr(Tensor, n).__doc__] == []
    methods = [getattr(Tensor, n) for n in public if callable(getattr(Tensor, n))]
    assert [m.__name__ for m in methods if ">>> " not in m.__doc__] == []


def test_the_table_of_methods_is_that_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "tensor_table.py"
    module = runpy.run_path(str(page))
    assert module["PAGE"].read_text() == module["table"](), "run python docs/tensor_table.py"
