"""The gradients of all ops, one rule a line, and the walk that applies them.

A rule gets `ctx`, the gradient of a node, and the node; it returns the gradients of its sources,
None where there is none. They are graphs themselves, so that gradients of gradients need nothing
more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tgcore.dtype import dtypes
from tgcore.errors import TgcoreError
from tgcore.tensor.core import full_shape
from tgcore.tensor.naming import backward
from tgcore.tensor.realize import origins
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import PatternMatcher, UPat

Gradients = tuple[UOp | None, ...]
_LN2 = math.log(2)


def _reduce_max(ctx: UOp, node: UOp) -> Gradients:
    """Equal ones share the gradient evenly."""
    x = node.src[0]
    shape = x.known_shape
    best = x.alu(Ops.CMPEQ, node.expand(shape)).cast(ctx.dtype)
    count = best.reduce_axis(Ops.ADD, node.arg[1])
    return (best * _divide(ctx, count).expand(shape),)


def _reduce_mul(ctx: UOp, node: UOp) -> Gradients:
    """The product of all others, exact where elements are 0."""
    x, axes = node.src[0], node.arg[1]
    shape = x.known_shape
    zero = x.alu(Ops.CMPEQ, x.const_like(0))
    others = zero.alu(Ops.WHERE, x.const_like(1), x)
    product = others.reduce_axis(Ops.MUL, axes).expand(shape)
    zeros = zero.cast(dtypes.int32).reduce_axis(Ops.ADD, axes).expand(shape)
    without = _divide(product, others)
    # with one 0 only that element has a gradient, with two none has
    limit = zero.cast(dtypes.int32)
    exact = zeros.alu(Ops.CMPEQ, limit)
    return (exact.alu(Ops.WHERE, without, x.const_like(0)) * ctx.expand(shape),)


def _divide(a: UOp, b: UOp) -> UOp:
    return a.alu(Ops.FDIV, b)


def _fdiv(ctx: UOp, a: UOp, b: UOp) -> Gradients:
    share = _divide(ctx, b)
    return (share, -(share * _divide(a, b)))


def _pow(ctx: UOp, node: UOp, a: UOp, b: UOp) -> Gradients:
    """b * a**(b-1) is 0 for b = 0 whatever a is; a**b * log(a) is 0 for a = 0 and b >= 0."""
    zero, one = b.const_like(0), b.const_like(1)
    constant_power = b.alu(Ops.CMPEQ, zero)
    safe = constant_power.alu(Ops.WHERE, one, b)
    of_base = constant_power.alu(Ops.WHERE, zero, b * a.alu(Ops.POW, safe + -1.0))
    flat = a.alu(Ops.CMPEQ, zero) & (b < zero).logical_not()
    log = a.alu(Ops.LOG2) * _LN2
    of_power = flat.alu(Ops.WHERE, zero, node * flat.alu(Ops.WHERE, one, log))
    return (ctx * of_base, ctx * of_power)


def _max(ctx: UOp, a: UOp, b: UOp) -> Gradients:
    half = a.alu(Ops.CMPEQ, b).alu(Ops.WHERE, ctx * 0.5, ctx.const_like(0))
    return ((b < a).alu(Ops.WHERE, ctx, half), (a < b).alu(Ops.WHERE, ctx, half))


def _where(ctx: UOp, c: UOp) -> Gradients:
    zero = ctx.const_like(0)
    return (None, c.alu(Ops.WHERE, ctx, zero), c.alu(Ops.WHERE, zero, ctx))


def _cast(ctx: UOp, x: UOp) -> Gradients:
    return (ctx.cast(x.dtype) if dtypes.is_float(x.dtype) else None,)


def _expand(ctx: UOp, node: UOp, x: UOp) -> Gradients:
    """The sum over what was repeated; of narrow floats in float32."""
    axes = [
        a for a, (old, new) in enumerate(zip(x.known_shape, node.known_shape)) if old is not new
    ]
    axes = [a for a in axes if x.known_shape[a] == 1 and node.known_shape[a] != 1]
    return (_sum(ctx, axes), None)


def _sum(value: UOp, axes: Sequence[int]) -> UOp:
    if dtypes.is_float(value.dtype) and value.dtype.itemsize < 4:
        return value.cast(dtypes.float32).reduce_axis(Ops.ADD, axes).cast(value.dtype)
    return value.reduce_axis(Ops.ADD, axes)


def _pad(ctx: UOp, node: UOp, x: UOp) -> Gradients:
    return (ctx.shrink([before for before, _ in node.marg], x.known_shape), None, None)


def _shrink(ctx: UOp, node: UOp, x: UOp) -> Gradients:
    return (ctx.pad([begin for begin, _ in node.marg], x.known_shape), None, None)


def _permute(ctx: UOp, node: UOp) -> Gradients:
    return (ctx.permute([node.arg.index(a) for a in range(len(node.arg))]),)


def _cos(x: UOp) -> UOp:
    return (x.const_like(math.pi / 2) - x).sin()


def _assign(ctx: UOp) -> Gradients:
    """Of the old value nothing is left."""
    return (None, ctx)


# *** functions whose value is best computed in pieces, and whose slope is best not ***


def exp(x: UOp) -> UOp:
    """e to the x."""
    return (x * math.log2(math.e)).exp2()


def sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)), with a slope that does not overflow."""
    return (exp(-x) + 1.0).reciprocal().with_gradient("sigmoid", x)


