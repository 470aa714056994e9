"""Arithmetic, comparison, logic, choice: the operators, with broadcasting and type promotion."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tgcore.dtype import DType, dtypes, least_upper_dtype, least_upper_float
from tgcore.errors import DTypeError, ShapeError
from tgcore.tensor.core import ConstType, DTypeLike, TensorCore, constant, to_dtype
from tgcore.tensor.movement import Movement, broadcast_shape
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

# the class has methods of these names
_bool = bool
_int = int


def weak_dtype(dtype: DType, value: Any) -> DType:
    """The type that a tensor of `dtype` and a Python scalar meet in: scalars are weak."""
    if dtypes.is_float(dtype):
        return dtype
    if isinstance(value, float):
        return dtypes.default_float
    if isinstance(value, bool) or dtypes.is_int(dtype):
        return dtype
    return dtypes.default_int


class Elementwise(Movement):
    """Operators and their named forms."""

    __slots__ = ()

    # *** types ***

    def cast(self, dtype: DTypeLike) -> Self:
        """The values in another type.

        To integers, floats are cut towards zero; those out of range become the nearest number that
        a 64-bit integer holds, then wrap around as integers do; nan becomes 0. To bool, all but 0
        is true.

        >>> Tensor([1.7, -1.7]).cast("int32").tolist()
        [1, -1]
        """
        target = to_dtype(dtype)
        if target is self.dtype:
            return self
        needs = self._requires_grad if dtypes.is_float(target) else False
        node = self.uop
        if dtypes.is_float(node.dtype) and dtypes.is_int(target):  # devices differ in what they do
            node = node.alu(Ops.CMPNE, node).alu(Ops.WHERE, node.const_like(0), node)
        result = self._derived(node.cast(target))
        result._requires_grad = needs if result._requires_grad is not False else False
        return result

    def to_type(self, dtype: DTypeLike) -> Self:
        """The same as `cast`.

        >>> Tensor([1]).to_type("float16").dtype
        dtypes.float16
        """
        return self.cast(dtype)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The bits read as another type. If that is wider or narrower, the last axis gets shorter
        or longer; the first of several elements has the lowest bits.

        >>> Tensor([1.0]).bitcast("int32").item()
        1065353216
        >>> Tensor([0, 0, 128, 63], dtype="uint8").bitcast("float32").tolist()
        [1.0]
        """
        target = to_dtype(dtype)
        if self._requires_grad and target is not self.dtype:
            raise DTypeError("bitcast has no gradient: detach() first")
        old, new = self.dtype.itemsize, target.itemsize
        if old == new:
            return self._derived(self.uop.bitcast(target))
        if not self.ndim or (int(self.shape[-1]) * old) % new:
            raise ShapeError(
                f"bitcast: the last axis of {self.shape} {self.dtype} is no whole number of "
                f"{target} elements"
            )
        bits = self.bitcast(f"uint{8 * old}")
        joined = bits._joined(new // old) if new > old else bits._parted(old // new)
        return joined.bitcast(target)

    def _joined(self, count: int) -> Self:
        """So many neighbouring unsigned integers as one."""
        width = 8 * self.dtype.itemsize
        wide = self.cast(to_dtype(f"uint{width * count}")).unflatten(-1, (-1, count))
        parts = [wide._slice(wide.ndim - 1, n, n + 1).squeeze(-1) for n in range(count)]
        shifted = [part << (width * n) for n, part in enumerate(parts)]
        return functools.reduce(lambda a, b: a | b, shifted)

    def _parted(self, count: int) -> Self:
        """Each unsigned integer as so many narrower ones."""
        width = 8 * self.dtype.itemsize // count
        narrow = to_dtype(f"uint{width}")
        parts = [(self >> (width * n)).cast(narrow) for n in range(count)]
        return parts[0].stack(*parts[1:], dim=-1).flatten(-2)

    def float(self) -> Self:
        """Cast to float32.

        >>> Tensor([1]).float().tolist()
        [1.0]
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Cast to float16.

        >>> Tensor([1.0]).half().dtype
        dtypes.float16
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        >>> Tensor([1.0]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast to float64.

        >>> Tensor([1.0]).double().dtype
        dtypes.float64
        """
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """Cast to int32.

        >>> Tensor([1.7]).int().tolist()
        [1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64.

        >>> Tensor([1]).long().dtype
        dtypes.int64
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Cast to int16.

        >>> Tensor([1]).short().dtype
        dtypes.int16
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """Cast to bool: all but 0 is true.

        >>> Tensor([0, 2]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    # *** how operands meet ***

    def _as_tensor(self, value: Any, what: str, like: DType | None = None) -> Self:
        """An operand as a tensor; a Python scalar takes a type that fits self's."""
        if isinstance(value, TensorCore):
            return value  # type: ignore[return-value]
        if isinstance(value, UOp):
            node = value if value.dtype is not dtypes.index else value.cast(dtypes.default_int)
            return type(self)._from_uop(node.cast(weak_dtype(self.dtype, 0)))
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, (bool, int, float)):
            raise TypeError(
                f"{what}: an operand must be a Tensor or a number, not {type(value).__name__}; "
                "use Tensor(...) to make one"
            )
        dtype = weak_dtype(self.dtype, value) if like is None else like
        return type(self)._from_uop(UOp.const(dtype, value))

    def _meet(self, other: Any, what: str, reverse: _bool = False) -> tuple[Self, Self]:
        """Both operands, in one type."""
        a, b = self, self._as_tensor(other, what)
        if a.dtype is not b.dtype:
            dtype = least_upper_dtype(a.dtype, b.dtype)
            a, b = a.cast(dtype), b.cast(dtype)
        return (b, a) if reverse else (a, b)

    def _alu(self, op: Ops, *others: Self) -> Self:
        """The op on operands of fitting types, broadcast to one shape."""
        operands = (self, *others)
        shape = broadcast_shape(op.name.lower(), *(t.shape for t in operands))
        devices = {d for t in operands if (d := t.uop.device) is not None}
        if len(devices) > 1:
            raise ShapeError(
                f"{op.name.lower()}: the operands live on {' and '.join(sorted(devices))}; "
                "move one with .to(device)"
            )
        nodes = [t._operand(shape) for t in operands]
        return self._derived(nodes[0].alu(op, *nodes[1:]), *others)

    def _binary(self, op: Ops, other: Any, what: str, reverse: _bool = False) -> Self:
        a, b = self._meet(other, what, reverse)
        return a._alu(op, b)

    def _float(self) -> Self:
        """Ints and bools as the default float."""
        return self.cast(least_upper_float(self.dtype))

    def _unary(self, op: Ops) -> Self:
        x = self._float()
        return x._derived(x.uop.alu(op))

    def _need_ints(self, what: str, *tensors: TensorCore) -> None:
        for t in (self, *tensors):
            if dtypes.is_float(t.dtype):
                raise DTypeError(f"{what} needs integers or bools, not {t.dtype}: cast first")

    # *** arithmetic ***

    def add(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self + x.

        >>> Tensor([1, 2]).add(0.5).tolist()
        [1.5, 2.5]
        """
        return self._binary(Ops.ADD, x, "add", reverse)

    def sub(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self - x (of bools: refused, as in PyTorch).

        >>> Tensor([1, 2]).sub(1).tolist()
        [0, 1]
        """
        a, b = self._meet(x, "sub", reverse)
        if dtypes.is_bool(a.dtype):
            raise DTypeError("sub: bools have no difference; use ^ or cast first")
        return a._alu(Ops.ADD, -b)

    def mul(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self * x.

        >>> Tensor([1, 2]).mul(3).tolist()
        [3, 6]
        """
        return self._binary(Ops.MUL, x, "mul", reverse)

    def div(
        self,
        x: Self | ConstType,
        reverse: _bool = False,
        rounding_mode: str | None = None,
    ) -> Self:
        """self / x as floats; `rounding_mode` "trunc" or "floor" rounds and keeps integers.

        >>> Tensor([7, -7]).div(2).tolist()
        [3.5, -3.5]
        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        a, b = self._meet(x, "div", reverse)
        if rounding_mode is None:
            a, b = a._float(), b._float()
            return a._alu(Ops.FDIV, b)
        if rounding_mode not in ("trunc", "floor"):
            raise ValueError(
                f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}"
            )
        if rounding_mode == "floor":
            return a // b
        if dtypes.is_float(a.dtype):
            return a._alu(Ops.FDIV, b)._unary(Ops.TRUNC)
        return a.cast(weak_dtype(a.dtype, 0))._alu(Ops.IDIV, b.cast(weak_dtype(b.dtype, 0)))

    def idiv(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self / x rounded towards zero.

        >>> Tensor([-7]).idiv(2).tolist()
        [-3]
        """
        return self.div(x, reverse, rounding_mode="trunc")

    def floordiv(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self / x rounded down.

        >>> (Tensor([7, -7]) // 2).tolist()
        [3, -4]
        """
        a, b = self._meet(x, "floordiv", reverse)
        if dtypes.is_float(a.dtype):
            return a._alu(Ops.FDIV, b)._floor()
        dtype = weak_dtype(a.dtype, 0)
        a, b = a.cast(dtype), b.cast(dtype)
        quotient = a._alu(Ops.IDIV, b)
        if dtypes.is_unsigned(dtype):
            return quotient
        inexact = a._alu(Ops.MOD, b)._alu(Ops.CMPNE, b._zero())
        down = inexact & (a < 0)._alu(Ops.CMPNE, b < 0)
        return quotient - down.cast(dtype)

    def mod(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """What floor division leaves: has the sign of the divisor.

        >>> (Tensor([7, -7]) % 3).tolist()
        [1, 2]
        """
        a, b = self._meet(x, "mod", reverse)
        if dtypes.is_float(a.dtype):
            return a._float_rest(b, lambda quotient: quotient._floor())
        dtype = weak_dtype(a.dtype, 0)
        a, b = a.cast(dtype), b.cast(dtype)
        rest = a._alu(Ops.MOD, b)
        if dtypes.is_unsigned(dtype):
            return rest
        wrong = rest._alu(Ops.CMPNE, b._zero()) & (rest < 0)._alu(Ops.CMPNE, b < 0)
        return wrong.where(rest + b, rest)

    def fmod(self, x: Self | ConstType) -> Self:
        """What division towards zero leaves: has the sign of the dividend.

        >>> Tensor([-7.0]).fmod(4.0).tolist()
        [-3.0]
        """
        a, b = self._meet(x, "fmod")
        if dtypes.is_float(a.dtype):
            return a._float_rest(b, lambda quotient: quotient._unary(Ops.TRUNC))
        return a._alu(Ops.MOD, b)

    def _float_rest(self, b: Self, rounded: Callable[[Self], Self]) -> Self:
        """self - rounded(self / b) * b; of float32 exact while the quotient is below 2**29, and of
        float64 rounded."""
        x, y = (t.cast(dtypes.float64) for t in (self, b))
        quotient = rounded(x._alu(Ops.FDIV, y))
        # an infinite divisor goes 0 times, or -1 times; 0 * inf would be nan
        rest = x - (quotient == 0).where(0.0, quotient * y)
        return rest.cast(self.dtype)

    def pow(self, x: Self | ConstType, reverse: _bool = False) -> Self:
        """self to the power of x.

        >>> Tensor([1, 2, 3]).pow(2).tolist()
        [1, 4, 9]
        """
        if not reverse and isinstance(x, (int, float)):
            found = self._pow_const(x)
            if found is not None:
                return found
        a, b = self._meet(x, "pow", reverse)
        if not dtypes.is_float(a.dtype) and (isinstance(x, int) and not reverse) and x < 0:
            raise DTypeError("pow: integers have no negative powers; cast to a float first")
        return a._alu(Ops.POW, b)

    def _pow_const(self, x: ConstType) -> Self | None:
        """Small whole powers as products, roots as roots."""
        base = self.cast(weak_dtype(self.dtype, x))
        if x == 0:
            return base._ones()
        if x in (1, 2, 3):
            result = base
            for _ in range(int(x) - 1):
                result = result * base
            return result
        return base.reciprocal() if x == -1 and dtypes.is_float(base.dtype) else None

    def neg(self) -> Self:
        """-self (of bools: not).

        >>> (-Tensor([1, -2])).tolist()
        [-1, 2]
        """
        if dtypes.is_bool(self.dtype):
            return self.logical_not()
        return self._derived(self.uop.alu(Ops.MUL, self.uop.const_like(-1)))

    def reciprocal(self) -> Self:
        """1 / self.

        >>> Tensor([2.0, 4.0]).reciprocal().tolist()
        [0.5, 0.25]
        """
        return self._unary(Ops.RECIPROCAL)

    def _floor(self) -> Self:
        whole = self._unary(Ops.TRUNC)
        return (self < whole).where(whole - 1, whole)

    def _zero(self) -> Self:
        return type(self)._from_uop(self.uop.const_like(0))

    def _ones(self) -> Self:
        one = constant(1, self.dtype, self.uop.device)
        return type(self)._from_uop(one)._broadcast_to(self.shape)

    # *** comparison ***

    def lt(self, x: Any) -> Self:
        """self < x.

        >>> Tensor([1, 2]).lt(2).tolist()
        [True, False]
        """
        return self._binary(Ops.CMPLT, x, "lt")

    def gt(self, x: Any) -> Self:
        """self > x.

        >>> Tensor([1, 2]).gt(1).tolist()
        [False, True]
        """
        return self._binary(Ops.CMPLT, x, "gt", True)

    def le(self, x: Any) -> Self:
        """self <= x; false where one is nan.

        >>> Tensor([1, 2]).le(1).tolist()
        [True, False]
        """
        if dtypes.is_float(self.dtype) or not isinstance(x, int):
            return self.lt(x) | self.eq(x)
        return self.gt(x).logical_not()

    def ge(self, x: Any) -> Self:
        """self >= x; false where one is nan.

        >>> Tensor([1, 2]).ge(2).tolist()
        [False, True]
        """
        if dtypes.is_float(self.dtype) or not isinstance(x, int):
            return self.gt(x) | self.eq(x)
        return self.lt(x).logical_not()

    def eq(self, x: Any) -> Self:
        """self == x.

        >>> (Tensor([1, 2]) == 2).tolist()
        [False, True]
        """
        return self._binary(Ops.CMPEQ, x, "eq")

    def ne(self, x: Any) -> Self:
        """self != x.

        >>> Tensor([1, 2]).ne(1).tolist()
        [False, True]
        """
        return self._binary(Ops.CMPNE, x, "ne")

    # *** logic and bits ***

    def logical_not(self) -> Self:
        """True where self is 0.

        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
        """
        return self.bool()._alu(Ops.CMPNE, type(self)._from_uop(UOp.const(dtypes.bool, True)))

    def logical_and(self, x: Any) -> Self:
        """True where both are not 0.

        >>> Tensor([True, True]).logical_and(Tensor([True, False])).tolist()
        [True, False]
        """
        return self.bool() & self._as_tensor(x, "logical_and").bool()

    def logical_or(self, x: Any) -> Self:
        """True where one is not 0.

        >>> Tensor([False, True]).logical_or(Tensor([False, False])).tolist()
        [False, True]
        """
        return self.bool() | self._as_tensor(x, "logical_or").bool()

    def logical_xor(self, x: Any) -> Self:
        """True where exactly one is not 0.

        >>> Tensor([True, True]).logical_xor(Tensor([True, False])).tolist()
        [False, True]
        """
        return self.bool() ^ self._as_tensor(x, "logical_xor").bool()

    def bitwise_and(self, x: Any, reverse: _bool = False) -> Self:
        """The bits that both have.

        >>> Tensor([6]).bitwise_and(3).tolist()
        [2]
        """
        return self._bitwise(Ops.AND, x, "bitwise_and", reverse)

    def bitwise_or(self, x: Any, reverse: _bool = False) -> Self:
        """The bits that one of both has.

        >>> Tensor([6]).bitwise_or(3).tolist()
        [7]
        """
        return self._bitwise(Ops.OR, x, "bitwise_or", reverse)

    def bitwise_xor(self, x: Any, reverse: _bool = False) -> Self:
        """The bits in which both differ.

        >>> Tensor([6]).bitwise_xor(3).tolist()
        [5]
        """
        return self._bitwise(Ops.XOR, x, "bitwise_xor", reverse)

    def _bitwise(self, op: Ops, x: Any, what: str, reverse: _bool = False) -> Self:
        a, b = self._meet(x, what, reverse)
        a._need_ints(what)
        return a._alu(op, b)

    def bitwise_not(self) -> Self:
        """All bits turned (of bools: not).

        >>> (~Tensor([0, 1])).tolist()
        [-1, -2]
        """
        self._need_ints("bitwise_not")
        if dtypes.is_bool(self.dtype):
            return self.logical_not()
        all_ones = -1 if not dtypes.is_unsigned(self.dtype) else dtypes.max(self.dtype)
        return self._bitwise(Ops.XOR, all_ones, "bitwise_not")

    def lshift(self, x: Any) -> Self:
        """self << x.

        >>> Tensor([1]).lshift(3).tolist()
        [8]
        """
        return self._shift(Ops.SHL, x, "lshift")

    def rshift(self, x: Any) -> Self:
        """self >> x; the sign stays.

        >>> Tensor([8]).rshift(3).tolist()
        [1]
        """
        return self._shift(Ops.SHR, x, "rshift")

    def _shift(self, op: Ops, x: Any, what: str) -> Self:
        self._need_ints(what)
        if dtypes.is_bool(self.dtype):
            raise DTypeError(f"{what}: bools are not shifted; cast to an integer first")
        if isinstance(x, int) and not 0 <= x < self.dtype.bitsize:
            raise ValueError(
                f"{what}: {self.dtype} is shifted by 0 to {self.dtype.bitsize - 1}, not {x}"
            )
        amount = self._as_tensor(x, what, self.dtype)
        amount._need_ints(what)
        return self._alu(op, amount.cast(self.dtype))

    # *** choice ***

    def where(self, x: Any, y: Any) -> Self:
        """x where self holds, else y.

        >>> Tensor([True, False]).where(1, 2).tolist()
        [1, 2]
        """
        condition = self.bool()
        if isinstance(x, TensorCore):
            a, b = x._meet(y, "where")  # type: ignore[attr-defined]
        elif isinstance(y, TensorCore):
            b, a = y._meet(x, "where")  # type: ignore[attr-defined]
        else:
            kind = dtypes.default_int
            if isinstance(x, bool) and isinstance(y, bool):
                kind = dtypes.bool
            elif isinstance(x, float) or isinstance(y, float):
                kind = dtypes.default_float
            a, b = self._as_tensor(x, "where", kind), self._as_tensor(y, "where", kind)
        return condition._alu(Ops.WHERE, a, b)

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """The value where the mask holds.

        >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 0).tolist()
        [0, 2]
        """
        return mask.where(value, self)

    def maximum(self, x: Any) -> Self:
        """The greater one of each pair; nan if one is nan.

        >>> Tensor([1, 5]).maximum(3).tolist()
        [3, 5]
        """
        return self._binary(Ops.MAX, x, "maximum")

    def minimum(self, x: Any) -> Self:
        """The lesser one of each pair; nan if one is nan.

        >>> Tensor([1, 5]).minimum(3).tolist()
        [1, 3]
        """
        a, b = self._meet(x, "minimum")
        return a._inverse()._alu(Ops.MAX, b._inverse())._inverse()

    def _inverse(self) -> Self:
        """What turns the order around, without overflow: the negative, or all bits turned."""
        return -self if dtypes.is_float(self.dtype) else self.bitwise_not()

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Not below min_, not above max_.

        >>> Tensor([-3, 0, 3]).clamp(-1, 1).tolist()
        [-1, 0, 1]
        """
        if min_ is None and max_ is None:
            raise ValueError("clamp: give min_, max_, or both")
        # not maximum and minimum: on a bound the gradient is that of self, not shared with it
        result = self if min_ is None else (self < min_).where(min_, self)
        return result if max_ is None else (result > max_).where(max_, result)

    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """The same as `clamp`.

        >>> Tensor([-3, 0, 3]).clip(-1, 1).tolist()
        [-1, 0, 1]
        """
        return self.clamp(min_, max_)

    def isnan(self) -> Self:
        """Where the value is nan.

        >>> Tensor([1.0, float('nan')]).isnan().tolist()
        [False, True]
        """
        return self._alu(Ops.CMPNE, self)

    def isinf(self, detect_positive: _bool = True, detect_negative: _bool = True) -> Self:
        """Where the value is infinite.

        >>> Tensor([1.0, float('inf')]).isinf().tolist()
        [False, True]
        """
        high = self == math.inf if detect_positive else None
        low = self == -math.inf if detect_negative else None
        if high is not None and low is not None:
            return high | low
        if high is None and low is None:
            return self.isnan() & False
        return high if high is not None else low  # type: ignore[return-value]

    def isfinite(self) -> Self:
        """Where the value is neither infinite nor nan.

        >>> Tensor([1.0, float('inf')]).isfinite().tolist()
        [True, False]
        """
        return (self.isinf() | self.isnan()).logical_not()

    # *** operators ***

    def __add__(self, x: Any) -> Self:
        return self.add(x)

    def __radd__(self, x: Any) -> Self:
        return self.add(x, True)

    def __sub__(self, x: Any) -> Self:
        return self.sub(x)

    def __rsub__(self, x: Any) -> Self:
        return self.sub(x, True)

    def __mul__(self, x: Any) -> Self:
        return self.mul(x)

    def __rmul__(self, x: Any) -> Self:
        return self.mul(x, True)

    def __truediv__(self, x: Any) -> Self:
        return self.div(x)

    def __rtruediv__(self, x: Any) -> Self:
        return self.div(x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self.floordiv(x)

    def __rfloordiv__(self, x: Any) -> Self:
        return self.floordiv(x, True)

    def __mod__(self, x: Any) -> Self:
        return self.mod(x)

    def __rmod__(self, x: Any) -> Self:
        return self.mod(x, True)

    def __pow__(self, x: Any) -> Self:
        return self.pow(x)

    def __rpow__(self, x: Any) -> Self:
        return self.pow(x, True)

    def __neg__(self) -> Self:
        return self.neg()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __and__(self, x: Any) -> Self:
        return self.bitwise_and(x)

    def __rand__(self, x: Any) -> Self:
        return self.bitwise_and(x, True)

    def __or__(self, x: Any) -> Self:
        return self.bitwise_or(x)

    def __ror__(self, x: Any) -> Self:
        return self.bitwise_or(x, True)

    def __xor__(self, x: Any) -> Self:
        return self.bitwise_xor(x)

    def __rxor__(self, x: Any) -> Self:
        return self.bitwise_xor(x, True)

    def __lshift__(self, x: Any) -> Self:
        return self.lshift(x)

    def __rshift__(self, x: Any) -> Self:
        return self.rshift(x)

    def __rlshift__(self, x: Any) -> Self:
        return self._as_tensor(x, "lshift", self.dtype).lshift(self)

    def __rrshift__(self, x: Any) -> Self:
        return self._as_tensor(x, "rshift", self.dtype).rshift(self)

    def __lt__(self, x: Any) -> Self:
        return self.lt(x)

    def __gt__(self, x: Any) -> Self:
        return self.gt(x)

    def __le__(self, x: Any) -> Self:
        return self.le(x)

    def __ge__(self, x: Any) -> Self:
        return self.ge(x)

    def __eq__(self, x: object) -> Self:  # type: ignore[override]
        return self.eq(x)

    def __ne__(self, x: object) -> Self:  # type: ignore[override]
        return self.ne(x)

    def __hash__(self) -> _int:
        return id(self)
