"""Errors that say which stage of the compiler they come from, and on which graph it worked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tgcore.errors import TgcoreError
from tgcore.uop.node import UOp
from tgcore.uop.render import pyrender

_MOST_LINES: Final = 60  # of a graph in a message


@contextmanager
def stage(task: str, graph: UOp, fault: type[TgcoreError]) -> Iterator[None]:
    """Errors of tgcore get a note with the task and the graph.

    Any other exception is a fault of the compiler itself: it becomes a `fault`, with the first
    exception as its cause.

    >>> with stage("making a kernel for CPU", ast, CodegenError):
    ...     optimize(ast, target)
    """
    try:
        yield
    except TgcoreError as error:
        error.add_note(f"while {task}:\n{_text(graph)}")
        raise
    except Exception as error:
        raise fault(
            f"an unexpected {type(error).__name__} while {task}: {error}\n{_text(graph)}\n"
            "this is a fault of the compiler or of a back end's rules, not of your program"
        ) from error


def _text(graph: UOp) -> str:
    try:
        return pyrender(graph, most_lines=_MOST_LINES)
    except Exception as error:  # a graph so broken must not hide the error itself
        return f"(a graph without a text: {error!r})"
