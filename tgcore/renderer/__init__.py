"""From a linear program to source text: the base classes and the language families."""

from tgcore.renderer.base import Compiler, Renderer

__all__ = ["Compiler", "Renderer"]
