"""Writing to tensors: assign, setitem, the in-place operators.

`assign` on memory is lazy: the tensor stands for the memory after the write. Writing to a view (by
`x[1:3] = v`, or `x[1:3].assign(v)`) is done at once, so that all views of the memory agree. A
tensor that is not in memory, or that needs a gradient, becomes the new value: nothing is
overwritten.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.tensor import realize
from tgcore.tensor.core import (
    TensorCore,
    full_shape,
    is_memory,
    live_tensors,
    lookalikes,
    memory_behind,
)
from tgcore.tensor.indexing import ParsedIndex, Part, _wrapped
from tgcore.tensor.neural import Neural
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops


class Assignment(Neural):
    """assign, `x[...] = v`, `x += v`."""

    __slots__ = ()

    def assign(self, x: Any) -> Self:
        """Overwrite the tensor's memory with x; views of the memory see it.

        >>> t = Tensor([1, 2]).realize()
        >>> t.assign(Tensor([3, 4])).tolist()
        [3, 4]
        """
        value = self._value_for(x, "assign", exact=True)
        if value.uop is self.uop:
            return self
        base = _memory_or_assign(self.uop)
        if base is None or 0 in self.shape or self._is_shared():
            self._rebind(full_shape(value.uop, self.shape))
            return self
        node = self.uop.assign(full_shape(value.uop, self.shape))
        self._rebind(node)
        if not _is_whole(node.src[0]):
            realize.realize([self])
        return self

    def _is_shared(self) -> bool:
        """Whether the memory belongs to another tensor too, that was merely equal to this one."""
        base = memory_behind(self.uop)
        if base is None or base not in lookalikes or not is_memory(self.uop):
            return False
        return any(t is not self and memory_behind(t.uop) is base for t in live_tensors)

    def replace(self, x: Self, allow_shape_mismatch: bool = False) -> Self:
        """Become another tensor.

        >>> Tensor([1]).replace(Tensor([2])).tolist()
        [2]
        """
        if not allow_shape_mismatch and x.shape != self.shape:
            raise ShapeError(f"replace: shape {x.shape} is not {self.shape}")
        self._rebind(x.uop)
        return self

    def _value_for(self, x: Any, what: str, exact: bool = False) -> Self:
        """A value to write: of self's type and (if exact) shape."""
        if isinstance(x, (list, tuple, np.ndarray)):
            x = self._tensor_from(np.asarray(x)).cast(self.dtype)
        value = self._as_tensor(x, what, self.dtype)
        if value.dtype is not self.dtype:
            raise DTypeError(
                f"{what}: the value is {value.dtype}, the target {self.dtype}: cast first"
            )
        if exact and value.shape not in (self.shape, ()):
            raise ShapeError(
                f"{what}: the value has shape {value.shape}, the target {self.shape}: "
                "expand or reshape first"
            )
        if value.uop.device not in (None, self.device):
            raise ShapeError(
                f"{what}: the value is on {value.device}, the target on {self.device}: use .to()"
            )
        return value

    # *** setitem ***

    def __setitem__(self, index: Any, value: Any) -> None:
        """Overwrite a part, that may be named as in reading.

        >>> t = Tensor([1, 2, 3, 4])
        >>> t[1:3] = 0
        >>> t.tolist()
        [1, 0, 0, 4]
        """
        new = self._value_for(value.cast(self.dtype) if isinstance(value, Assignment) else value,
                              "setitem")  # fmt: skip
        mask = self._as_mask(index)
        if mask is not None and new.ndim <= self.ndim - mask.ndim:
            self._become(
                mask.reshape((*mask.shape, *[1] * (self.ndim - mask.ndim))).where(new, self)
            )
            return
        if _memory_or_assign(self.uop) is not None and not self.requires_grad:
            realize.realize([self])  # an assign that waits: this write comes after it
        parsed = self._parse_index(index)
        view = self._basic_view(parsed)
        if 0 in view.shape:
            return
        if parsed.tensors:
            part = view._with_layout(parsed)._put(parsed, new).reshape(view.shape)
        else:
            shape = view._with_layout(parsed).shape
            while new.ndim > len(shape) and new.shape[0] == 1:
                new = new.squeeze(0)
            part = new._broadcast_to(shape, "setitem").reshape(view.shape)
        self._write_view(parsed, view, part)

    def _as_mask(self, index: Any) -> Self | None:
        """An index that is one mask for the leading axes."""
        if isinstance(index, tuple) and len(index) == 1:
            index = index[0]
        if isinstance(index, np.ndarray) and index.dtype == np.bool_:
            index = self._tensor_from(index)
        if not isinstance(index, TensorCore) or not dtypes.is_bool(index.dtype):
            return None
        if index.shape != self.shape[: index.ndim]:
            raise ShapeError(f"setitem: a mask of shape {index.shape} does not fit {self.shape}")
        return index  # type: ignore[return-value]

    def _write_view(self, parsed: ParsedIndex, view: Self, part: Self) -> None:
        """Write the part to where the view is."""
        in_place = is_memory(self.uop) and memory_behind(view.uop) is not None
        in_place = in_place and not self._is_shared()
        if in_place and not (self.requires_grad or part.requires_grad):
            target = type(self)._from_uop(view.uop)
            target.assign(part)
            if target.uop.op is Ops.ASSIGN:  # the view is all of the memory
                realize.realize([target])
            return
        spread, here = part, part._full_const(1)._broadcast_to(part.shape).cast(dtypes.bool)
        self._become(here._spread(parsed, self).where(spread._spread(parsed, self), self))

    def _become(self, value: Self) -> None:
        """Take the value: in place if there is memory and no gradient is needed."""
        if is_memory(self.uop) and not (self.requires_grad or value.requires_grad):
            self.assign(value)
            return
        self._rebind(value.uop)
        if value.requires_grad and not self.requires_grad:
            self._requires_grad = True

    def _spread(self, parsed: ParsedIndex, whole: Self) -> Self:
        """A view's values at their places in the whole, zeros elsewhere."""
        sizes = iter(self.shape)
        x = self.reshape(tuple(1 if p.gone else next(sizes) for p in parsed.parts))
        for axis, part in enumerate(parsed.parts):
            if part.step > 1:
                x = x._apart(axis, part)
        x = x.flip([a for a, p in enumerate(parsed.parts) if p.flipped])
        pairs = [(p.begin, w - p.begin - s) for p, w, s in zip(parsed.parts, whole.shape, x.shape)]
        return x.pad(pairs)

    def _apart(self, axis: int, part: Part) -> Self:
        """Zeros between the elements of an axis, step - 1 each."""
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        assert isinstance(part.count, int)
        x = self.reshape((*before, part.count, 1, *after))._resized(axis + 1, part.step)
        x = x.reshape((*before, part.count * part.step, *after))
        return x._slice(axis, 0, (part.count - 1) * part.step + 1)

    def _put(self, parsed: ParsedIndex, value: Self) -> Self:
        """Self with values at the places that tensors name; of several for one place the last."""
        x, position, shape = self._to_gather(parsed)
        axes = [a for a, _ in parsed.tensors]
        rest = x.shape[1:]
        value = value._placed(axes, shape, rest)
        total = int(x.shape[0])
        flat = _wrapped(position.flatten(), total)
        count = int(flat.shape[0])
        if count == 0:
            return self
        order = self._index_range(count) + 1
        here = self._index_range(total, flat.dtype)
        last = (here.unsqueeze(1) == flat.unsqueeze(0)).where(order, 0).max(1)
        last = type(self)._from_uop(last.uop.contiguous(), False)
        new = value.reshape((count, *rest))._pick(last - 1)
        hit = (last > 0).reshape((total, *[1] * len(rest)))
        merged = hit.where(new, x)
        others = [a for a in range(self.ndim) if a not in axes]
        order_of = [*axes, *others]
        merged = merged.reshape(tuple(self.shape[a] for a in order_of))
        return merged.permute([order_of.index(a) for a in range(self.ndim)])

    def _placed(self, axes: list[int], shape: Any, rest: Any) -> Self:
        """A value broadcast to what reading would give, with the tensors' axes in front."""
        ndim = len(shape)
        first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
        read = (*rest[:first], *shape, *rest[first:])
        x = self
        while x.ndim > len(read) and x.shape[0] == 1:
            x = x.squeeze(0)
        x = x._broadcast_to(tuple(read), "setitem")
        order = [*range(first, first + ndim), *range(first), *range(first + ndim, len(read))]
        return x.permute(order)

    # *** in-place operators ***

    def _in_place(self, value: Self) -> Self:
        if self.requires_grad and _memory_or_assign(self.uop) is not None and value.requires_grad:
            raise DTypeError(
                "a tensor that needs a gradient cannot be changed in place: "
                "write x = x + ..., or x.assign(...) under no_grad"
            )
        return self.assign(value.cast(self.dtype) if _same_kind(value, self) else value)

    def __iadd__(self, x: Any) -> Self:
        return self._in_place(self.add(x))

    def __isub__(self, x: Any) -> Self:
        return self._in_place(self.sub(x))

    def __imul__(self, x: Any) -> Self:
        return self._in_place(self.mul(x))

    def __itruediv__(self, x: Any) -> Self:
        return self._in_place(self.div(x))

    def __ifloordiv__(self, x: Any) -> Self:
        return self._in_place(self.floordiv(x))

    def __imod__(self, x: Any) -> Self:
        return self._in_place(self.mod(x))

    def __ipow__(self, x: Any) -> Self:
        return self._in_place(self.pow(x))

    def __iand__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_and(x))

    def __ior__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_or(x))

    def __ixor__(self, x: Any) -> Self:
        return self._in_place(self.bitwise_xor(x))

    def __ilshift__(self, x: Any) -> Self:
        return self._in_place(self.lshift(x))

    def __irshift__(self, x: Any) -> Self:
        return self._in_place(self.rshift(x))

    def __imatmul__(self, x: Self) -> Self:
        return self._in_place(self.matmul(x))


def _same_kind(a: TensorCore, b: TensorCore) -> bool:
    return dtypes.is_float(a.dtype) == dtypes.is_float(b.dtype)


def _memory_or_assign(uop: UOp) -> UOp | None:
    """The memory that an assign to this node would write."""
    while uop.op in GroupOp.Movement - {Ops.PAD, Ops.EXPAND} or uop.op is Ops.ASSIGN:
        uop = uop.src[0]
    return uop if uop.op is Ops.BUFFER else None


def _is_whole(uop: UOp) -> bool:
    """Whether the node is all of its memory, maybe after other assigns."""
    while uop.op in (Ops.RESHAPE, Ops.ASSIGN):
        uop = uop.src[0]
    return uop.op is Ops.BUFFER
