"""Elementwise functions: exponentials, logarithms, circular and hyperbolic ones, rounding."""

from __future__ import annotations

import math
from typing import Any, Self, TypeVar

from tgcore.dtype import dtypes, least_upper_float
from tgcore.tensor.elementwise import Elementwise
from tgcore.uop.ops import Ops

F = TypeVar("F", bound="Functions")


class Functions(Elementwise):
    """Functions of one element, and a few of two."""

    __slots__ = ()

    def _with_gradient(self, rule: Any, *inputs: Self) -> Self:
        """The same values, with the gradients that a rule gives: a function of nodes, or the name
        of one in `gradient.RULES`."""
        nodes = [x._expanded(self.shape, rule) for x in inputs]
        return self._derived(self.uop.with_gradient(rule, *nodes), *inputs)

    # *** powers and logarithms ***

    def exp2(self) -> Self:
        """2 to the self.

        >>> Tensor([0.0, 3.0]).exp2().tolist()
        [1.0, 8.0]
        """
        return self._unary(Ops.EXP2)

    def exp(self) -> Self:
        """e to the self.

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        # in this form code generation knows the natural exponential, and rounds no product
        return self._scaled_input(math.log2(math.e))._unary(Ops.EXP2)._as(self)

    def _scaled_input(self, factor: float) -> Self:
        """self * factor; of narrow floats in float32, where the rounding does not show."""
        x = self._float()
        if x.dtype.itemsize < 4:
            x = x.cast(dtypes.float32)
        return x * factor

    def _as(self, other: Self) -> Self:
        """In the float type that other has, or becomes."""
        return self.cast(least_upper_float(other.dtype))

    def expm1(self) -> Self:
        """e to the self, minus 1; exact near 0.

        >>> Tensor([1e-6]).expm1().item() < 1.1e-6
        True
        """
        x = self._float()
        # Kahan's trick: with u = exp(x), (u - 1) * x / log(u) is exact where u - 1 is not
        u = x.exp()
        exact = (u - 1) * (x / u.log())
        value = (u == 1).where(x, (u == math.inf).where(u, (u - 1 == -1).where(-1.0, exact)))
        return value._with_gradient("expm1", x)

    def log2(self) -> Self:
        """The logarithm to base 2.

        >>> Tensor([1.0, 8.0]).log2().tolist()
        [0.0, 3.0]
        """
        return self._unary(Ops.LOG2)

    def log(self) -> Self:
        """The natural logarithm.

        >>> Tensor([1.0]).log().tolist()
        [0.0]
        """
        return self._scaled_log(math.log(2))

    def log10(self) -> Self:
        """The logarithm to base 10.

        >>> Tensor([100.0]).log10().tolist()
        [2.0]
        """
        return self._scaled_log(math.log10(2))

    def _scaled_log(self, factor: float) -> Self:
        x = self._float()
        wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
        return (wide._unary(Ops.LOG2) * factor)._as(self)

    def log1p(self) -> Self:
        """The natural logarithm of 1 + self; exact near 0.

        >>> Tensor([1e-6]).log1p().item() > 0.9e-6
        True
        """
        x = self._float()
        u = x + 1
        exact = u.log() * (x / (u - 1))
        return (u == 1).where(x, (u == math.inf).where(u, exact))._with_gradient("log1p", x)

    def sqrt(self) -> Self:
        """The square root.

        >>> Tensor([4.0]).sqrt().tolist()
        [2.0]
        """
        return self._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / the square root.

        >>> Tensor([4.0]).rsqrt().tolist()
        [0.5]
        """
        return self.sqrt().reciprocal()

    def square(self) -> Self:
        """self * self.

        >>> Tensor([3]).square().tolist()
        [9]
        """
        return self * self

    def logaddexp(self, x: Any) -> Self:
        """log(exp(self) + exp(x)), without overflow.

        >>> Tensor([0.0]).logaddexp(Tensor([0.0])).numpy().round(3).tolist()
        [0.6930000185966492]
        """
        a, b = self._meet(x, "logaddexp")
        a, b = a._float(), b._float()
        top = type(self)._from_uop(a.maximum(b).uop.detach())
        shift = (top.abs() == math.inf).where(0.0, top)
        return ((a - shift).exp() + (b - shift).exp()).log() + shift

    # *** circles ***

    def sin(self) -> Self:
        """The sine.

        >>> Tensor([0.0]).sin().tolist()
        [0.0]
        """
        return self._unary(Ops.SIN)

    def cos(self) -> Self:
        """The cosine.

        >>> Tensor([0.0]).cos().tolist()
        [1.0]
        """
        x = self._float()
        if x.dtype.itemsize < 4:
            return x.cast(dtypes.float32).cos()._as(self)
        # in this form code generation knows the cosine, and does not subtract
        return (math.pi / 2 - x)._unary(Ops.SIN)

    def tan(self) -> Self:
        """The tangent.

        >>> Tensor([0.0]).tan().tolist()
        [0.0]
        """
        return self.sin() / self.cos()

    def asin(self) -> Self:
        """The inverse of the sine.

        >>> Tensor([1.0]).asin().numpy().round(3).tolist()
        [1.5709999799728394]
        """
        x = self._float()
        a = x.abs()
        # near 1 by the half angle: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))
        big = a > 0.5
        z = big.where((1 - a) * 0.5, a * a)
        s = big.where(z.sqrt(), a)
        series = s + s * z * _polynomial(z, _ASIN)
        value = big.where(math.pi / 2 - 2 * series, series) * x._direction()
        return value._with_gradient("asin", x)

    def acos(self) -> Self:
        """The inverse of the cosine.

        >>> Tensor([1.0]).acos().tolist()
        [0.0]
        """
        x = self._float()
        a = x.abs()
        near_one = 2 * ((1 - a) * 0.5).sqrt().asin()
        far = math.pi / 2 - x.asin()
        value = (a > 0.5).where((x < 0).where(math.pi - near_one, near_one), far)
        return value._with_gradient("acos", x)

    def atan(self) -> Self:
        """The inverse of the tangent.

        >>> Tensor([1.0]).atan().numpy().round(3).tolist()
        [0.7850000262260437]
        """
        x = self._float()
        a = x.abs()
        # three parts, each brought into [-tan(pi/8), tan(pi/8)]
        high, middle = a > 2.414213562373095, a > 0.4142135623730951
        reduced = high.where(-a.reciprocal(), middle.where((a - 1) / (a + 1), a))
        base = high.where(math.pi / 2, middle.where(x._full_const(math.pi / 4), 0.0))
        z = reduced * reduced
        value = (base + reduced + reduced * z * _polynomial(z, _ATAN)) * x._direction()
        return value._with_gradient("atan", x)

    def atan2(self, x: Any) -> Self:
        """The angle of the point (x, self).

        >>> Tensor([1.0]).atan2(Tensor([-1.0])).numpy().round(3).tolist()
        [2.3559999465942383]
        """
        b, a = self._meet(x, "atan2")
        b, a = b._float(), a._float()
        # -0.0 is told from 0.0 by the sign of its reciprocal
        left = (a < 0) | ((a == 0) & (a.reciprocal() < 0))
        below = (b < 0) | ((b == 0) & (b.reciprocal() < 0))
        ratio = b.abs() / (a == 0).where(a._full_const(0.0), a.abs())
        ratio = (a.isinf() & b.isinf()).where(ratio._full_const(1.0), ratio)
        angle = (b == 0).where(ratio._full_const(0.0) * b, ratio.atan())
        angle = left.where(math.pi - angle, angle)
        angle = (a.isnan() | b.isnan()).where(math.nan, below.where(-angle, angle))
        return angle._with_gradient("atan2", b, a)

    def _full_const(self, value: float) -> Self:
        return self._as_tensor(value, "constant", self.dtype)

    # *** hyperbolas ***

    def sinh(self) -> Self:
        """The hyperbolic sine.

        >>> Tensor([0.0]).sinh().tolist()
        [0.0]
        """
        x = self._float()
        u = x.abs().expm1()
        small = 0.5 * (u + u / (u + 1))
        half = (x.abs() * 0.5).exp()
        value = (x.abs() > 20).where(half * 0.5 * half, small) * x._direction()
        return value._with_gradient("sinh", x)

    def cosh(self) -> Self:
        """The hyperbolic cosine.

        >>> Tensor([0.0]).cosh().tolist()
        [1.0]
        """
        x = self._float()
        half = (x.abs() * 0.5).exp()
        value = half * 0.5 * half + (half * half).reciprocal() * 0.5
        return value._with_gradient("cosh", x)

    def tanh(self) -> Self:
        """The hyperbolic tangent.

        >>> Tensor([0.0]).tanh().tolist()
        [0.0]
        """
        x = self._float()
        a = x.abs()
        square, z = a * a, (a * -2.0).exp()
        small = a + a * square * _polynomial(square, _TANH)
        value = (a < 0.55).where(small, (1 - z) / (1 + z))
        return (value * x._direction())._with_gradient("tanh", x)

    def asinh(self) -> Self:
        """The inverse of the hyperbolic sine.

        >>> Tensor([0.0]).asinh().tolist()
        [0.0]
        """
        x = self._float()
        a = x.abs()
        root = (a * a + 1).sqrt()
        small = (a < 1e-3).where(a - a * a * a / 6, (a + a * a / (1 + root)).log1p())
        # for large values the square would overflow, and 2a is all there is
        huge = a.log() + math.log(2)
        value = (a > 1e6).where(huge, (a > 2).where((a + root).log(), small)) * x._direction()
        return value._with_gradient("asinh", x)

    def acosh(self) -> Self:
        """The inverse of the hyperbolic cosine.

        >>> Tensor([1.0]).acosh().tolist()
        [0.0]
        """
        x = self._float()
        t = x - 1
        small = (t + (2 * t + t * t).sqrt()).log1p()
        value = (x > 1e6).where(x.log() + math.log(2), (x < 1).where(math.nan, small))
        return value._with_gradient("acosh", x)

    def atanh(self) -> Self:
        """The inverse of the hyperbolic tangent.

        >>> Tensor([0.5]).atanh().numpy().round(3).tolist()
        [0.5490000247955322]
        """
        x = self._float()
        a = x.abs()
        value = 0.5 * (2 * a / (1 - a)).log1p() * x._direction()
        return value._with_gradient("atanh", x)

    # *** rounding and sign ***

    def trunc(self) -> Self:
        """Rounded towards zero.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
        return self._unary(Ops.TRUNC) if self.is_floating_point() else self

    def floor(self) -> Self:
        """Rounded down.

        >>> Tensor([1.7, -1.7]).floor().tolist()
        [1.0, -2.0]
        """
        return self._floor() if self.is_floating_point() else self

    def ceil(self) -> Self:
        """Rounded up.

        >>> Tensor([1.2, -1.2]).ceil().tolist()
        [2.0, -1.0]
        """
        if not self.is_floating_point():
            return self
        whole = self.trunc()
        return (self > whole).where(whole + 1, whole)

    def round(self) -> Self:
        """Rounded to the nearest whole number, halves to the even one.

        >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if not self.is_floating_point():
            return self
        whole = self.trunc()
        rest = (self - whole).abs()
        odd = (whole * 0.5).trunc() * 2 != whole
        away = (rest > 0.5) | ((rest == 0.5) & odd)
        return away.where(whole + self._direction(), whole)

    def frac(self) -> Self:
        """What is behind the point; has the sign of self.

        >>> Tensor([1.5, -1.5]).frac().tolist()
        [0.5, -0.5]
        """
        return self - self.trunc()

    def sign(self) -> Self:
        """-1, 0 or 1; 0 for nan.

        >>> Tensor([-2.0, 0.0, 3.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        if dtypes.is_bool(self.dtype):
            return self
        result = (self > 0).where(self._full_const(1), 0)
        if dtypes.is_unsigned(self.dtype):
            return result
        return (self < 0).where(self._full_const(-1), result)._flat(self)

    def _flat(self, source: Self) -> Self:
        """Detached, if the source may have a gradient: the function is flat."""
        if not source.is_floating_point():
            return self
        return type(self)._from_uop(self.uop.detach(), source._requires_grad)

    def _direction(self) -> Self:
        """-1 for negative values, else 1."""
        return (self < 0).where(self._full_const(-1), 1)

    def abs(self) -> Self:
        """Without the sign.

        >>> Tensor([-2, 2]).abs().tolist()
        [2, 2]
        """
        if dtypes.is_unsigned(self.dtype) or dtypes.is_bool(self.dtype):
            return self
        if self.is_floating_point():
            return self * self.sign()
        return (self < 0).where(-self, self)

    def copysign(self, x: Any) -> Self:
        """The magnitude of self with the sign of x.

        >>> Tensor([1.0, 2.0]).copysign(Tensor([-1.0, 1.0])).tolist()
        [-1.0, 2.0]
        """
        a, b = self._meet(x, "copysign")
        a, b = a._float(), b._float()
        negative = (b < 0) | ((b == 0) & (b.reciprocal() < 0))
        return negative.where(-a.abs(), a.abs())

    def lerp(self, end: Self, weight: Any) -> Self:
        """self + (end - self) * weight.

        >>> Tensor([0.0]).lerp(Tensor([10.0]), 0.25).tolist()
        [2.5]
        """
        result: Self = self + (end - self) * weight
        return result

    def isclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Where both differ by at most atol + rtol * |other|.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        a, b = self._meet(other, "isclose")
        near = (a - b).abs() <= b.abs() * rtol + atol
        result: Self = (a == b) | (near & a.isfinite() & b.isfinite())
        return result | (a.isnan() & b.isnan()) if equal_nan else result

    # *** erf ***

    def erf(self) -> Self:
        """The error function.

        >>> Tensor([0.0]).erf().tolist()
        [0.0]
        """
        x = self._float()
        a = x.abs().minimum(10.0)
        small = a * _polynomial(a * a, _ERF_SMALL)
        if x.dtype is dtypes.float64:
            scaled = _polynomial((a - 3.75) / (a + 3.75), _ERFCX) / (1 + 2 * a)
            large = 1 - (-(a * a)).exp() * scaled
        else:
            t = (1 + 0.5 * a).reciprocal()
            large = 1 - t * (-(a * a) + _polynomial(t, _ERFC)).exp()
        value = (a < 0.5).where(small, large) * x._direction()
        return value._with_gradient("erf", x)


def _polynomial(x: F, coefficients: tuple[float, ...]) -> F:
    """The polynomial with these coefficients, that of the highest power first."""
    result = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        result = result * x + c
    return result


# Taylor series of (asin(s) - s) / s**3 in s**2, on [0, 1/4]; the coefficients are
# (2n)! / (4**n n!**2 (2n + 1))
_ASIN = tuple(math.comb(2 * n, n) / (4**n * (2 * n + 1)) for n in range(14, 0, -1))
# Taylor series of (atan(r) - r) / r**3 in r**2, on [0, tan(pi/8)**2]
_ATAN = tuple((-1) ** n / (2 * n + 1) for n in range(20, 0, -1))
# Chebyshev fit of (tanh(x) - x) / x**3 in x**2, on [0, 0.32]; error below 2e-13
_TANH = (
    0.0003618330344314702, -0.001350424357266317, 0.0035657070515491478, -0.008859552841554543,
    0.021869216398869126, -0.05396824487862529, 0.13333333325637678, -0.33333333333390586,
)  # fmt: skip
# Taylor series of erf(x) / x in x**2
_ERF_SMALL = tuple(
    2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1))
    for n in range(10, -1, -1)
)
# Chebyshev fit of (1 + 2x) exp(x**2) erfc(x) in (x - 3.75) / (x + 3.75), from 0.45 on; 2e-15
_ERFCX = (
    9.330253966609041e-09, 2.3516174867398415e-08, -1.9352164789781942e-07, -7.569498680214299e-08,
    1.6764714372460502e-06, -9.428586674070009e-07, -1.1392830865131496e-05, 2.2360332954933456e-05,
    5.1627161579534094e-05, -0.00029014351485895324, 0.0002937196315045927, 0.0017556230842917786,
    -0.009746580573003299, 0.028362277840838442, -0.058693398487412216, 0.09230432112580547,
    -0.10880393014715346, 0.0822767384914237, 0.0035854154855782944, -0.14024059858556082,
    1.2375126308378277,
)  # fmt: skip
# "Numerical Recipes", 3rd edition, section 6.2.2: erfc by a Chebyshev fit, error below 1.2e-7
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
    -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
