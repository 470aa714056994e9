"""Operators and elementwise methods in terms of one method, `alu`."""

from __future__ import annotations

from typing import Any, TypeVar

from tgcore.dtype import dtypes
from tgcore.uop.ops import Ops

N = TypeVar("N", bound="Arithmetic")


class Arithmetic:
    """What can be added, compared, shifted, ...: a subclass supplies `alu` and `const_like`."""

    __slots__ = ()

    dtype: Any

    def alu(self: N, op: Ops, *others: N) -> N:
        """The op applied to self and the others."""
        raise NotImplementedError

    def const_like(self: N, value: Any) -> N:
        """A constant of the same kind as self."""
        raise NotImplementedError

    def _operand(self: N, value: Any) -> N:
        return value if isinstance(value, Arithmetic) else self.const_like(value)  # type: ignore[return-value]

    def _binary(self: N, op: Ops, other: Any, reverse: bool = False) -> N:
        operand = self._operand(other)
        return operand.alu(op, self) if reverse else self.alu(op, operand)

    def add(self: N, other: Any, reverse: bool = False) -> N:
        return self._binary(Ops.ADD, other, reverse)

    def mul(self: N, other: Any, reverse: bool = False) -> N:
        return self._binary(Ops.MUL, other, reverse)

    def sub(self: N, other: Any, reverse: bool = False) -> N:
        left, right = (self._operand(other), self) if reverse else (self, self._operand(other))
        return left.alu(Ops.ADD, right.neg())

    def neg(self: N) -> N:
        return self.logical_not() if dtypes.is_bool(self.dtype) else self * (-1)

    def logical_not(self: N) -> N:
        return self._binary(Ops.CMPNE, True)

    def idiv(self: N, other: Any, reverse: bool = False) -> N:
        return self._binary(Ops.IDIV, other, reverse)

    def mod(self: N, other: Any, reverse: bool = False) -> N:
        return self._binary(Ops.MOD, other, reverse)

    def maximum(self: N, other: Any) -> N:
        return self._binary(Ops.MAX, other)

    def minimum(self: N, other: Any) -> N:
        """The lesser one, as the negative of the greater negative."""
        return -((-self).maximum(-self._operand(other)))

    def reciprocal(self: N) -> N:
        return self.alu(Ops.RECIPROCAL)

    def sqrt(self: N) -> N:
        return self.alu(Ops.SQRT)

    def exp2(self: N) -> N:
        return self.alu(Ops.EXP2)

    def log2(self: N) -> N:
        return self.alu(Ops.LOG2)

    def sin(self: N) -> N:
        return self.alu(Ops.SIN)

    def trunc(self: N) -> N:
        return self.alu(Ops.TRUNC)

    def eq(self: N, other: Any) -> N:
        """Elementwise equality (`==` on nodes is identity)."""
        return self._binary(Ops.CMPNE, other).logical_not()

    def ne(self: N, other: Any) -> N:
        """Elementwise inequality (`!=` on nodes is identity)."""
        return self._binary(Ops.CMPNE, other)

    def where(self: N, yes: Any, no: Any) -> N:
        """`yes` where self holds, else `no`; one of the two must have a type."""
        if isinstance(yes, Arithmetic):
            return self.alu(Ops.WHERE, yes, yes._operand(no))  # type: ignore[arg-type]
        if isinstance(no, Arithmetic):
            return self.alu(Ops.WHERE, no._operand(yes), no)  # type: ignore[arg-type]
        raise TypeError("where needs at least one branch that is no plain Python value")

    def __neg__(self: N) -> N:
        return self.neg()

    def __add__(self: N, other: Any) -> N:
        return self.add(other)

    def __radd__(self: N, other: Any) -> N:
        return self.add(other, True)

    def __sub__(self: N, other: Any) -> N:
        return self.sub(other)

    def __rsub__(self: N, other: Any) -> N:
        return self.sub(other, True)

    def __mul__(self: N, other: Any) -> N:
        return self.mul(other)

    def __rmul__(self: N, other: Any) -> N:
        return self.mul(other, True)

    def __truediv__(self: N, other: Any) -> N:
        return self * self._operand(other).reciprocal()

    def __rtruediv__(self: N, other: Any) -> N:
        return self._operand(other) * self.reciprocal()

    def __floordiv__(self: N, other: Any) -> N:
        return self.idiv(other)

    def __rfloordiv__(self: N, other: Any) -> N:
        return self.idiv(other, True)

    def __mod__(self: N, other: Any) -> N:
        return self.mod(other)

    def __rmod__(self: N, other: Any) -> N:
        return self.mod(other, True)

    def __and__(self: N, other: Any) -> N:
        return self._binary(Ops.AND, other)

    def __rand__(self: N, other: Any) -> N:
        return self._binary(Ops.AND, other, True)

    def __or__(self: N, other: Any) -> N:
        return self._binary(Ops.OR, other)

    def __ror__(self: N, other: Any) -> N:
        return self._binary(Ops.OR, other, True)

    def __xor__(self: N, other: Any) -> N:
        return self._binary(Ops.XOR, other)

    def __rxor__(self: N, other: Any) -> N:
        return self._binary(Ops.XOR, other, True)

    def __lshift__(self: N, other: Any) -> N:
        return self._binary(Ops.SHL, other)

    def __rlshift__(self: N, other: Any) -> N:
        return self._binary(Ops.SHL, other, True)

    def __rshift__(self: N, other: Any) -> N:
        return self._binary(Ops.SHR, other)

    def __rrshift__(self: N, other: Any) -> N:
        return self._binary(Ops.SHR, other, True)

    def __lt__(self: N, other: Any) -> N:
        return self._binary(Ops.CMPLT, other)

    def __gt__(self: N, other: Any) -> N:
        return self._binary(Ops.CMPLT, other, True)

    def __ge__(self: N, other: Any) -> N:
        return self._binary(Ops.CMPLT, other).logical_not()

    def __le__(self: N, other: Any) -> N:
        return self._binary(Ops.CMPLT, other, True).logical_not()
