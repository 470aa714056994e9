"""Reverse-mode differentiation: a rule for each op gives the gradients of its sources.

The gradients are graphs like any other, so they can be differentiated again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

from tgcore.dtype import dtypes, sum_acc_dtype
from tgcore.helpers import argsort
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops

Gradients: TypeAlias = "tuple[UOp | None, ...]"

# ops through which no gradient flows
_STOPS = frozenset(
    {
        *(Ops.DETACH, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.TRUNC, Ops.IDIV, Ops.MOD, Ops.SHL),
        *(Ops.SHR, Ops.AND, Ops.OR, Ops.XOR, Ops.THREEFRY, Ops.BITCAST, Ops.BUFFER, Ops.CONST),
    }
)


def _sum_to(grad: UOp, shape: tuple[sint, ...]) -> UOp:
    """The gradient of an expand: summed over what was repeated, in 32 bits at least."""
    axes = [a for a, (g, s) in enumerate(zip(grad.known_shape, shape)) if g is not s and g != s]
    if not axes:
        return grad
    return grad.cast(sum_acc_dtype(grad.dtype)).reduce_axis(Ops.ADD, axes).cast(grad.dtype)


def _max_gradient(node: UOp, grad: UOp) -> UOp:
    """Shared evenly by the elements that are the greatest."""
    x = node.src[0]
    axes = node.arg[1]
    is_top = x.alu(Ops.CMPNE, node.expand(x.known_shape)).logical_not().cast(grad.dtype)
    count = is_top.cast(sum_acc_dtype(grad.dtype)).reduce_axis(Ops.ADD, axes).cast(grad.dtype)
    share = count.reciprocal().expand(x.known_shape)
    return is_top * share * grad.expand(x.known_shape)


def _product_gradient(node: UOp, grad: UOp) -> UOp:
    """The product of the others: exact also where elements are 0."""
    x = node.src[0]
    shape, axes = x.known_shape, node.arg[1]
    zero = x.alu(Ops.CMPNE, x.const_like(0)).logical_not()
    safe = zero.where(x.const_like(1), x)
    others = safe.reduce_axis(Ops.MUL, axes)
    zeros = zero.cast(dtypes.int32).reduce_axis(Ops.ADD, axes).expand(shape)
    none = zeros.alu(Ops.CMPLT, zeros.const_like(1))
    alone = zeros.alu(Ops.CMPNE, zeros.const_like(1)).logical_not() & zero
    usable = none | alone
    total = others.expand(shape) * safe.reciprocal() * grad.expand(shape)
    return usable.where(total, total.const_like(0))


def _maximum_gradient(node: UOp, grad: UOp) -> Gradients:
    a, b = node.src
    half = grad * 0.5
    zero = grad.const_like(0)
    a_wins, b_wins = b.alu(Ops.CMPLT, a), a.alu(Ops.CMPLT, b)
    return (
        a_wins.where(grad, b_wins.where(zero, half)),
        b_wins.where(grad, a_wins.where(zero, half)),
    )


def _power_gradient(node: UOp, grad: UOp) -> Gradients:
    base, exponent = node.src
    zero = base.const_like(0)
    is_zero = exponent.alu(Ops.CMPNE, zero).logical_not()
    to_base = is_zero.where(zero, exponent * base.alu(Ops.POW, exponent + -1.0))
    positive = zero.alu(Ops.CMPLT, base)
    logarithm = positive.where(base, base.const_like(1)).log2() * math.log(2)
    vanishes = base.alu(Ops.CMPNE, zero).logical_not() & zero.alu(Ops.CMPLT, exponent)
    outside = vanishes.where(zero, base.const_like(math.nan))
    return grad * to_base, grad * positive.where(node * logarithm, outside)


def _reduce_gradient(node: UOp, grad: UOp) -> Gradients:
    x = node.src[0]
    if node.arg[0] is Ops.ADD:
        return (grad.expand(x.known_shape),)
    if node.arg[0] is Ops.MAX:
        return (_max_gradient(node, grad),)
    return (_product_gradient(node, grad),)


def _pad_gradient(node: UOp, grad: UOp) -> Gradients:
    begins = [before for before, _ in node.marg]
    return (grad.shrink(begins, node.src[0].known_shape),)


def _shrink_gradient(node: UOp, grad: UOp) -> Gradients:
    begins = [begin for begin, _ in node.marg]
    return (grad.pad(begins, node.src[0].known_shape),)


def _cast_gradient(node: UOp, grad: UOp) -> Gradients:
    source = node.src[0]
    return (grad.cast(source.dtype) if dtypes.is_float(source.dtype) else None,)


_RULES = {
    Ops.CAST: _cast_gradient,
    Ops.ADD: lambda n, g: (g, g),
    Ops.SUB: lambda n, g: (g, g * -1),
    Ops.MUL: lambda n, g: (n.src[1] * g, n.src[0] * g),
    Ops.RECIPROCAL: lambda n, g: (g * -1 * n * n,),
    Ops.NEG: lambda n, g: (g * -1,),
    Ops.EXP2: lambda n, g: (n * g * math.log(2),),
    Ops.LOG2: lambda n, g: (g * (n.src[0] * math.log(2)).reciprocal(),),
    Ops.SIN: lambda n, g: ((n.src[0] * -1 + math.pi / 2).sin() * g,),
    Ops.SQRT: lambda n, g: (g * (n * 2).reciprocal(),),
    Ops.POW: _power_gradient,
    Ops.MAX: _maximum_gradient,
    Ops.WHERE: lambda n, g: (
        None,
        n.src[0].where(g, g.const_like(0)),
        n.src[0].where(g.const_like(0), g),
    ),
    Ops.REDUCE_AXIS: _reduce_gradient,
    Ops.CONTIGUOUS: lambda n, g: (g,),
    Ops.CONTIGUOUS_BACKWARD: lambda n, g: (g.contiguous(),),
    Ops.COPY: lambda n, g: (g.copy_to(n.src[0].device) if n.src[0].device else g, None),
    Ops.ASSIGN: lambda n, g: (None, g),
    Ops.RESHAPE: lambda n, g: (g.reshape(n.src[0].known_shape), None),
    Ops.EXPAND: lambda n, g: (_sum_to(g, n.src[0].known_shape), None),
    Ops.PERMUTE: lambda n, g: (g.permute(argsort(n.arg)),),
    Ops.FLIP: lambda n, g: (g.flip(n.arg),),
    Ops.PAD: _pad_gradient,
    Ops.SHRINK: _shrink_gradient,
}


def _leads_to(root: UOp, targets: Iterable[UOp]) -> dict[UOp, bool]:
    """For every node below the root whether a gradient flows from it to a target."""
    wanted = set(targets)
    leads: dict[UOp, bool] = {}
    for node in root.toposort():
        inside = node.op not in _STOPS and any(leads[s] for s in node.src)
        leads[node] = node in wanted or inside
    return leads


def gradients(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient of the root to each target that it depends on.

    `root_gradient` has the root's shape. Sources of one node that are the same add up.
    """
    wanted = set(targets)
    leads = _leads_to(root, wanted)
    found: dict[UOp, UOp] = {root: root_gradient}
    for node in reversed(root.toposort()):
        if node not in found or not leads[node] or node.op in _STOPS:
            continue
        if not any(leads[s] for s in node.src):
            continue
        rule = _RULES.get(node.op)
        if rule is None:
            raise NotImplementedError(f"no gradient is known for {node.op}")
        for source, grad in zip(node.src, rule(node, found[node])):
            if grad is None or not leads[source]:
                continue
            grad = _shaped_like(grad, source)
            found[source] = found[source] + grad if source in found else grad
        if node not in wanted:
            del found[node]
    return {t: found[t] for t in wanted if t in found}


def _shaped_like(grad: UOp, source: UOp) -> UOp:
    """A constant's gradient broadcasts; that of a scalar among full shapes is a sum."""
    shape = source.known_shape
    if grad.shape == shape:
        return grad
    if grad.shape == ():
        return grad.reshape((1,) * len(shape)).expand(shape)
    total = grad.reduce_axis(Ops.ADD, range(len(grad.known_shape)))
    return total.reshape(())
