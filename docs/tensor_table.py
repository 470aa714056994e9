"""Writes docs/tensor.md, the table of all public methods of Tensor, from the code:
`python docs/tensor_table.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from tgcore import Tensor

PAGE = Path(__file__).with_name("tensor.md")
HEAD = """# Tensor

Every public method, from the code (`python docs/tensor_table.py`). Each has a docstring with an
example: `help(Tensor.sum)`. Operators (`+`, `@`, `x[...]`, `x[...] = v`, `+=`, ...) are methods
too, and follow numpy.
"""


def signature(name: str, attribute: Any, member: Any) -> str:
    """`name(arguments)`, without types and without self."""
    if isinstance(attribute, property):
        return name
    try:
        parameters = list(inspect.signature(member).parameters.values())
    except (TypeError, ValueError):
        return f"{name}()"
    if not isinstance(attribute, (classmethod, staticmethod)):
        parameters = parameters[1:]
    shown = []
    for p in parameters:
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        if p.default is not p.empty:
            text += f"={p.default!r}"
        shown.append(text)
    return f"{name}({', '.join(shown)})"


def summary(doc: str) -> str:
    """The first sentence, or the first line's part before a semicolon."""
    text = " ".join(inspect.cleandoc(doc).split(">>>")[0].split())
    match = re.match(r"(.+?[^.][.])(\s|$)", text)
    return (match.group(1) if match else text).replace("|", "\\|")


def table() -> str:
    """The page."""
    lines = [HEAD]
    for kind in reversed(Tensor.__mro__):
        rows = []
        for name, attribute in sorted(vars(kind).items()):
            hidden = name.startswith("_") or not kind.__module__.startswith("tgcore")
            if hidden or inspect.ismemberdescriptor(attribute):
                continue
            member = getattr(Tensor, name)
            doc = attribute.__doc__ if isinstance(attribute, property) else member.__doc__
            if doc and (callable(member) or isinstance(attribute, property)):
                rows.append(f"| `{signature(name, attribute, member)}` | {summary(doc)} |")
        if rows:
            title = inspect.cleandoc(kind.__doc__ or "").split("\n")[0].rstrip(".")
            lines += [f"\n## {title}\n", "| | |\n|---|---|"]
            lines += rows
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
