"""Products of matrices."""

from __future__ import annotations

import string
from typing import Self

from tgcore.dtype import least_upper_dtype, sum_acc_dtype
from tgcore.errors import ShapeError
from tgcore.tensor.core import DTypeLike, to_dtype
from tgcore.tensor.ordering import Ordering
from tgcore.uop.node import sint


class LinearAlgebra(Ordering):
    """dot, matmul, einsum and the like."""

    __slots__ = ()

    def dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
        """The product of vectors, matrices, or stacks of matrices, as numpy's matmul.

        >>> Tensor([[1, 2], [3, 4]]).dot(Tensor([1, 1])).tolist()
        [3, 7]
        """
        if self.ndim == 0 or w.ndim == 0:
            raise ShapeError(f"matmul: {self.shape} @ {w.shape}: a tensor without axes; use *")
        inner = w.shape[-min(w.ndim, 2)]
        if self.shape[-1] != inner:
            raise ShapeError(
                f"matmul: {self.shape} @ {w.shape}: the last axis of the first ({self.shape[-1]}) "
                f"must be as long as the second's axis {-min(w.ndim, 2)} ({inner})"
            )
        kind = least_upper_dtype(self.dtype, w.dtype)
        x, y = self.cast(kind), w.cast(kind)
        extra = min(x.ndim - 1, y.ndim - 1, 1)
        x = x.reshape((*x.shape[:-1], *[1] * extra, x.shape[-1]))
        y = y.reshape((*y.shape[:-2], *[1] * extra, *y.shape[-min(y.ndim, 2) :]))
        y = y.transpose(-1, -min(y.ndim, 2))
        return x._sum_of_products(y, -1, dtype)

    def _sum_of_products(
        self, other: Self, axis: int | tuple[int, ...], dtype: DTypeLike | None
    ) -> Self:
        """Multiplied in the elements' type, summed in a wider one."""
        product = self * other
        if dtype is not None:
            return product.cast(to_dtype(dtype)).sum(axis, dtype=dtype)
        total = product.sum(axis, dtype=sum_acc_dtype(product.dtype))
        return total.cast(product.dtype)

    def matmul(self, x: Self, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The same as `dot`.

        >>> Tensor([[1, 2]]).matmul(Tensor([[3], [4]])).tolist()
        [[11]]
        """
        return x.dot(self, dtype) if reverse else self.dot(x, dtype)

    def __matmul__(self, x: Self) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Self) -> Self:
        return self.matmul(x, True)

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """self @ weight (of one axis: self * weight), plus bias.

        >>> Tensor([[1, 2]]).linear(Tensor([[1], [1]]), Tensor([5])).tolist()
        [[8]]
        """
        x = self * weight if weight.ndim == 1 else self.dot(weight)
        return x if bias is None else x + bias

    def outer(self, x: Self) -> Self:
        """All products of elements of two vectors.

        >>> Tensor([1, 2]).outer(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        return self.reshape(-1, 1) * x.reshape(1, -1)

    @classmethod
    def einsum(cls, formula: str, *operands: Self, dtype: DTypeLike | None = None) -> Self:
        """Einstein's summation: letters name axes, those that the result lacks are summed.

        >>> Tensor.einsum("ij,ij->", Tensor([[1, 2]]), Tensor([[3, 4]])).item()
        11
        """
        inputs, output = _parse_einsum(formula, [t.ndim for t in operands])
        sizes: dict[str, sint] = {}
        for letters, tensor in zip(inputs, operands):
            for letter, size in zip(letters, tensor.shape):
                known = sizes.setdefault(letter, size)
                if size not in (known, 1):
                    if known != 1:
                        raise ShapeError(
                            f"einsum: axis {letter!r} of {formula!r} is both {known} and {size}"
                        )
                    sizes[letter] = size
        order = [*output, *[s for s in sizes if s not in output]]
        spread = [t._einsum_operand(s, order) for s, t in zip(inputs, operands)]
        result = spread[0]
        for other in spread[1:-1]:
            result = result * other
        summed = tuple(range(len(output), len(order)))
        shape = tuple(sizes[letter] for letter in order)
        if len(spread) > 1:
            return (
                result.expand(shape)._sum_of_products(spread[-1], summed, dtype)
                if summed
                else (result * spread[-1])
            )
        result = result.expand(shape)
        return result.sum(summed, dtype=dtype or result.dtype) if summed else result

    def _einsum_operand(self, letters: str, order: list[str]) -> Self:
        x, names = self, letters
        for letter in dict.fromkeys(letters):
            while names.count(letter) > 1:  # a repeated letter names a diagonal
                a = names.index(letter)
                b = names.index(letter, a + 1)
                x = x.diagonal(0, a, b)
                names = names[:a] + names[a + 1 : b] + names[b + 1 :] + letter
        x = x.permute([names.index(s) for s in order if s in names])
        present = [s for s in order if s in names]
        sizes = dict(zip(present, x.shape))
        return x.reshape([sizes.get(s, 1) for s in order])


def _parse_einsum(formula: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes letters of its own."""
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ShapeError(
            f"einsum: {formula!r} names {len(inputs)} operands, {len(ranks)} are given"
        )
    unused = [c for c in string.ascii_letters if c not in text]
    hidden = max([rank - len(s) + 3 for s, rank in zip(inputs, ranks) if "..." in s], default=0)
    filler = "".join(unused[:hidden])
    result: list[str] = []
    for letters, rank in zip(inputs, ranks):
        count = rank - len(letters) + 3
        expanded = letters.replace("...", filler[len(filler) - count :] if count else "")
        if len(expanded) != rank:
            raise ShapeError(f"einsum: {letters!r} of {formula!r} does not name {rank} axes")
        result.append(expanded)
    if not arrow:
        joined = "".join(result)
        once = sorted(c for c in set(joined) - set(filler) if joined.count(c) == 1)
        return result, filler + "".join(once)
    output = right.replace("...", filler)
    missing = set(output) - set("".join(result))
    if missing:
        raise ShapeError(f"einsum: {sorted(missing)} of {formula!r} is in no operand")
    return result, output
