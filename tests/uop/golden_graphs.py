"""Chosen graphs whose text is kept, so that a change of how graphs read is seen.

    python -m tests.uop.golden_graphs

writes the texts anew, into the folder `golden` beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.schedule import graphs
from tgcore.codegen import Opt, OptOps, lower_kernel, optimize
from tgcore.codegen.late.linearize import linearize
from tgcore.codegen.target import Target
from tgcore.dtype import DType, Invalid, dtypes
from tgcore.helpers import Context
from tgcore.schedule import create_schedule
from tgcore.uop import AxisType, Ops, UOp
from tgcore.uop.render import pyrender

FOLDER = Path(__file__).parent / "golden"
SCALAR = Target("TEST")
VECTORS = Target("TEST", vector_bytes=32, masked=True)


def buffer(number: int, *shape: int, dtype: DType = dtypes.float32) -> UOp:
    """Memory with a number that is the same in each run."""
    size = 1
    for s in shape:
        size *= s
    return UOp.buffer("TEST", size, dtype, number).reshape(shape)


def kernel(graph: UOp, position: int = -1) -> UOp:
    """One of the kernels that the graph becomes."""
    items = create_schedule(UOp.sink(graph), "TEST").items
    return [item.ast for item in items if item.ast.op is Ops.SINK][position]


def program(ast: UOp, opts: Sequence[Opt] = (), target: Target = SCALAR) -> list[UOp]:
    """The linear program of a kernel, after these moves."""
    return linearize(lower_kernel(optimize(ast, target, opts), target), target)


def _elementwise() -> UOp:
    x, y = buffer(0, 4, 8), buffer(1, 4, 8)
    return ((x + y) * 2.0 + 1.0).maximum(0.0).sqrt() * (x < y).where(x, 0.5)


def _matmul() -> UOp:
    return graphs.matmul(buffer(0, 4, 8), buffer(1, 8, 16))


def _softmax() -> UOp:
    return graphs.softmax(buffer(0, 4, 8))


def _movement() -> UOp:
    x = buffer(0, 3, 5).permute((1, 0)).flip((0,)).pad((1, 0), (7, 3)).shrink((0, 1), (6, 2))
    return x.reshape((1, 12)).expand((4, 12)).contiguous()


def _symbolic() -> UOp:
    n = UOp.variable("n", 1, 16)
    rows = buffer(0, 16, 4).shrink((0, 0), (n.bind(5), 4))
    return rows.reduce_axis(Ops.ADD, (0,))


def _assigned() -> UOp:
    x = buffer(0, 8)
    return x.assign(x + 1.0).copy_to("OTHER")


def _custom_gradient() -> UOp:
    x, y = buffer(0, 4), buffer(1, 4)
    return (x * y).detach().with_gradient("clamp", x, y)


def _integers() -> UOp:
    x = buffer(0, 8, dtype=dtypes.int32)
    mixed = ((x & 7) | (x ^ 3)) + (x << 2) * -1
    return ((mixed // 3) % 5).ne(x).logical_not().cast(dtypes.uint8).bitcast(dtypes.int8)


def _index_arithmetic() -> UOp:
    i, j = UOp.range(4, 0), UOp.range(6, 1, AxisType.REDUCE)
    flat = i * 6 + j
    return ((flat < 20) & (i < 3)).where(flat // 2 % 5, Invalid)


def _tagged() -> UOp:
    return UOp.sink((buffer(0, 4) + 1.0).rtag("first"), buffer(0, 4).rtag(("second", 2)))


def _arange() -> UOp:
    return kernel(graphs.arange(10))


def _padded() -> UOp:
    return kernel(buffer(0, 3, 4).pad((1, 2), (6, 8)) + 1.0)


def _symbolic_kernel() -> UOp:
    return kernel(_symbolic())


def _attention() -> UOp:
    q, k, v = (buffer(n, 4, 8) for n in range(3))
    with Context(PCONTIG=2):
        return kernel(graphs.matmul(graphs.softmax(graphs.matmul(q, k.permute((1, 0)))), v))


def _call() -> UOp:
    memory = [UOp.buffer("TEST", size, dtypes.float32, n) for n, size in enumerate((4, 32))]
    call = UOp(Ops.KERNEL, dtypes.void, tuple(memory), kernel(_softmax(), 0))
    return memory[0].after(call).reshape((4, 1)) + 1.0


GRAPHS: dict[str, Callable[[], UOp | list[UOp]]] = {
    "tensor_elementwise": _elementwise,
    "tensor_matmul": _matmul,
    "tensor_softmax": _softmax,
    "tensor_movement": _movement,
    "tensor_symbolic": _symbolic,
    "tensor_assigned": _assigned,
    "tensor_custom_gradient": _custom_gradient,
    "tensor_integers": _integers,
    "tensor_calls_kernel": _call,
    "tagged": _tagged,
    "index_arithmetic": _index_arithmetic,
    "kernel_arange": _arange,
    "kernel_matmul": lambda: kernel(_matmul()),
    "kernel_padded": _padded,
    "kernel_softmax": lambda: kernel(_softmax(), 1),
    "kernel_symbolic": _symbolic_kernel,
    "kernel_attention": _attention,
    "kernel_upcast": lambda: optimize(kernel(_matmul()), VECTORS, [Opt(OptOps.UPCAST, 1, 8)]).ast,
    "program_matmul": lambda: program(kernel(_matmul())),
    "program_vectors": lambda: program(kernel(_elementwise()), [Opt(OptOps.UPCAST, 0, 8)], VECTORS),
    "program_gated": lambda: program(_padded(), [Opt(OptOps.PADTO, 0, 4)]),
}


def main() -> None:
    """Writes the texts anew."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, build in GRAPHS.items():
        (FOLDER / f"{name}.txt").write_text(pyrender(build()) + "\n")


if __name__ == "__main__":
    main()