def _angle(ctx: UOp, node: UOp, y: UOp, x: UOp) -> Gradients:
    """Of atan2; 0 at the origin, where there is no angle."""
    square = x * x + y * y
    origin = square.alu(Ops.CMPEQ, square.const_like(0))
    share = origin.alu(Ops.WHERE, ctx.const_like(0), _divide(ctx, square))
    return (x * share, -(y * share))


def _flat_at_zero(ctx: UOp, node: UOp) -> UOp:
    """Of a square root of squares: its corner at 0 is as flat as that of the absolute value."""
    zero = node.alu(Ops.CMPEQ, node.const_like(0))
    return zero.alu(Ops.WHERE, ctx.const_like(0), _divide(ctx, node * 2.0))


def _one_minus_square(x: UOp) -> UOp:
    return (x + 1.0) * (-x + 1.0)


RULES: dict[str, Callable[..., UOp | Gradients]] = {
    "acos": lambda ctx, node, x: -_divide(ctx, _one_minus_square(x).sqrt()),
    "acosh": lambda ctx, node, x: _divide(ctx, (x + -1.0).sqrt() * (x + 1.0).sqrt()),
    "asin": lambda ctx, node, x: _divide(ctx, _one_minus_square(x).sqrt()),
    "asinh": lambda ctx, node, x: _divide(ctx, (x * x + 1.0).sqrt()),
    "atan": lambda ctx, node, x: _divide(ctx, x * x + 1.0),
    "atan2": _angle,
    "atanh": lambda ctx, node, x: _divide(ctx, _one_minus_square(x)),
    "cosh": lambda ctx, node, x: ctx * (exp(x) - exp(-x)) * 0.5,
    "erf": lambda ctx, node, x: ctx * exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "expm1": lambda ctx, node, x: ctx * (node + 1.0),
    "log1p": lambda ctx, node, x: _divide(ctx, x + 1.0),
    "norm": lambda ctx, node, x: _flat_at_zero(ctx, node),
    "sigmoid": lambda ctx, node, x: ctx * node * (-node + 1.0),
    "sinh": lambda ctx, node, x: ctx * (exp(x) + exp(-x)) * 0.5,
    "softplus": lambda ctx, node, x: ctx * sigmoid(x),
    "tanh": lambda ctx, node, x: ctx * _one_minus_square(node),
}


def _custom(ctx: UOp, node: UOp) -> Gradients:
    rule = RULES[node.arg] if isinstance(node.arg, str) else node.arg
    found = rule(ctx, node, *node.src[1:])
    return (None, *(found if isinstance(found, tuple) else (found,)))


_REDUCES: dict[Ops, Callable[[UOp, UOp], Gradients]] = {
    Ops.ADD: lambda ctx, node: (ctx.expand(node.src[0].known_shape),),
    Ops.MAX: _reduce_max,
    Ops.MUL: _reduce_mul,
}
_a, _b, _x, _node = UPat.var("a"), UPat.var("b"), UPat.var("x"), "node"
_FLAT = (Ops.TRUNC, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.DETACH, Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR,
         Ops.XOR, Ops.SHL, Ops.SHR, Ops.THREEFRY, Ops.BITCAST)  # fmt: skip

