"""Functions of one float32, over all exponents, against numpy in float64: errors in ULP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import Tensor
from tgcore.helpers import NOOPT

Array = np.ndarray[Any, Any]
SAMPLES = 1 << (18 if NOOPT else 22)

# name -> (numpy's function of float64, the greatest error in units in the last place)
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 1.5),
    "exp2": (np.exp2, 1.5),
    "expm1": (np.expm1, 4),
    "log": (np.log, 2.5),
    "log2": (np.log2, 2),
    "log10": (np.log10, 2.5),
    "log1p": (np.log1p, 4),
    "sqrt": (np.sqrt, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5),
    "reciprocal": (lambda x: 1 / x, 0.5),
    "sin": (np.sin, 2),
    "cos": (np.cos, 2),
    "tan": (np.tan, 4),
    "asin": (np.arcsin, 3),
    "acos": (np.arccos, 3),
    "atan": (np.arctan, 3),
    "sinh": (np.sinh, 4),
    "cosh": (np.cosh, 4),
    "tanh": (np.tanh, 4),
    "asinh": (np.arcsinh, 4),
    "acosh": (np.arccosh, 4),
    "atanh": (np.arctanh, 4),
    "erf": (lambda x: torch.erf(torch.tensor(x)).numpy(), 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3),
    "softplus": (lambda x: np.logaddexp(0, x), 4),
    "abs": (np.abs, 0),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
    "trunc": (np.trunc, 0),
    "round": (np.rint, 0),
}


def samples() -> Array:
    """Floats of all signs and exponents, evenly over their bits, which no step size favours."""
    bits = np.linspace(0, 2**32 - 1, SAMPLES).astype(np.uint64)
    bits ^= np.random.default_rng(0).integers(0, 2**9, SAMPLES, np.uint64)
    return bits.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name: str) -> None:
    function, limit = FUNCTIONS[name]
    x = samples()
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        found = getattr(Tensor(x), name)().numpy()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
        same = (found == rounded) | np.isnan(exact)
        # an error of an infinite result is infinite
        error = np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(rounded))
    error[same & ~np.isfinite(exact)] = 0
    error[np.isinf(rounded) & (found == rounded)] = 0
    worst = int(np.nanargmax(error))
    assert error[worst] <= limit, (
        f"{error[worst]:.2f} ULP at {x[worst]!r}: {found[worst]!r}, not {exact[worst]!r}"
    )
