"""Factorizations of small matrices, and what follows from them.

Everything is made of ordinary ops on stacks of matrices, step by step: the graph, and the time to
compile it, grows with the number of columns. They are meant for matrices of up to some dozen.
"""

from __future__ import annotations

from typing import Self

from tgcore.dtype import dtypes
from tgcore.errors import ShapeError
from tgcore.tensor.linalg import LinearAlgebra

# sweeps of Jacobi rotations: convergence is quadratic, six to ten are enough up to 100 columns
_SWEEPS_OF_SMALL = 8
_MORE_SWEEPS_ABOVE = 16


class Factorization(LinearAlgebra):
    """qr, svd, solve, inverse."""

    __slots__ = ()

    def _matrices(self, what: str, square: bool = False) -> Self:
        """Checked, and of float32 at least."""
        if self.ndim < 2 or (square and self.shape[-1] != self.shape[-2]):
            kind = "square matrices" if square else "matrices"
            raise ShapeError(f"{what} needs {kind} in the last two axes, not shape {self.shape}")
        x = self._float()
        return x if x.dtype.itemsize >= 4 else x.cast(dtypes.float32)

    def _once(self) -> Self:
        """Stored: what comes after does not compute it again."""
        return self._derived(self._full.contiguous())

    def qr(self) -> tuple[Self, Self]:
        """(Q, R) with self = Q @ R: Q (..., m, m) orthogonal, R (..., m, n) upper triangular, by
        Householder's reflections (Golub and Van Loan, "Matrix Computations", section 5.2).

        >>> q, r = Tensor([[3.0, 1.0], [4.0, 2.0]]).qr()
        >>> (q @ r).round().tolist()
        [[3.0, 1.0], [4.0, 2.0]]
        """
        r = self._matrices("qr")
        rows, columns = (int(s) for s in r.shape[-2:])
        q = type(self).eye(rows, dtype=r.dtype, device=self.uop.device)
        q = q._broadcast_to((*r.shape[:-2], rows, rows))
        place = self._index_range(rows).unsqueeze(-1)
        for j in range(min(rows - 1, columns)):
            v, scale = r._slice(r.ndim - 1, j, j + 1)._reflector(place, j)
            r = (r - v @ (v.transpose(-1, -2) @ r) * scale)._once()
            q = (q - (q @ v) @ v.transpose(-1, -2) * scale)._once()
        above = place <= self._index_range(columns)
        return q.cast(self._float().dtype), above.where(r, 0).cast(self._float().dtype)

    def _reflector(self, place: Self, j: int) -> tuple[Self, Self]:
        """(v, 2 / v.v) of the reflection that leaves a column only its elements up to j."""
        x = (place >= j).where(self, 0)
        first = x._slice(x.ndim - 2, j, j + 1)
        length = x.square().sum(-2, keepdim=True)._norm_of_squares()
        v = (place == j).where(x + (first < 0).where(-length, length), x)
        square = v.square().sum(-2, keepdim=True)
        scale = (square == 0).where(0, 2 / (square == 0).where(1, square))
        return v._once(), scale._once()

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """(U, S, Vh) with self = U @ diag(S) @ Vh: singular values in descending order, U
        (..., m, m) and Vh (..., n, n) orthogonal, or cut to min(m, n) columns and rows. By
        one-sided Jacobi rotations, all disjoint pairs of columns at once (Demmel and Veselic,
        "Jacobi's method is more accurate than QR", 1992).

        >>> Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()[1].tolist()
        [2.0, 1.0]
        """
        x = self._matrices("svd")
        rows, columns = (int(s) for s in x.shape[-2:])
        if rows < columns:
            v, s, u = x.transpose(-1, -2).svd(full_matrices)
            return u.transpose(-1, -2), s, v.transpose(-1, -2)
        work, right = x._orthogonal_columns(columns)
        length = work.square().sum(-2)._norm_of_squares()
        s, order = length.sort(-1, descending=True)
        order = order.unsqueeze(-2)
        work = work.gather(-1, order._broadcast_to(work.shape))._once()
        right = right.gather(-1, order._broadcast_to(right.shape))
        # the columns are orthogonal: their R is diagonal, and Q has the missing directions too
        q, r = work.qr()
        sign = (r.diagonal(0, -2, -1) < 0).where(r._full_const(-1), 1).unsqueeze(-2)
        u = q._slice(q.ndim - 1, 0, columns) * sign
        if full_matrices and rows > columns:
            u = u.cat(q._slice(q.ndim - 1, columns, rows), dim=-1)
        kind = self._float().dtype
        return u.cast(kind), s.cast(kind), right.transpose(-1, -2).cast(kind)

    def _orthogonal_columns(self, columns: int) -> tuple[Self, Self]:
        """(self @ V, V) for a V that makes the columns orthogonal to each other."""
        even = columns + columns % 2
        right = type(self).eye(even, dtype=self.dtype, device=self.uop.device)
        right = right._broadcast_to((*self.shape[:-2], even, even))
        work = self._resized(self.ndim - 1, even)
        sweeps = _SWEEPS_OF_SMALL + (2 if columns > _MORE_SWEEPS_ABOVE else 0)
        for _ in range(sweeps * (even - 1) if columns > 1 else 0):
            cosine, sine = work._rotation()
            work, right = work._rotated(cosine, sine), right._rotated(cosine, sine)
        if even == columns:
            return work, right
        # the column that was added is the one whose row of V has a 1 in it
        added = right._slice(right.ndim - 2, columns, even)
        order = added.abs().argsort(-1)._slice(right.ndim - 1, 0, columns)
        right = right._slice(right.ndim - 2, 0, columns)
        return tuple(  # type: ignore[return-value]
            t.gather(-1, order._broadcast_to((*t.shape[:-1], columns))) for t in (work, right)
        )

    def _halves(self) -> tuple[Self, Self]:
        """The columns in pairs: the first with the last, and so on."""
        axis, half = self.ndim - 1, int(self.shape[-1]) // 2
        return self._slice(axis, 0, half), self._slice(axis, half, 2 * half).flip(-1)

    def _rotation(self) -> tuple[Self, Self]:
        """(cosine, sine) of the angles that make the pairs orthogonal."""
        a, b = self._halves()
        aa, bb, ab = (t.sum(-2, keepdim=True) for t in (a * a, b * b, a * b))
        small = ab.abs() <= (aa * bb).sqrt() * 1e-9
        ratio = (bb - aa) / small.where(1, 2 * ab)
        tangent = ratio._direction() / (ratio.abs() + (1 + ratio * ratio).sqrt())
        tangent = small.where(0, tangent)
        cosine = (1 + tangent * tangent).rsqrt()
        return cosine._once(), (cosine * tangent)._once()

    def _rotated(self, cosine: Self, sine: Self) -> Self:
        """The pairs turned; then all columns but the first move on by one, so that in a sweep each
        meets every other."""
        a, b = self._halves()
        turned = (a * cosine - b * sine).cat((a * sine + b * cosine).flip(-1), dim=-1)
        rest = turned._slice(self.ndim - 1, 1, int(self.shape[-1]))
        first = turned._slice(self.ndim - 1, 0, 1)
        return first.cat(rest.roll(1, -1), dim=-1)._once()

    # *** linear equations ***

    def solve(self, b: Self) -> Self:
        """x with self @ x = b, for matrices (..., n, n) and b (..., n, k) or (n). Of a singular
        matrix it is infinite or nan.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).solve(Tensor([2.0, 8.0])).round().tolist()
        [1.0, 2.0]
        """
        a = self._matrices("solve", square=True)
        n = int(a.shape[-1])
        vector = b.ndim == 1
        y = b.unsqueeze(-1) if vector else b
        if y.shape[-2] != n:
            raise ShapeError(f"solve: {self.shape} and {b.shape} do not fit: b needs {n} rows")
        q, r = a.qr()
        y = q.transpose(-1, -2) @ y.cast(a.dtype)
        place = self._index_range(n).unsqueeze(-1)
        for j in reversed(range(n)):
            column = r._slice(r.ndim - 1, j, j + 1)
            x = y._slice(y.ndim - 2, j, j + 1) / column._slice(r.ndim - 2, j, j + 1)
            y = (place == j).where(x, (place < j).where(y - column * x, y))._once()
        result = y.cast(self._float().dtype)
        return result.squeeze(-1) if vector else result

    def inverse(self) -> Self:
        """The inverse matrices.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inverse().sum().item()
        0.75
        """
        a = self._matrices("inverse", square=True)
        one = type(self).eye(int(a.shape[-1]), dtype=a.dtype, device=self.uop.device)
        return a.solve(one._broadcast_to(a.shape)).cast(self._float().dtype)

    def newton_schulz(
        self,
        steps: int = 5,
        params: tuple[float, ...] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
    ) -> Self:
        """About the nearest orthogonal matrix: self over its norm, then so often an odd polynomial
        with these coefficients (Jordan and others, "Muon", 2024).

        >>> Tensor([[5.0, 0.0], [0.0, 3.0]]).newton_schulz().shape
        (2, 2)
        """
        x = self._matrices("newton_schulz")
        wide = x.shape[-2] < x.shape[-1]
        x = x if wide else x.transpose(-1, -2)
        x = (x / (x.square().sum((-2, -1), keepdim=True)._norm_of_squares() + eps))._once()
        for _ in range(steps):
            square = (x @ x.transpose(-1, -2))._once()
            total, power = x * params[0], x
            for factor in params[1:]:
                power = (square @ power)._once()
                total = total + power * factor
            x = total._once()
        return (x if wide else x.transpose(-1, -2)).cast(self._float().dtype)
