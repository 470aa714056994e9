"""Random numbers: counter-based, so that a seed gives the same numbers on every device.

Each device has a state in memory: a key and how many numbers were drawn from it. Number n is
Threefry(n, key). Tensors that are drawn read the count and add how many were drawn since it was
last stored; the count is written once for each schedule that reads it. So a captured function that
draws numbers draws new ones at each replay.
"""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any, Self

from tgcore.dtype import DType, dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.runtime import execute
from tgcore.runtime.device import Device
from tgcore.tensor import realize
from tgcore.tensor.core import DTypeLike, to_dtype
from tgcore.tensor.interop import Interop
from tgcore.tensor.movement import as_shape
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


class _Stream:
    """The random numbers of one device. `pending` were drawn, but are not in the count yet."""

    def __init__(self, device: str, seed: int) -> None:
        self.opened = Device[device]
        self.state = UOp.new_buffer(device, 2, dtypes.uint64)
        self.pending = 0
        # devices have different keys, so that their numbers differ
        number = 0 if ":" not in device else int(device.rpartition(":")[2])
        digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
        execute.buffer_of(self.state).copyin(memoryview(digest + bytes(8)))

    def draw(self, count: int) -> tuple[UOp, UOp]:
        """(first counter, key) for so many new numbers, as nodes of shape (1,)."""
        key = self.state.shrink((0,), (1,))
        begin = self.state.shrink((1,), (1,)) + self.pending
        self.pending += count
        return begin, key

    def flush(self, nodes: dict[UOp, None]) -> UOp | None:
        """What writes the count, if the nodes read it."""
        if not self.pending or self.state not in nodes:
            return None
        place = self.state.shrink((1,), (1,))
        node = place.assign(place + self.pending)
        self.pending = 0
        return node


class _Streams:
    """The streams of all devices, made when first needed, and anew for a device opened anew."""

    def __init__(self) -> None:
        self.seed = time.time_ns()
        self.streams: dict[str, _Stream] = {}

    def __getitem__(self, device: str) -> _Stream:
        stream = self.streams.get(device)
        if stream is None or stream.opened is not Device[device]:
            stream = self.streams[device] = _Stream(device, self.seed)
        return stream

    def reseed(self, seed: int) -> None:
        """Start anew. Captured functions keep the memory that they know, so it is rewritten."""
        opened = Device.opened
        self.streams = {name: s for name, s in self.streams.items() if s.opened in opened}
        self.settle()
        self.seed = seed
        for device, old in self.streams.items():
            fresh = _Stream(device, seed)
            execute.buffer_of(old.state).copy_from(execute.buffer_of(fresh.state))
            old.pending = 0

    def settle(self) -> None:
        """Compute all tensors that were drawn, so that the counts in memory are true."""
        drawn = {s.state: None for s in self.streams.values() if s.pending}
        if drawn:
            realize.run_nodes(
                {a: None for s in self.streams.values() if (a := s.flush(drawn)) is not None}
            )

    def before_run(self, nodes: dict[UOp, None]) -> list[UOp]:
        """The counts to write in a schedule of these nodes."""
        found = [s.flush(nodes) for s in self.streams.values() if s.pending]
        return [node for node in found if node is not None]


streams = _Streams()
realize.before_run.append(streams.before_run)

# bits of the mantissa, and how many of 32 random ones are cut off to have so many
_MANTISSA = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24}


