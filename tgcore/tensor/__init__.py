"""The front end: Tensor, its methods by subject, autograd, TinyJit."""

from tgcore.tensor.core import Variable, enable_grad, no_grad
from tgcore.tensor.jit import TinyJit
from tgcore.tensor.tensor import Tensor

__all__ = ["Tensor", "TinyJit", "Variable", "enable_grad", "no_grad"]
