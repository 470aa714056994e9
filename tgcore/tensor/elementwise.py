"""Elementwise ops: arithmetic, comparison, logic, rounding, transcendental, activation functions.

Types promote by the lattice of `tgcore.dtype`; Python numbers are weak: they take the tensor's type if
their kind fits it.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tgcore.dtype import DType, dtypes, least_upper_dtype, least_upper_float
from tgcore.errors import DTypeError
from tgcore.tensor.core import TensorCore
from tgcore.tensor.movement import MovementMethods, broadcast_shape
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

_LN2 = math.log(2)


def is_number(value: Any) -> bool:
    """Whether the value is a Python (or symbolic) number."""
    return isinstance(value, (int, float, bool)) or (isinstance(value, UOp) and value.shape == ())


def weak_dtype(value: Any, other: DType) -> DType:
    """The type that a Python number takes beside a tensor of the other type."""
    if isinstance(value, bool):
        return other
    if isinstance(value, float):
        return other if dtypes.is_float(other) else dtypes.default_float
    return dtypes.default_int if other is dtypes.bool else other


class ElementwiseMethods(MovementMethods):
    """Methods that work on each element by itself."""

    __slots__ = ()

    # *** operands ***

    def _const(self, value: Any, dtype: DType) -> UOp:
        if isinstance(value, UOp):
            return value.cast(dtype)
        return UOp.const(dtype, value)

    def _operands(
        self, other: Any, reverse: bool = False, dtype: DType | None = None
    ) -> tuple[UOp, UOp]:
        """Two sources of one type and shape, in order."""
        if is_number(other):
            common = dtype or least_upper_dtype(self.dtype, weak_dtype(other, self.dtype))
            pair = (self.cast(common).uop, self._const(other, common))
            return pair[::-1] if reverse else pair
        y = self._as_tensor(other)
        common = dtype or least_upper_dtype(self.dtype, y.dtype)
        if self.device != y.device and self.uop.device and y.uop.device:
            raise RuntimeError(
                f"the operands are on {self.device} and {y.device}: move one with .to()"
            )
        shape = broadcast_shape(self.shape, y.shape)
        a, b = self.cast(common)._broadcast_to(shape).uop, y.cast(common)._broadcast_to(shape).uop
        return (b, a) if reverse else (a, b)

    def _as_tensor(self, other: Any) -> Self:
        if isinstance(other, TensorCore):
            return other  # type: ignore[return-value]
        return type(self)(other, device=self.device)  # type: ignore[call-arg]

    def _binary(
        self, op: Ops, other: Any, reverse: bool = False, dtype: DType | None = None
    ) -> Self:
        a, b = self._operands(other, reverse, dtype)
        return self._unary(a.alu(op, b))

    def _float_unary(self, op: Ops) -> Self:
        return self._unary(self.cast(least_upper_float(self.dtype)).uop.alu(op))

    # *** arithmetic ***

    def add(self, other: Any, reverse: bool = False) -> Self:
        """The sum; of bools: or.

        >>> (Tensor([1, 2]) + 1).tolist()
        [2, 3]
        """
        return self._binary(Ops.ADD, other, reverse)

    def mul(self, other: Any, reverse: bool = False) -> Self:
        """The product; of bools: and."""
        return self._binary(Ops.MUL, other, reverse)

    def neg(self) -> Self:
        """The negative; of bools: not."""
        return self.logical_not() if self.dtype is dtypes.bool else self * -1

    def sub(self, other: Any, reverse: bool = False) -> Self:
        """The difference."""
        a, b = self._operands(other, reverse)
        if a.dtype is dtypes.bool:
            raise DTypeError("sub of bools: use logical_xor (^), or cast to integers")
        return self._unary(a.alu(Ops.ADD, b.alu(Ops.MUL, b.const_like(-1))))

    def div(self, other: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """The quotient: of integers the default float, unless rounded ("trunc" or "floor")."""
        if rounding_mode is not None:
            return self._rounded_div(other, reverse, rounding_mode)
        a, b = self._operands(other, reverse)
        common = least_upper_float(a.dtype)
        return self._unary(a.cast(common).alu(Ops.MUL, b.cast(common).alu(Ops.RECIPROCAL)))

    def _rounded_div(self, other: Any, reverse: bool, mode: str) -> Self:
        if mode not in ("trunc", "floor"):
            raise ValueError(f"rounding_mode is 'trunc' or 'floor', not {mode!r}")
        a, b = (self._unary(u) for u in self._operands(other, reverse))
        if not dtypes.is_int(a.dtype):
            quotient = a / b
            return quotient.trunc() if mode == "trunc" else quotient.floor()
        quotient = a._binary(Ops.IDIV, b)
        if mode == "trunc" or dtypes.is_unsigned(a.dtype):
            return quotient
        rest = a - quotient * b
        return (rest.ne(0) & ((rest < 0) ^ (b < 0))).where(quotient - 1, quotient)

    def idiv(self, other: Any, reverse: bool = False) -> Self:
        """The quotient of integers, towards zero."""
        return self._binary(Ops.IDIV, other, reverse)

    def mod(self, other: Any, reverse: bool = False) -> Self:
        """What floor division leaves; it has the divisor's sign, as in Python.

        >>> (Tensor([-5, 5]) % 3).tolist()
        [1, 2]
        """
        a, b = (self._unary(u) for u in self._operands(other, reverse))
        return a - b * a.div(b, rounding_mode="floor")

    def fmod(self, other: Any) -> Self:
        """What division towards zero leaves."""
        return self - self._as_operand(other) * self.div(other, rounding_mode="trunc")

    def _as_operand(self, other: Any) -> Self:
        return self._unary(self._operands(other)[1])

    def pow(self, other: Any, reverse: bool = False) -> Self:
        """The power. A whole number as exponent keeps an integer type.

        >>> (Tensor([2, 3]) ** 2).tolist()
        [4, 9]
        """
        if not reverse and isinstance(other, (int, float)) and not isinstance(other, bool):
            simple = self._simple_power(other)
            if simple is not None:
                return simple
        a, b = (self._unary(u) for u in self._operands(other, reverse))
        common = least_upper_float(a.dtype)
        powers = a.cast(common)._binary(Ops.POW, b.cast(common))
        return powers.round().cast(a.dtype) if dtypes.is_int(a.dtype) else powers

    def _simple_power(self, exponent: float) -> Self | None:
        if exponent == 0:
            return self * 0 + 1 if dtypes.is_int(self.dtype) else self._ones_like()
        if exponent == 0.5:
            return self.sqrt()
        if exponent == -0.5:
            return self.rsqrt()
        if not float(exponent).is_integer() or abs(exponent) > 64:
            return None
        if exponent < 0:
            if dtypes.is_int(self.dtype):
                return self.cast(dtypes.default_float)._simple_power(exponent)
            power = self._simple_power(-exponent)
            return None if power is None else power.reciprocal()
        base = self if isinstance(exponent, int) or self.is_floating_point() else self * 1.0
        result: Self | None = None
        square, left = base, int(exponent)
        while left:
            if left & 1:
                result = square if result is None else result * square
            left >>= 1
            if left:
                square = square * square
        return result

    def _ones_like(self) -> Self:
        return self._unary(self.uop.const_like(1).reshape((1,) * self.ndim).expand(self.shape))

    def maximum(self, other: Any) -> Self:
        """The greater one; nan if one is nan."""
        return self._binary(Ops.MAX, other)

    def minimum(self, other: Any) -> Self:
        """The lesser one; nan if one is nan."""
        a, b = (self._unary(u) for u in self._operands(other))
        return a._inverse().maximum(b._inverse())._inverse()

    def _inverse(self) -> Self:
        """What turns the order round: negative, bitwise not, logical not."""
        if self.is_floating_point():
            return self * -1
        return self.logical_not() if self.dtype is dtypes.bool else self ^ -1

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Not below min_, not above max_."""
        if min_ is None and max_ is None:
            raise ValueError("clamp needs a least or a greatest value")
        x = self if min_ is None else (self < min_).where(min_, self)
        return x if max_ is None else (x > max_).where(max_, x)

    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """The same as `clamp`."""
        return self.clamp(min_, max_)

    def lerp(self, end: Self, weight: Any) -> Self:
        """self + (end - self) * weight."""
        return self + (end - self) * weight

    def reciprocal(self) -> Self:
        """1 / x."""
        return self._float_unary(Ops.RECIPROCAL)

    def abs(self) -> Self:
        """The absolute value."""
        if dtypes.is_unsigned(self.dtype) or self.dtype is dtypes.bool:
            return self
        return self.maximum(-self) if not self.is_floating_point() else self * self.sign()

    def sign(self) -> Self:
        """-1, 0 or 1; nan stays."""
        one = self.ne(0).where((self < 0).where(self._full_like(-1), 1), self._full_like(0))
        return one + self * 0 if self.is_floating_point() else one

    def _full_like(self, value: Any) -> Self:
        constant = UOp.const(self.dtype, value)
        return self._unary(constant.reshape((1,) * self.ndim).expand(self.shape))

    def copysign(self, other: Any) -> Self:
        """This magnitude with the other's sign (of -0.0 too)."""
        a, b = (self._unary(u) for u in self._operands(other))
        negative = (b < 0) | (b.eq(0) & (b.reciprocal() < 0))
        return negative.where(-a.abs(), a.abs())

    def square(self) -> Self:
        """x * x."""
        return self * self

    # *** comparison, logic, bits ***

    def ne(self, other: Any) -> Self:
        """Whether the elements differ."""
        return self._binary(Ops.CMPNE, other)

    def eq(self, other: Any) -> Self:
        """Whether the elements are equal."""
        return self._binary(Ops.CMPNE, other).logical_not()

    def logical_not(self) -> Self:
        """Whether each element is 0 (or False)."""
        return self._unary(self.cast(dtypes.bool).uop.logical_not())

    def logical_and(self, other: Any) -> Self:
        """Whether both are not 0."""
        return self.bool() & self._as_bool(other)

    def logical_or(self, other: Any) -> Self:
        """Whether one of them is not 0."""
        return self.bool() | self._as_bool(other)

    def logical_xor(self, other: Any) -> Self:
        """Whether exactly one of them is not 0."""
        return self.bool() ^ self._as_bool(other)

    def _as_bool(self, other: Any) -> Any:
        return bool(other) if is_number(other) else other.bool()

    def bitwise_and(self, other: Any, reverse: bool = False) -> Self:
        """Bits set in both."""
        return self._bits(Ops.AND, other, reverse)

    def bitwise_or(self, other: Any, reverse: bool = False) -> Self:
        """Bits set in one of them."""
        return self._bits(Ops.OR, other, reverse)

    def bitwise_xor(self, other: Any, reverse: bool = False) -> Self:
        """Bits set in exactly one of them."""
        return self._bits(Ops.XOR, other, reverse)

    def bitwise_not(self) -> Self:
        """All bits turned; of bools: not."""
        return self.logical_not() if self.dtype is dtypes.bool else self ^ -1

    def _bits(self, op: Ops, other: Any, reverse: bool) -> Self:
        a, b = self._operands(other, reverse)
        if dtypes.is_float(a.dtype):
            raise DTypeError(f"{op.name.lower()} needs integers or bools, not {a.dtype}")
        return self._unary(a.alu(op, b))

    def lshift(self, other: Any) -> Self:
        """Bits moved up."""
        return self._shift(Ops.SHL, other)

    def rshift(self, other: Any) -> Self:
        """Bits moved down; the sign is kept."""
        return self._shift(Ops.SHR, other)

    def _shift(self, op: Ops, other: Any) -> Self:
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"a shift needs integers, not {self.dtype}")
        return self._binary(op, other)

    def where(self, yes: Any, no: Any) -> Self:
        """`yes` where self is true, else `no`.

        >>> Tensor([True, False]).where(1, 2).tolist()
        [1, 2]
        """
        if isinstance(yes, TensorCore):
            a, b = yes._operands(no)  # type: ignore[attr-defined]
        elif isinstance(no, TensorCore):
            b, a = no._operands(yes)  # type: ignore[attr-defined]
        else:
            a, b = self._as_tensor(yes)._operands(self._as_tensor(no))
        shape = broadcast_shape(self.shape, a.known_shape, b.known_shape)
        condition = self.cast(dtypes.bool)._broadcast_to(shape).uop
        branches = [
            u if u.op is Ops.CONST and u.shape == () else self.from_uop(u)._broadcast_to(shape).uop
            for u in (a, b)
        ]
        return self._unary(condition.alu(Ops.WHERE, *branches))

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """The value where the mask is true, else self."""
        return mask.where(value, self)

    def isnan(self) -> Self:
        """Whether each element is nan."""
        return self.ne(self)

    def isinf(self) -> Self:
        """Whether each element is infinite."""
        return self.eq(math.inf) | self.eq(-math.inf)

    def isfinite(self) -> Self:
        """Whether each element is neither infinite nor nan."""
        return (self.isinf() | self.isnan()).logical_not()

    def isclose(
        self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Whether |self - other| <= atol + rtol * |other|."""
        finite = self.isfinite() & other.isfinite()
        near = finite & ((self - other).abs() <= atol + rtol * other.abs())
        same = near | self.eq(other)
        return same | (self.isnan() & other.isnan()) if equal_nan else same

    # *** rounding ***

    def trunc(self) -> Self:
        """Rounded towards zero."""
        return self._unary(self.uop.alu(Ops.TRUNC)) if self.is_floating_point() else self

    def floor(self) -> Self:
        """Rounded down."""
        if not self.is_floating_point():
            return self
        cut = self.trunc()
        return (self < cut).where(cut - 1, cut)

    def ceil(self) -> Self:
        """Rounded up."""
        if not self.is_floating_point():
            return self
        cut = self.trunc()
        return (self > cut).where(cut + 1, cut)

    def round(self) -> Self:
        """Rounded to the nearest, halves to even.

        >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
        [0.0, 2.0, 2.0]
        """
        if not self.is_floating_point():
            return self
        up, down = (self + 0.5).floor(), (self - 0.5).ceil()
        is_half = (self - self.trunc()).abs().eq(0.5)
        nearest_even = (self.trunc() * 0.5).trunc().eq(self.trunc() * 0.5)
        halves = nearest_even.where(self.trunc(), self.trunc() + self.sign())
        nearest = (self > 0).where(up, down)
        # from 2**(mantissa bits) on all floats are whole, and adding a half would round
        large = self.abs() >= float(1 << dtypes.finfo(self.dtype)[1])
        return large.where(self, is_half.where(halves, nearest))

    def frac(self) -> Self:
        """What truncation takes away."""
        return self - self.trunc()

    # *** transcendental ***

    def exp2(self) -> Self:
        """2 to the x."""
        return self._float_unary(Ops.EXP2)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._float_unary(Ops.LOG2)

    def exp(self) -> Self:
        """e to the x."""
        return (self * (1 / _LN2)).exp2()

    def log(self) -> Self:
        """The natural logarithm."""
        return self.log2() * _LN2

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log2() * (_LN2 / math.log(10))

    def expm1(self) -> Self:
        """exp(x) - 1, exact near 0 (series below 1e-2)."""
        x = self.cast(least_upper_float(self.dtype))
        series = x * (1 + x * (1 / 2) * (1 + x * (1 / 3) * (1 + x * (1 / 4) * (1 + x * (1 / 5)))))
        return (x.abs() < 0.05).where(series, x.exp() - 1)

    def log1p(self) -> Self:
        """log(1 + x), exact near 0 (series below 1e-2)."""
        x = self.cast(least_upper_float(self.dtype))
        series = x * (1 - x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6))))))
        return (x.abs() < 0.03).where(series, (x + 1).log())

    def sqrt(self) -> Self:
        """The square root."""
        return self._float_unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return self.sqrt().reciprocal()

    def sin(self) -> Self:
        """The sine."""
        return self._float_unary(Ops.SIN)

    def cos(self) -> Self:
        """The cosine: sin(pi/2 - x) with the angle reduced first where that loses digits."""
        x = self.cast(least_upper_float(self.dtype))
        if x.dtype is not dtypes.float64:
            return (math.pi / 2 - x.cast(dtypes.float64)).sin().cast(x.dtype)
        return (math.pi / 2 - x).sin()

    def tan(self) -> Self:
        """The tangent."""
        return self.sin() / self.cos()

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return (self.expm1() - (-self).expm1()) * 0.5

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return (self.exp() + (-self).exp()) * 0.5

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return 2.0 * (2.0 * self).sigmoid() - 1.0

    def asinh(self) -> Self:
        """The inverse of sinh."""
        x = self.abs()
        return ((x + (x.square() + 1).sqrt()).log()).copysign(self)

    def acosh(self) -> Self:
        """The inverse of cosh."""
        return (self + (self.square() - 1).sqrt()).log()

    def atanh(self) -> Self:
        """The inverse of tanh."""
        return (self.log1p() - (-self).log1p()) * 0.5

    def asin(self) -> Self:
        """The inverse of sin, by a polynomial (Abramowitz and Stegun 4.4.46)."""
        x = self.cast(least_upper_float(self.dtype))
        a = x.abs()
        inner = math.pi / 2 - (1 - a).sqrt() * _polynomial(a, _ASIN)
        return x.sign() * inner

    def acos(self) -> Self:
        """The inverse of cos."""
        return math.pi / 2 - self.asin()

    def atan(self) -> Self:
        """The inverse of tan."""
        return (self / (self.square() + 1).sqrt()).asin()

    def atan2(self, other: Self) -> Self:
        """The angle of the point (other, self)."""
        base = (self / other).atan()
        left = (self < 0).where(base - math.pi, base + math.pi)
        up = (self > 0).where(math.pi / 2, (self < 0).where(self._full_like(-math.pi / 2), 0))
        return other.eq(0).where(up, (other < 0).where(left, base))

    def erf(self) -> Self:
        """The error function (Abramowitz and Stegun 7.1.26, error below 1.5e-7)."""
        x = self.cast(least_upper_float(self.dtype))
        t = 1 / (x.abs() * 0.3275911 + 1)
        return x.sign() * (1 - t * _polynomial(t, _ERF) * (-(x.square())).exp())

    def logaddexp(self, other: Any) -> Self:
        """log(exp(self) + exp(other)) without overflow."""
        a, b = (self._unary(u) for u in self._operands(other))
        top = a.maximum(b)
        return top + ((a - top).exp() + (b - top).exp()).log()

    # *** activation functions ***

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        return ((self * (-1 / _LN2)).exp2() + 1).reciprocal()

    def relu(self) -> Self:
        """x where positive, else 0.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        return (self > 0).where(self, 0)

    def relu6(self) -> Self:
        """relu, not above 6."""
        return self.relu() - (self - 6).relu()

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """x where not negative, else slope * x."""
        return (self < 0).where(self * slope, self)

    def elu(self, alpha: float = 1.0) -> Self:
        """x where positive, else alpha * (exp(x) - 1)."""
        return self.relu() - (alpha * (1 - self.exp())).relu()

    def celu(self, alpha: float = 1.0) -> Self:
        """The continuously differentiable elu."""
        return self.relu() - (alpha * (1 - (self / alpha).exp())).relu()

    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """The scaled elu that normalises itself (Klambauer et al., 2017)."""
        return gamma * (self > 0).where(self, alpha * (self.exp() - 1))

    def gelu(self) -> Self:
        """x times the normal distribution's integral, by tanh (Hendrycks and Gimpel, 2016)."""
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)
        return 0.5 * self * (1 + inner.tanh())

    def quick_gelu(self) -> Self:
        """x * sigmoid(1.702 x)."""
        return self * (self * 1.702).sigmoid()

    def silu(self) -> Self:
        """x * sigmoid(x)."""
        return self * self.sigmoid()

    def swish(self) -> Self:
        """The same as `silu`."""
        return self.silu()

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta x)) / beta."""
        return (self * beta).logaddexp(0.0) / beta

    def mish(self) -> Self:
        """x * tanh(softplus(x))."""
        return self * self.softplus().tanh()

    def hardtanh(self, min_: float = -1.0, max_: float = 1.0) -> Self:
        """Between min_ and max_."""
        return self.clamp(min_, max_)

    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6."""
        return self * (self + 3).relu6() * (1 / 6)

    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha x + beta, between 0 and 1."""
        return (alpha * self + beta).relu() - (alpha * self + beta - 1).relu()

    def softsign(self) -> Self:
        """x / (1 + |x|)."""
        return self / (1 + self.abs())

    # *** operators ***

    def __add__(self, other: Any) -> Self:
        return self.add(other)

    def __radd__(self, other: Any) -> Self:
        return self.add(other, True)

    def __sub__(self, other: Any) -> Self:
        return self.sub(other)

    def __rsub__(self, other: Any) -> Self:
        return self.sub(other, True)

    def __mul__(self, other: Any) -> Self:
        return self.mul(other)

    def __rmul__(self, other: Any) -> Self:
        return self.mul(other, True)

    def __truediv__(self, other: Any) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.div(other, True)

    def __floordiv__(self, other: Any) -> Self:
        return self.div(other, rounding_mode="floor")

    def __rfloordiv__(self, other: Any) -> Self:
        return self.div(other, True, rounding_mode="floor")

    def __mod__(self, other: Any) -> Self:
        return self.mod(other)

    def __rmod__(self, other: Any) -> Self:
        return self.mod(other, True)

    def __pow__(self, other: Any) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Any) -> Self:
        return self.pow(other, True)

    def __neg__(self) -> Self:
        return self.neg()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __abs__(self) -> Self:
        return self.abs()

    def __and__(self, other: Any) -> Self:
        return self.bitwise_and(other)

    def __rand__(self, other: Any) -> Self:
        return self.bitwise_and(other, True)

    def __or__(self, other: Any) -> Self:
        return self.bitwise_or(other)

    def __ror__(self, other: Any) -> Self:
        return self.bitwise_or(other, True)

    def __xor__(self, other: Any) -> Self:
        return self.bitwise_xor(other)

    def __rxor__(self, other: Any) -> Self:
        return self.bitwise_xor(other, True)

    def __lshift__(self, other: Any) -> Self:
        return self.lshift(other)

    def __rshift__(self, other: Any) -> Self:
        return self.rshift(other)

    def __lt__(self, other: Any) -> Self:
        return self._binary(Ops.CMPLT, other)

    def __gt__(self, other: Any) -> Self:
        return self._binary(Ops.CMPLT, other, True)

    def __ge__(self, other: Any) -> Self:
        return self._ordered_or_equal(other, False)

    def __le__(self, other: Any) -> Self:
        return self._ordered_or_equal(other, True)

    def _ordered_or_equal(self, other: Any, below: bool) -> Self:
        # not (a < b) would be true for nan
        strict = self._binary(Ops.CMPLT, other, not below)
        if self.is_floating_point() or isinstance(other, float):
            return strict | self.eq(other)
        return self._binary(Ops.CMPLT, other, below).logical_not()

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self.eq(other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self.ne(other)

    __hash__ = object.__hash__


_ASIN = (
    *(-0.0012624911, 0.0066700901, -0.0170881256, 0.0308918810),
    *(-0.0501743046, 0.0889789874, -0.2145988016, 1.5707963050),
)
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _polynomial(x: ElementwiseMethods, coefficients: tuple[float, ...]) -> Any:
    result: Any = coefficients[0]
    for c in coefficients[1:]:
        result = result * x + c
    return result
