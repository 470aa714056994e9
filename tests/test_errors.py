"""The kinds of errors, and that they are documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tgcore import errors
from tgcore.errors import CompileError, TgcoreError

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TgcoreError)
}
ROWS = re.findall(
    r"^\| `(\w+)` \| ([^|]*)\|", Path("docs/errors.md").read_text("utf-8"), re.MULTILINE
)


def test_every_kind_is_documented() -> None:
    assert {name for name, _ in ROWS} == set(KINDS)


@pytest.mark.parametrize(("name", "bases"), ROWS)
def test_a_kind_is_also_what_the_documentation_says(name: str, bases: str) -> None:
    names = {base.__name__ for base in KINDS[name].__mro__}
    assert set(re.findall(r"\w+", bases)) <= names


def test_the_source_in_an_error_of_a_compiler_has_line_numbers() -> None:
    error = CompileError("no such type", "int x;\nfoo y;", "line 2: foo?\n")
    assert str(error) == "no such type\nline 2: foo?\n    1 | int x;\n    2 | foo y;"
    assert (error.source, error.output) == ("int x;\nfoo y;", "line 2: foo?\n")