class Randomness(Interop):
    """Class methods that draw random numbers."""

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int = 0) -> None:
        """From here on the same numbers are drawn as after every call with this seed.

        >>> Tensor.manual_seed(1); a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(1); a == Tensor.rand(3).tolist()
        True
        """
        streams.reseed(seed)

    @classmethod
    def random_bits(cls, count: int, device: str | None = None) -> Self:
        """So many random numbers of 64 bits.

        >>> Tensor.random_bits(3).shape
        (3,)
        """
        place = Device.canonicalize(device)
        begin, key = streams[place].draw(count)
        anchor = cls._from_uop(begin, False)
        counters = anchor + anchor._index_range(count, dtypes.uint64)
        keys = key.expand((count,))
        return cls._from_uop(counters._operand((count,)).alu(Ops.THREEFRY, keys), False)

    @classmethod
    def _unit(cls, size: int, dtype: DType, device: str | None) -> Self:
        """Uniform in [0, 1)."""
        bits = cls.random_bits(size, device)
        if dtype is dtypes.float64:
            return (bits >> 11).cast(dtype) * 2.0**-53
        kept = _MANTISSA[dtype]
        return ((bits.cast(dtypes.uint32) >> (32 - kept)).cast(dtypes.float32) * 2.0**-kept).cast(
            dtype
        )

    @classmethod
    def rand(
        cls,
        *shape: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
        contiguous: bool = True,
    ) -> Self:
        """Uniform in [0, 1).

        >>> Tensor.rand(2, 3).shape
        (2, 3)
        """
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if kind not in (*_MANTISSA, dtypes.float64):
            raise DTypeError(f"rand makes float16, bfloat16, float32 or float64, not {kind}")
        sizes = _known_sizes("rand", as_shape(shape))
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device, requires_grad=requires_grad)
        result = cls._unit(math.prod(sizes), kind, device).reshape(sizes)
        result = cls._from_uop(result.uop.contiguous() if contiguous else result.uop)
        return result._marked(requires_grad)

    def _marked(self, requires_grad: bool | None) -> Self:
        if requires_grad is not None:
            self.requires_grad = requires_grad
        return self

    def rand_like(self, **options: Any) -> Self:
        """Uniform in [0, 1), in the shape, type and place of self.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return type(self).rand(
            self.shape,
            dtype=options.pop("dtype", self.dtype),
            device=options.pop("device", self.device),
            **options,
        )

    @classmethod
    def randn(
        cls,
        *shape: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """From the normal distribution of mean 0 and deviation 1 (by Box and Muller).

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if not dtypes.is_float(kind):
            raise DTypeError(f"randn makes floats, not {kind}")
        sizes = _known_sizes("randn", as_shape(shape))
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device, requires_grad=requires_grad)
        bits = cls.random_bits(math.prod(sizes), device)
        work = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        low = (bits.cast(dtypes.uint32) >> 8).cast(work)
        high = ((bits >> 40).cast(dtypes.uint32)).cast(work)
        # 1 - u lies in (0, 1], so its logarithm is finite
        radius = (-2 * (1 - high * 2.0**-24).log()).sqrt()
        result = (radius * (2 * math.pi * 2.0**-24 * low).cos()).cast(kind).reshape(sizes)
        return cls._from_uop(result.uop.contiguous())._marked(requires_grad)

    def randn_like(self, **options: Any) -> Self:
        """Normally distributed, in the shape, type and place of self.

        >>> Tensor.zeros(2, 3).randn_like().shape
        (2, 3)
        """
        return type(self).randn(
            self.shape,
            dtype=options.pop("dtype", self.dtype),
            device=options.pop("device", self.device),
            **options,
        )

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        **options: Any,
    ) -> Self:
        """Uniform in [low, high).

        >>> Tensor.uniform(2, 3, low=-1.0).shape
        (2, 3)
        """
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if dtypes.is_float(kind):
            base = cls.rand(*shape, dtype=kind, contiguous=False, **options)
            result = (high - low) * base + low
        else:
            base = cls.rand(*shape, contiguous=False, **options)
            result = ((high - low) * base + low).cast(kind)
        return cls._from_uop(result.uop.contiguous())._marked(requires_grad)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        requires_grad: bool | None = None,
        **options: Any,
    ) -> Self:
        """From the normal distribution of that mean and deviation.

        >>> Tensor.normal(2, 3, mean=1.0, std=0.1).shape
        (2, 3)
        """
        result = std * cls.randn(*shape, **options) + mean
        return cls._from_uop(result.uop.contiguous())._marked(requires_grad)

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """Whole numbers in [low, high).

        >>> Tensor.randint(5, low=3, high=4).tolist()
        [3, 3, 3, 3, 3]
        """
        kind = dtypes.default_int if dtype is None else to_dtype(dtype)
        if not dtypes.is_int(kind):
            raise DTypeError(f"randint makes integers, not {kind}")
        if not isinstance(low, int) or not isinstance(high, int) or low >= high:
            raise ValueError(
                f"randint: low and high must be integers, low < high, not {low}, {high}"
            )
        sizes = _known_sizes("randint", as_shape(shape))
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device)
        bits = cls.random_bits(math.prod(sizes), device)
        span = high - low
        if span <= 1 << 32:
            # a 32-bit fraction times the span: the remainder would favour small numbers no less
            number = ((bits >> 32) * span) >> 32
        else:
            number = bits._alu(Ops.MOD, bits._full_const(span))
        result = (number.cast(dtypes.int64) + low).cast(kind).reshape(sizes)
        return cls._from_uop(result.uop.contiguous(), False)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Uniform in [-1, 1) over the square root of the number of elements.

        >>> Tensor.scaled_uniform(2, 3).shape
        (2, 3)
        """
        return cls._uniform_within(as_shape(shape), math.prod(as_shape(shape)) ** -0.5, options)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **options: Any) -> Self:
        """Uniform as Glorot and Bengio (2010) advise for layers of that shape.

        >>> Tensor.glorot_uniform(2, 3).shape
        (2, 3)
        """
        sizes = as_shape(shape)
        bound = (6 / max(sizes[0] + math.prod(sizes[1:]), 1)) ** 0.5
        return cls._uniform_within(sizes, bound, options)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Uniform as He et al. (2015) advise, for leaky relu of slope a.

        >>> Tensor.kaiming_uniform(2, 3).shape
        (2, 3)
        """
        sizes = as_shape(shape)
        bound = (6 / (1 + a**2) / max(math.prod(sizes[1:]), 1)) ** 0.5
        return cls._uniform_within(sizes, bound, options)

    @classmethod
    def _uniform_within(cls, shape: Any, bound: float, options: dict[str, Any]) -> Self:
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **options: Any) -> Self:
        """Normal as He et al. (2015) advise, for leaky relu of slope a.

        >>> Tensor.kaiming_normal(2, 3).shape
        (2, 3)
        """
        sizes = as_shape(shape)
        std = (2 / (1 + a**2) / max(math.prod(sizes[1:]), 1)) ** 0.5
        return cls.normal(*sizes, std=std, **options)

    @classmethod
    def randperm(cls, n: int, *, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """The numbers from 0 to n - 1 in random order.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        kind = dtypes.default_int if dtype is None else to_dtype(dtype)
        order = cls.rand(n, device=device).uop
        return cls._ranks(cls._from_uop(order, False)).cast(kind)

    @classmethod
    def _ranks(cls, values: Self) -> Self:
        """For each element how many others come before it in ascending order."""
        n = int(values.shape[-1])
        place = values._index_range(n)
        here, there = values.unsqueeze(-1), values.unsqueeze(-2)
        tie = (there == here) & (place.unsqueeze(0) < place.unsqueeze(1))
        return ((there < here) | tie).sum(-1)

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Positions drawn with the probabilities that self (one or two axes) is proportional to.

        >>> Tensor([0.0, 1.0]).multinomial(3, replacement=True).tolist()
        [1, 1, 1]
        """
        if not 1 <= self.ndim <= 2 or num_samples <= 0:
            raise ShapeError(
                f"multinomial: weights of shape {self.shape} (one or two axes) and "
                f"num_samples={num_samples} (positive) do not fit"
            )
        weight = self.unsqueeze(0) if self.ndim == 1 else self
        rows, columns = int(weight.shape[0]), int(weight.shape[1])
        if replacement or num_samples == 1:
            total = weight._float().cumsum(1)
            share = (total / total._slice(1, columns - 1, columns)).unsqueeze(1)
            drawn = type(self).rand(rows, num_samples, 1, device=self.device)
            found = (share <= drawn).sum(2)
        else:
            if num_samples > columns:
                raise ShapeError(
                    f"multinomial: {num_samples} different positions cannot be drawn from {columns}"
                )
            # of exponential waiting times with these rates, the shortest come first
            waiting = -type(self).rand(rows, columns, device=self.device).log() / weight._float()
            rank = self._ranks(waiting.contiguous())
            wanted = self._index_range(num_samples).reshape(1, num_samples, 1)
            found = (rank.unsqueeze(1) == wanted).where(self._index_range(columns), 0).sum(2)
        result: Self = found.cast(dtypes.int32)
        return result.squeeze(0) if self.ndim == 1 else result


def _known_sizes(what: str, shape: tuple[Any, ...]) -> tuple[int, ...]:
    if not all(isinstance(s, int) and s >= 0 for s in shape):
        raise ShapeError(f"{what} needs sizes that are known and not negative, not {shape}")
    return shape