pm_gradient = PatternMatcher(
    [
        # functions of one element
        (UPat(Ops.CAST, src=(_x,)), _cast),
        (UPat(Ops.NEG), lambda ctx: (-ctx,)),
        (UPat(Ops.RECIPROCAL, name=_node), lambda ctx, node: (-ctx * node * node,)),
        (UPat(Ops.SQRT, name=_node), lambda ctx, node: (_divide(ctx, node * 2.0),)),
        (UPat(Ops.EXP2, name=_node), lambda ctx, node: (ctx * node * _LN2,)),
        (UPat(Ops.LOG2, src=(_x,)), lambda ctx, x: (_divide(ctx, x * _LN2),)),
        (UPat(Ops.SIN, src=(_x,)), lambda ctx, x: (ctx * _cos(x),)),
        # of two and three
        (UPat(Ops.ADD), lambda ctx: (ctx, ctx)),
        (UPat(Ops.SUB), lambda ctx: (ctx, -ctx)),
        (UPat(Ops.MUL, src=(_a, _b)), lambda ctx, a, b: (b * ctx, a * ctx)),
        (UPat(Ops.FDIV, src=(_a, _b)), _fdiv),
        (UPat(Ops.POW, src=(_a, _b), name=_node), _pow),
        (UPat(Ops.MAX, src=(_a, _b)), _max),
        (UPat(Ops.WHERE, src=(UPat.var("c"), _a, _b)), lambda ctx, c, a, b: _where(ctx, c)),
        # movement, each turned around
        (UPat(Ops.RESHAPE, src=(_x, UPat())), lambda ctx, x: (ctx.reshape(x.known_shape), None)),
        (UPat(Ops.EXPAND, src=(_x, UPat()), name=_node), _expand),
        (UPat(Ops.PERMUTE, name=_node), _permute),
        (UPat(Ops.FLIP, name=_node), lambda ctx, node: (ctx.flip(node.arg),)),
        (UPat(Ops.PAD, src=(_x, UPat(), UPat()), name=_node), _pad),
        (UPat(Ops.SHRINK, src=(_x, UPat(), UPat()), name=_node), _shrink),
        # reduces
        (
            UPat(Ops.REDUCE_AXIS, src=(_x,), name=_node),
            lambda ctx, node, x: _REDUCES[node.arg[0]](ctx, node),
        ),
        # what changes no value
        (UPat(Ops.CUSTOM_GRADIENT, name=_node), _custom),
        (UPat(Ops.CONTIGUOUS), lambda ctx: (ctx,)),
        (UPat(Ops.CONTIGUOUS_BACKWARD), lambda ctx: (ctx.contiguous(),)),
        (
            UPat(Ops.COPY, src=(_x, UPat(Ops.DEVICE))),
            lambda ctx, x: (ctx if x.device is None else ctx.copy_to(x.device), None),
        ),
        (UPat(Ops.ASSIGN), _assign),
        # what has no slope
        (UPat(_FLAT, name=_node), lambda node: (None,) * len(node.src)),
    ]
)
_LEAVES = frozenset({Ops.CONST, Ops.VCONST, Ops.BUFFER, Ops.BIND, Ops.DEFINE_VAR, Ops.UNIQUE,
                     Ops.DEVICE})  # fmt: skip
_STOPS = frozenset(_FLAT) | {Ops.DETACH}


def sources(node: UOp) -> tuple[UOp, ...]:
    """What a node was computed from, also if it is in memory by now."""
    if node.op is Ops.BUFFER:
        origin = origins.get(node)
        return () if origin is None else (origin,)
    return () if node.op in _LEAVES else node.src


def history(root: UOp, smooth: bool = True) -> dict[UOp, None]:
    """All that the root was computed from (only smoothly, if asked for), sources first."""
    order: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if node in order:
            continue
        if done:
            order[node] = None
        elif smooth and node.op in _STOPS:
            continue
        else:
            stack.append((node, True))
            stack.extend((s, False) for s in reversed(sources(node)) if s not in order)
    return order


def compute_gradients(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradients of the targets that the root depends on smoothly."""
    wanted = set(targets)
    gradients: dict[UOp, UOp] = {root: root_gradient}
    with backward() as at_work:
        for node in reversed(_path(root, wanted)):
            at_work.node = node
            gradient = gradients.get(node)
            if gradient is None or not sources(node):
                continue
            _add_gradients(gradients, node, gradient)
            if node not in wanted:
                del gradients[node]  # nobody asks for it again
    return {target: gradients[target] for target in wanted if target in gradients}


def _add_gradients(gradients: dict[UOp, UOp], node: UOp, gradient: UOp) -> None:
    """What the node's gradient adds to those of its sources."""
    for source, part in zip(sources(node), _local(node, gradient), strict=True):
        if part is None or not dtypes.is_float(source.dtype):
            continue
        fitting = _fit(part, source)
        known = gradients.get(source)
        gradients[source] = fitting if known is None else known + fitting


def _path(root: UOp, wanted: set[UOp]) -> list[UOp]:
    """The nodes from which a target can be reached, sources first."""
    leads: dict[UOp, bool] = {}
    order = history(root)
    for node in order:
        leads[node] = node in wanted or any(leads.get(s, s in wanted) for s in sources(node))
    return [node for node in order if leads[node]]


def _local(node: UOp, gradient: UOp) -> Gradients:
    if node.op is Ops.BUFFER:
        return (gradient.reshape(sources(node)[0].known_shape),)
    result = pm_gradient.rewrite(node, gradient)
    if result is None:
        raise TgcoreError(f"{node.op} has no gradient; detach() what goes into it")
    return result  # type: ignore[return-value]


def _fit(part: UOp, source: UOp) -> UOp:
    """A scalar that met a tensor gets the sum of what all elements give."""
    shape: tuple[sint, ...] = source.known_shape
    if part.known_shape == shape:
        return part
    if shape == ():
        return _sum(part, range(len(part.known_shape))).reshape(())
    return full_shape(part, shape)
