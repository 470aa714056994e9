"""Graphs as Python: a short program whose evaluation gives the very same objects.

    >>> i = UOp.range(4, 0)
    >>> print(pyrender((i * 2 + 1) % 3))
    r0 = UOp.range(4, 0, AxisType.LOOP)
    result = (r0 * 2 + 1) % 3

Every node has one of two forms: a method or operator of its sources, if evaluating that gives the
node back (this is tried, so the text never lies), else the plain constructor. Then names are given
to what a reader wants to see on a line of its own and to what is used twice.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from tgcore.dtype import AddrSpace, DType, Invalid, InvalidType, PtrDType, dtypes
from tgcore.uop.facts import movement_arg
from tgcore.uop.node import BufferizeInfo, UOp, unobserved
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.tensor_core import Fragment, TensorCore

NAMESPACE: Final[Mapping[str, Any]] = {
    **{t.__name__: t for t in (UOp, Ops, dtypes, AxisType, AddrSpace, BufferizeInfo)},
    "Fragment": Fragment,
    "TensorCore": TensorCore,
    "Invalid": Invalid,
    "inf": math.inf,
    "nan": math.nan,
}
"""What the text may refer to."""

# an expression of more characters, or of more parentheses in each other, gets a name
_LONGEST, _DEEPEST = 120, 12
_LIST_COLUMNS = 94

Part: TypeAlias = str | tuple[UOp, int]


class _Form(NamedTuple):
    """How a node is written: text with nodes in it (and how tightly these must bind)."""

    gives: UOp
    parts: Sequence[Part]
    precedence: int


_COMPARE, _OR, _XOR, _AND, _SHIFT, _ADD, _MUL, _ATOM = range(8)
_OPERATORS: Final = {
    Ops.CMPLT: ("<", _COMPARE),
    Ops.OR: ("|", _OR),
    Ops.XOR: ("^", _XOR),
    Ops.AND: ("&", _AND),
    Ops.SHL: ("<<", _SHIFT),
    Ops.SHR: (">>", _SHIFT),
    Ops.ADD: ("+", _ADD),
    Ops.MUL: ("*", _MUL),
    Ops.IDIV: ("//", _MUL),
    Ops.MOD: ("%", _MUL),
}
_METHODS: Final = {
    **{op: op.name.lower() for op in (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.TRUNC)},
    **{op: op.name.lower() for op in (Ops.RECIPROCAL, Ops.CONTIGUOUS, Ops.DETACH)},
}
_PREFIX: Final = {
    Ops.RANGE: "r",
    Ops.DEFINE_GLOBAL: "data",
    Ops.DEFINE_LOCAL: "local",
    Ops.DEFINE_REG: "reg",
    Ops.BUFFER: "buf",
    Ops.BUFFER_VIEW: "view",
    Ops.LOAD: "val",
    Ops.STORE: "store",
    Ops.END: "end",
    Ops.KERNEL: "call",
    Ops.INDEX: "at",
}
_ALWAYS_NAMED: Final = frozenset(
    {
        *(Ops.DEFINE_GLOBAL, Ops.LOAD, Ops.SPECIAL, Ops.RANGE, Ops.CONTIGUOUS, Ops.VECTORIZE),
        *(Ops.BUFFER, Ops.COPY, Ops.KERNEL, Ops.WHERE, Ops.END, Ops.ASSIGN),
    }
)
_NEVER_NAMED: Final = GroupOp.Constant | {Ops.DEVICE, Ops.UNIQUE}


def pyrender(
    graph: UOp | Sequence[UOp],
    objects: dict[str, Any] | None = None,
    most_lines: int | None = None,
) -> str:
    """The graph (or a linear program: a sequence of nodes) as Python text.

    Arguments of nodes that have no form as text, such as functions, get a name in `objects`. With
    `most_lines` only the last so many lines are given.
    """
    found: dict[str, Any] = {} if objects is None else objects
    with unobserved():
        lines = _Writer(found).program(graph)
    if most_lines is not None and len(lines) > most_lines:
        lines = [f"# {len(lines) - most_lines} more lines", *lines[-most_lines:]]
    return "\n".join(lines)


def pyeval(text: str, objects: Mapping[str, Any] | None = None) -> Any:
    """What the text of `pyrender` stands for. It is run as Python: only for text that you trust."""
    space = {**NAMESPACE, **(objects or {})}
    with unobserved():
        exec(compile(text, "<pyrender>", "exec"), space)
    return space["result"]


def survives(graph: UOp | Sequence[UOp]) -> bool:
    """Whether the graph comes back as the same objects after a trip through text."""
    objects: dict[str, Any] = {}
    back = pyeval(pyrender(graph, objects), objects)
    if isinstance(graph, UOp):
        return back is graph
    return len(back) == len(graph) and all(a is b for a, b in zip(back, graph))


def node_survives(node: UOp, levels: int = 2) -> bool:
    """Whether a node comes back from text in which so many levels of its sources are written out
    and those below stand as they are: that takes no longer for a node on top of a large graph."""
    objects: dict[str, Any] = {}
    near = layer = {node}
    for _ in range(levels):
        layer = {source for n in layer for source in n.src}
        near = near | layer
    with unobserved():
        lines = _Writer(objects, near=near).program(node)
    return pyeval("\n".join(lines), objects) is node


# *** the forms of the ops ***


def _joined(parts: Iterable[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        found += [", ", part] if found else [part]
    return found


def _call(gives: UOp, head: Sequence[Part], arguments: Iterable[Part]) -> _Form:
    return _Form(gives, (*head, "(", *_joined(arguments), ")"), _ATOM)


def _method(gives: UOp, receiver: UOp, name: str, *arguments: Part) -> _Form:
    return _call(gives, ((receiver, _ATOM), f".{name}"), arguments)


def _whole(*sources: UOp) -> list[Part]:
    return [(s, _COMPARE) for s in sources]


def _literal(value: Any) -> str:
    return repr(value)


def _is_plain_const(node: UOp) -> bool:
    return node.op is Ops.CONST and not node.src and node.tag is None


def _beside(node: UOp, other: UOp, precedence: int) -> Part:
    """An operand: a plain number if it is the constant that the other operand makes of it."""
    if _is_plain_const(node) and other.const_like(node.arg) is node:
        return _literal(node.arg)
    return (node, precedence)


def _size(node: UOp) -> Part:
    """A node where methods also take an int."""
    plain = _is_plain_const(node) and node.dtype is dtypes.index and type(node.arg) is int
    return _literal(node.arg) if plain else (node, _COMPARE)


def _tuple(parts: Sequence[Part]) -> list[Part]:
    return ["(", *_joined(parts), ",)" if len(parts) == 1 else ")"]


def _shape(node: UOp) -> list[Part]:
    if node.op is Ops.VCONST:
        return [_literal(node.arg)]
    return _tuple([_size(s) for s in node.src])


def _arithmetic(n: UOp) -> _Form:
    a, b = n.src
    symbol, precedence = _OPERATORS[n.op]
    left: Part = (a, precedence + (n.op is Ops.CMPLT))
    right = _beside(b, a, precedence + 1)
    if not isinstance(right, str):
        left = _beside(a, b, precedence + (n.op is Ops.CMPLT))
    return _Form(a.alu(n.op, b), (left, f" {symbol} ", right), precedence)


def _not_equal(n: UOp) -> _Form:
    a, b = n.src
    if a.logical_not() is n:
        return _method(n, a, "logical_not")
    return _method(a.ne(b), a, "ne", _beside(b, a, _COMPARE))


def _maximum(n: UOp) -> _Form:
    a, b = n.src
    return _method(a.maximum(b), a, "maximum", _beside(b, a, _COMPARE))


def _where(n: UOp) -> _Form:
    condition, yes, no = n.src
    second = _beside(no, yes, _COMPARE)
    first = (yes, _COMPARE) if isinstance(second, str) else _beside(yes, no, _COMPARE)
    return _method(condition.where(yes, no), condition, "where", first, second)


def _alu(n: UOp) -> _Form:
    first, *others = n.src
    return _method(first.alu(n.op, *others), first, "alu", f"{n.op}", *_whole(*others))


def _unary(n: UOp) -> _Form:
    (x,) = n.src
    name = _METHODS[n.op]
    return _method(getattr(x, name)(), x, name)


def _cast(n: UOp) -> _Form:
    (x,) = n.src
    name = "cast" if n.op is Ops.CAST else "bitcast"
    scalar = n.dtype.scalar()
    target = scalar if name == "cast" and x.dtype.count > 1 else n.dtype
    return _method(getattr(x, name)(target), x, name, _dtype(target))


def _const(n: UOp) -> _Form:
    if n.arg is Invalid and UOp.invalid() is n:
        return _call(n, ("UOp.invalid",), ())
    return _call(UOp.const(n.dtype, n.arg), ("UOp.const",), [_dtype(n.dtype), _literal(n.arg)])


def _gep(n: UOp) -> _Form:
    lanes = n.arg[0] if len(n.arg) == 1 else n.arg
    return _method(n.src[0].gep(lanes), n.src[0], "gep", _literal(lanes))


def _vectorize(n: UOp) -> _Form:
    first, count = n.src[0], len(n.src)
    if count > 1 and all(s is first for s in n.src):
        return _method(first.broadcast(count), first, "broadcast", str(count))
    return _call(UOp.vectorize(*n.src), ("UOp.vectorize",), _whole(*n.src))


def _index(n: UOp) -> _Form:
    memory, *indices = n.src
    gate = indices.pop() if len(indices) > 1 and indices[-1].dtype is dtypes.bool else None
    arguments: list[Part] = [_size(i) for i in indices]
    pieces: list[Part] = _joined(arguments)
    if gate is not None:
        pieces += [", gate=", (gate, _COMPARE)]
    if n.dtype is not memory.dtype.base:
        pieces += [", dtype=", *_pointer_type(n.dtype, memory)]
    gives = memory.index(*indices, gate=gate, dtype=n.dtype)
    return _Form(gives, ((memory, _ATOM), ".index(", *pieces, ")"), _ATOM)


def _pointer_type(dtype: DType, memory: UOp) -> list[Part]:
    """The type of an address: that of the memory, if this has a name."""
    if dtype is memory.dtype and memory.op is Ops.DEFINE_GLOBAL:
        return [(memory, _ATOM), ".dtype"]
    return [_dtype(dtype)]


def _load(n: UOp) -> _Form:
    address, *others = n.src
    wide = [] if n.dtype is address.dtype.base else [f"dtype={_dtype(n.dtype)}"]
    gives = address.load(*others, dtype=n.dtype)
    return _method(gives, address, "load", *_whole(*others), *wide)


def _named_method(name: str) -> Callable[[UOp], _Form]:
    """A method of the first source whose arguments are the others."""

    def form(n: UOp) -> _Form:
        first, *others = n.src
        return _method(getattr(first, name)(*others), first, name, *_whole(*others))

    return form


def _reduce(n: UOp) -> _Form:
    first, *ranges = n.src
    return _method(first.reduce(n.arg, *ranges), first, "reduce", f"{n.arg}", *_whole(*ranges))


def _reduce_axis(n: UOp) -> _Form:
    (x,), (op, axes) = n.src, n.arg
    return _method(x.reduce_axis(op, axes), x, "reduce_axis", f"{op}", _literal(axes))


def _custom_gradient(n: UOp) -> _Form:
    if not isinstance(n.arg, str):
        raise TypeError("only the constructor takes what has no text")
    first, *inputs = n.src
    gives = first.with_gradient(n.arg, *inputs)
    return _method(gives, first, "with_gradient", _literal(n.arg), *_whole(*inputs))


def _range(n: UOp) -> _Form:
    (size,), (*number, axis) = n.src, n.arg
    numbers = number[0] if len(number) == 1 else tuple(number)
    gives = UOp.range(size, numbers, axis)
    return _call(gives, ("UOp.range",), [_size(size), _literal(numbers), str(axis)])


def _special(n: UOp) -> _Form:
    (size,) = n.src
    return _call(UOp.special(n.arg, size), ("UOp.special",), [_literal(n.arg), _size(size)])


def _variable(n: UOp) -> _Form:
    return _call(UOp.variable(*n.arg), ("UOp.variable",), map(_literal, n.arg))


def _define(n: UOp) -> _Form:
    number = n.arg
    gives = UOp.define(n.op, n.dtype.base, n.dtype.size, number)
    arguments = [str(n.op), _dtype(n.dtype.base), str(n.dtype.size), _literal(number)]
    return _call(gives, ("UOp.define",), arguments)


def _buffer(n: UOp) -> _Form:
    unique, device = n.src
    gives = UOp.buffer(device.arg, n.arg, n.dtype, unique.arg)
    arguments = [_literal(device.arg), _literal(n.arg), _dtype(n.dtype), _literal(unique.arg)]
    return _call(gives, ("UOp.buffer",), arguments)


def _copy(n: UOp) -> _Form:
    x, device = n.src
    return _method(x.copy_to(device.arg), x, "copy_to", _literal(device.arg))


def _bind(n: UOp) -> _Form:
    variable, value = n.src
    return _method(variable.bind(value.arg), variable, "bind", _literal(value.arg))


def _reshape(n: UOp) -> _Form:
    x, sizes = n.src
    name = n.op.name.lower()
    gives = getattr(x, name)(n.shape)
    return _Form(gives, ((x, _ATOM), f".{name}(", *_shape(sizes), ")"), _ATOM)


def _pad(n: UOp) -> _Form:
    x, begin, sizes = n.src
    name = n.op.name.lower()
    gives = getattr(x, name)(movement_arg(n), n.shape)
    parts = ((x, _ATOM), f".{name}(", *_shape(begin), ", ", *_shape(sizes), ")")
    return _Form(gives, parts, _ATOM)


def _permute(n: UOp) -> _Form:
    name = n.op.name.lower()
    return _method(getattr(n.src[0], name)(n.arg), n.src[0], name, _literal(n.arg))


def _several(name: str) -> Callable[[UOp], _Form]:
    def form(n: UOp) -> _Form:
        return _call(getattr(UOp, name)(*n.src), (f"UOp.{name}",), _whole(*n.src))

    return form


_FORMS: Final[dict[Ops, Callable[[UOp], _Form]]] = {
    **dict.fromkeys(_OPERATORS, _arithmetic),
    **dict.fromkeys(_METHODS, _unary),
    **dict.fromkeys((Ops.SUB, Ops.FDIV, Ops.POW, Ops.CMPEQ, Ops.THREEFRY, Ops.MULACC), _alu),
    **dict.fromkeys(GroupOp.Constant, _const),
    **dict.fromkeys(GroupOp.Define, _define),
    **dict.fromkeys((Ops.RESHAPE, Ops.EXPAND), _reshape),
    **dict.fromkeys((Ops.PAD, Ops.SHRINK), _pad),
    **dict.fromkeys((Ops.PERMUTE, Ops.FLIP), _permute),
    **dict.fromkeys((Ops.CAST, Ops.BITCAST), _cast),
    **{op: _named_method(op.name.lower()) for op in (Ops.STORE, Ops.END, Ops.AFTER, Ops.ASSIGN)},
    **{op: _several(op.name.lower()) for op in (Ops.SINK, Ops.GROUP)},
    Ops.NEG: _alu,
    Ops.CMPNE: _not_equal,
    Ops.MAX: _maximum,
    Ops.WHERE: _where,
    Ops.GEP: _gep,
    Ops.VECTORIZE: _vectorize,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.REDUCE: _reduce,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.CUSTOM_GRADIENT: _custom_gradient,
    Ops.RANGE: _range,
    Ops.SPECIAL: _special,
    Ops.DEFINE_VAR: _variable,
    Ops.BUFFER: _buffer,
    Ops.COPY: _copy,
    Ops.BIND: _bind,
}


def _dtype(dtype: Any) -> str:
    return repr(dtype)


# *** the text ***


class _Writer:
    """Writes a program, or the body of a function in it."""

    def __init__(
        self, objects: dict[str, Any], indent: str = "", near: Set[UOp] | None = None
    ) -> None:
        self.objects, self.indent = objects, indent
        self.near = near  # the nodes that are written out; None: all
        self.lines: list[str] = []
        self.forms: dict[UOp, _Form] = {}
        self.text: dict[UOp, tuple[str, int]] = {}  # what stands for a node, and how it binds
        self.depth: dict[UOp, int] = {}
        self.taken: dict[str, int] = {}
        self.kernels: dict[UOp, str] = {}

    def program(self, graph: UOp | Sequence[UOp]) -> list[str]:
        """The lines; the last one gives the graph the name `result`."""
        if isinstance(graph, UOp):
            self._write([graph])
            self._assign("result", self.text[graph][0])
        else:
            self._write(list(graph))
            self._assign("result", _filled([self.text[n][0] for n in graph], self.indent))
        return self.lines

    def _assign(self, name: str, text: str) -> None:
        self.lines.append(f"{self.indent}{name} = {text}")

    def _write(self, roots: list[UOp]) -> None:
        order = self._order(roots)
        named = self._named(order, roots)
        last = roots[0] if len(roots) == 1 else None
        for node in order:
            text, precedence, depth = self._expression(node)
            long = len(text) > _LONGEST or depth > _DEEPEST
            if node is not last and (node in named or long) and node.op not in _NEVER_NAMED:
                name = self._name(node)
                self._assign(name, text)
                text, precedence, depth = name, _ATOM, 0
            self.text[node], self.depth[node] = (text, precedence), depth

    def _order(self, roots: list[UOp]) -> list[UOp]:
        """The nodes that the text speaks of, what a form refers to before what it gives."""
        done: dict[UOp, None] = {}
        stack = [(n, False) for n in reversed(roots)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done[node] = None
                continue
            form = self.forms[node] = self._form(node)
            stack.append((node, True))
            stack.extend([(p[0], False) for p in reversed(form.parts) if not isinstance(p, str)])
        return list(done)

    def _named(self, order: list[UOp], roots: list[UOp]) -> set[UOp]:
        named: set[UOp] = set()
        used: set[UOp] = set(roots) if len(roots) > 1 else set()
        for node in order:
            if node.op in _ALWAYS_NAMED:
                named.add(node)
            if node.op in (Ops.SINK, Ops.REDUCE):
                named.update(node.src)
            elif node.op is Ops.STORE:
                named.update(node.src[1:])
            for part in self.forms[node].parts:
                if not isinstance(part, str):
                    (named if part[0] in used else used).add(part[0])
        return named

    def _form(self, node: UOp) -> _Form:
        if self.near is not None and node.src and node not in self.near:
            return _Form(node, (self._object(node),), _ATOM)
        plain = node if node.tag is None else node.rtag(None)
        writer = _FORMS.get(node.op)
        if writer is not None:
            try:
                form = writer(plain)
            except Exception:
                form = None  # an illegal node: its constructor shows it as it is
            if form is not None and form.gives is plain:
                if node.tag is None:
                    return form
                tagged = (*_closed(form), f".rtag({self._arg(node.tag)})")
                return _Form(node, tagged, _ATOM)
        return self._constructor(node)

    def _constructor(self, node: UOp) -> _Form:
        parts: list[Part] = [f"UOp({node.op}"]
        void = node.dtype is dtypes.void
        if not void:
            parts += [", ", _dtype(node.dtype)]
        if node.src or not void:
            parts += [", src=" if void else ", ", *_tuple(_whole(*node.src))]
        if node.arg is not None:
            parts += [", arg=" if void else ", ", self._arg(node.arg)]
        if node.tag is not None:
            parts += [", tag=", self._arg(node.tag)]
        return _Form(node, (*parts, ")"), _ATOM)

    def _arg(self, arg: Any) -> str:
        if isinstance(arg, UOp):
            return f"{self._kernel(arg)}()"
        if isinstance(arg, tuple) and type(arg) is tuple:
            inside = [self._arg(a) for a in arg]
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        if arg is None or type(arg) in _SHOWN_BY_REPR or isinstance(arg, float):
            return repr(arg)
        return self._object(arg)

    def _object(self, thing: Any) -> str:
        """The name that stands for something without a text."""
        for name, known in self.objects.items():
            if known is thing:
                return name
        name = f"object{len(self.objects)}"
        self.objects[name] = thing
        return name

    def _kernel(self, root: UOp) -> str:
        """The name of the function that gives a graph inside an argument."""
        if root not in self.kernels:
            name = self.kernels[root] = self._fresh("kernel")
            inner = _Writer(self.objects, self.indent + "    ")
            inner.program(root)
            self.lines += [
                f"{self.indent}def {name}():",
                *inner.lines,
                f"{self.indent}    return result",
            ]
        return self.kernels[root]

    def _expression(self, node: UOp) -> tuple[str, int, int]:
        pieces: list[str] = []
        form, depth = self.forms[node], 0
        for part in form.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            inner, least = part
            text, precedence = self.text[inner]
            depth = max(depth, self.depth[inner] + 1)
            pieces.append(text if precedence >= least else f"({text})")
        return "".join(pieces), form.precedence, depth

    def _name(self, node: UOp) -> str:
        if node.op is Ops.DEFINE_GLOBAL and type(node.arg) is int:
            return self._fresh(f"data{node.arg}", numbered=False)
        if node.op in (Ops.DEFINE_VAR, Ops.SPECIAL):
            own = node.arg[0] if node.op is Ops.DEFINE_VAR else node.arg
            if isinstance(own, str) and own.isidentifier() and not keyword.iskeyword(own):
                return self._fresh(own, numbered=False)
        return self._fresh(_PREFIX.get(node.op, "x"))

    def _fresh(self, prefix: str, numbered: bool = True) -> str:
        number = self.taken.get(prefix, 0)
        while True:
            name = prefix if number == 0 and not numbered else f"{prefix}{number}"
            number += 1
            if name not in self.taken and name not in NAMESPACE and name != "result":
                break
        self.taken[prefix] = number
        self.taken.setdefault(name, 0)
        return name


def _filled(entries: list[str], indent: str) -> str:
    """A list, as many entries a line as there is room for."""
    lines = [""]
    for entry in entries:
        if lines[-1] and len(lines[-1]) + len(entry) > _LIST_COLUMNS:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{entry},"
    return f"[\n{indent}    " + f"\n{indent}    ".join(lines) + f"\n{indent}]"


_SHOWN_BY_REPR: Final = frozenset(
    {
        *(int, str, bool, bytes, Ops, AxisType, AddrSpace, DType, PtrDType, InvalidType),
        *(BufferizeInfo, TensorCore),
    }
)


def _closed(form: _Form) -> Sequence[Part]:
    return form.parts if form.precedence >= _ATOM else ("(", *form.parts, ")")
