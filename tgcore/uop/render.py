"""A graph as Python text: a line a node, sources first; evaluating it gives the same object."""

from __future__ import annotations

from tgcore.uop.node import UOp


def render_graph(root: UOp, most_lines: int | None = None) -> str:
    """The graph as assignments `u0 = UOp(...)`; the last one is the root. With `most_lines` only
    the last so many are shown."""
    names: dict[UOp, str] = {}
    lines: list[str] = []
    for number, node in enumerate(root.toposort()):
        names[node] = f"u{number}"
        sources = "".join(f"{names[s]}, " for s in node.src)
        extra = "" if node.arg is None else f", {node.arg!r}"
        if node.tag is not None:
            extra = f", {node.arg!r}, {node.tag!r}"
        lines.append(f"u{number} = UOp({node.op}, {node.dtype}, ({sources}){extra})")
    if most_lines is not None and len(lines) > most_lines:
        lines = [f"# {len(lines) - most_lines} more nodes", *lines[-most_lines:]]
    return "\n".join(lines)
