"""GNU C: for clang and gcc, with their vector extensions.

The same programs as the LLVM IR family, with the same calling convention: a static function with
`restrict` pointers, and an exported entry that unpacks the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from tgcore.dtype import PtrDType, dtypes
from tgcore.errors import CompileError
from tgcore.renderer.base import Renderer
from tgcore.renderer.c_ops import CODE_FOR_OP, CBody, constant, is_mask, new_mask, padded
from tgcore.renderer.llvm import gate_of
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops


class CRenderer(Renderer):
    """Writes a linear program as C, for CPU-like devices.

    The entry is `void NAME(const long long *args, int thread)`; see `LLVMRenderer`.
    """

    code_for_op: ClassVar[Mapping[Ops, Any]] = CODE_FOR_OP

    def render(self, uops: Sequence[UOp], function_name: str) -> str:
        """The source of both functions."""
        body = CBody()
        buffers = sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg)
        variables = sorted((u for u in uops if u.op is Ops.DEFINE_VAR), key=lambda u: u.arg)
        for buffer in buffers:
            body.names[buffer] = f"data{buffer.arg}"
        for position, variable in enumerate(variables):
            body.names[variable] = f"var{position}"
        for node in uops:
            name = self._write(body, node)
            if name is not None:
                body.names[node] = name
        parameters = [f"{_element(body, b)} *restrict data{b.arg}" for b in buffers]
        parameters += [f"{body.type(v.dtype)} var{n}" for n, v in enumerate(variables)]
        parameters.append("int thread")
        zeros = [f"static const char zeros[{body.zero_bytes}] __attribute__((aligned(64)));"]
        return "\n".join(
            [
                *body.typedefs,
                *(zeros if body.zero_bytes else []),
                *body.helpers.values(),
                f"static __attribute__((noinline)) void {function_name}_body("
                f"{', '.join(parameters)}) {{",
                *body.registers,
                *body.lines,
                "}",
                *self.entry(body, function_name, buffers, variables),
                "",
            ]
        )

    def entry(
        self,
        body: CBody,
        function_name: str,
        buffers: Sequence[UOp],
        variables: Sequence[UOp],
    ) -> list[str]:
        """The exported function, which unpacks the arguments."""
        arguments = [f"({_element(body, b)} *)args[{n}]" for n, b in enumerate(buffers)]
        first = len(buffers)
        arguments += [f"({body.type(v.dtype)})args[{first + n}]" for n, v in enumerate(variables)]
        arguments.append("thread")
        return [
            f"void {function_name}(const long long *args, int thread) {{",
            f"  {function_name}_body({', '.join(arguments)});",
            "}",
        ]

    def special(self, body: CBody, node: UOp) -> str:
        """The position in the launch that the node names."""
        if node.arg != "t0":
            raise CompileError(f"a CPU kernel has no launch position {node.arg}")
        return "thread" if node.dtype is dtypes.int32 else f"(({body.type(node.dtype)})thread)"

    def _write(self, body: CBody, node: UOp) -> str | None:
        if node.op is Ops.CAST and isinstance(node.dtype, PtrDType):
            return f"(({_element(body, node)} *){body.names[node.src[0]]})"
        writer = self.code_for_op.get(node.op)
        if writer is not None:
            return writer(body, node)  # type: ignore[no-any-return]
        if node.op in GroupOp.Constant:
            if is_mask(node.dtype):
                body.mask_bytes[node] = 1
            return constant(body, node.arg, node.dtype)
        rule = _STRUCTURE.get(node.op)
        if rule is None:
            raise CompileError(f"C cannot say {node.op}: {node}")
        return rule(self, body, node)

    def _memory(self, body: CBody, node: UOp) -> str:
        name = body.fresh("reg")
        body.registers.append(f"  {_element(body, node)} {name}[{max(node.dtype.size, 1)}];")
        return name

    def _index(self, body: CBody, node: UOp) -> str:
        return f"({body.names[node.src[0]]} + {body.names[node.src[1]]})"

    # *** loads and stores ***

    def _load(self, body: CBody, node: UOp) -> str:
        address = node.src[0]
        gate, name = gate_of(address), body.names[address]
        if gate is not None and gate.dtype.count > 1:
            return self._masked_load(body, node, gate)
        if gate is not None:
            body.zero_bytes = max(body.zero_bytes, padded(node.dtype.count) * 8)
            pointer = f"const {_element(body, address)} *"
            chosen = body.fresh("p")
            body.line(f"{pointer}{chosen} = {body.names[gate]} ? {name} : ({pointer})zeros;")
            name = chosen
        value = self._plain_load(body, node, name)
        if gate is None:
            return value
        return self._or_other(body, node, gate, value)

    def _plain_load(self, body: CBody, node: UOp, address: str) -> str:
        dtype, memory = node.dtype, node.src[0].dtype.base
        if dtype.count == 1:
            test = " != 0" if dtypes.is_bool(dtype) else ""
            return body.value(body.type(dtype), f"*{address}{test}")
        kind = body.type(dtype)
        if memory.count > 1:
            body.mask_bytes[node] = 1
            return body.value(kind, f"*{address}")
        text = f"*(const {kind}u *){address}"
        if padded(dtype.count) != dtype.count:
            text = body.fresh()
            body.line(f"{kind} {text} = {{0}};")
            size = dtype.count * dtype.scalar().itemsize
            body.line(f"__builtin_memcpy(&{text}, {address}, {size});")
        if dtypes.is_bool(dtype):
            return new_mask(body, node, 1, f"{text} != 0")
        return text if text.isidentifier() else body.value(kind, text)

    def _or_other(self, body: CBody, node: UOp, gate: UOp, value: str) -> str:
        other = node.src[1]
        if other.op is Ops.CONST and repr(other.arg) in ("0", "0.0", "False"):
            return value
        kind = body.type(node.dtype)
        alternative = body.mask(other, 1) if is_mask(node.dtype) else body.names[other]
        return body.value(kind, f"{body.names[gate]} ? {value} : {alternative}")

    def _masked_load(self, body: CBody, node: UOp, gate: UOp) -> str:
        address, mask = body.names[node.src[0]], body.names[gate]
        bools = dtypes.is_bool(node.dtype)
        other = body.mask(node.src[1], 1) if bools else body.names[node.src[1]]
        kind = body.type(node.dtype)
        result = body.fresh()
        body.line(f"{kind} {result} = {other};")
        read = f"-({address}[i] != 0)" if bools else f"{address}[i]"
        body.line(
            f"for (int i = 0; i < {node.dtype.count}; i++) if ({mask}[i]) {result}[i] = {read};"
        )
        if bools:
            body.mask_bytes[node] = 1
        return result

    def _store(self, body: CBody, node: UOp) -> None:
        address, value = node.src[:2]
        gate, name = gate_of(address), body.names[address]
        text = body.names[value]
        if is_mask(value.dtype) and address.dtype.base.count == 1:
            kind = body.type(dtypes.uint8.vec(value.dtype.count))
            text = body.value(kind, f"({kind})({body.mask(value, 1)} & 1)")
        elif is_mask(value.dtype):
            text = body.mask(value, 1)
        if gate is not None:
            if gate.dtype.count == 1:
                raise CompileError("a store with a scalar gate must stand in IF and ENDIF")
            lanes = value.dtype.count
            mask = body.names[gate]
            body.line(f"for (int i = 0; i < {lanes}; i++) if ({mask}[i]) {name}[i] = {text}[i];")
        elif value.dtype.count == 1 or address.dtype.base.count > 1:
            body.line(f"*{name} = {text};")
        elif padded(value.dtype.count) != value.dtype.count:
            variable = _variable(body, body.type(value.dtype), text)
            size = value.dtype.count * value.dtype.scalar().itemsize
            body.line(f"__builtin_memcpy({name}, &{variable}, {size});")
        else:
            stored = dtypes.uint8 if is_mask(value.dtype) else value.dtype.scalar()
            body.line(f"*({body.type(stored.vec(value.dtype.count))}u *){name} = {text};")

    # *** vectors ***

    def _vectorize(self, body: CBody, node: UOp) -> str:
        names = [body.names[s] for s in node.src]
        if is_mask(node.dtype):
            names = [f"-{name}" for name in names]
        return self._literal(body, node, names)

    def _literal(self, body: CBody, node: UOp, lanes: list[str]) -> str:
        lanes += [lanes[-1]] * (padded(len(lanes)) - len(lanes))
        kind = body.type(node.dtype)
        if is_mask(node.dtype):
            body.mask_bytes[node] = 1
        return body.value(kind, f"({kind}){{{', '.join(lanes)}}}")

    def _gep(self, body: CBody, node: UOp) -> str:
        source = node.src[0]
        name = body.names[source]
        if source.dtype.count == 1:
            return name
        if not name.isidentifier():
            kind = body.type(source.dtype)
            name = body.value(kind, name)
        lanes = [f"{name}[{lane}]" for lane in node.arg]
        if node.dtype.count == 1:
            test = " != 0" if dtypes.is_bool(node.dtype) else ""
            return body.value(body.type(node.dtype), lanes[0] + test)
        return self._literal(body, node, lanes)

    def _cat(self, body: CBody, node: UOp) -> str:
        lanes: list[str] = []
        for source in node.src:
            name = body.names[source]
            if source.dtype.count == 1:
                lanes.append(f"-{name}" if dtypes.is_bool(source.dtype) else name)
                continue
            if not name.isidentifier():
                name = body.value(body.type(source.dtype), name)
            lanes += [f"{name}[{lane}]" for lane in range(source.dtype.count)]
        return self._literal(body, node, lanes)

    # *** control ***

    def _range(self, body: CBody, node: UOp) -> str:
        name, kind = body.fresh("i"), body.type(node.dtype)
        size = body.names[node.src[0]]
        body.line(f"for ({kind} {name} = 0; {name} < {size}; {name}++) {{")
        body.depth += 1
        return name

    def _end(self, body: CBody, node: UOp) -> None:
        for _ in node.src[1:]:
            body.depth -= 1
            body.line("}")

    def _if(self, body: CBody, node: UOp) -> None:
        body.line(f"if ({body.names[node.src[0]]}) {{")
        body.depth += 1

    def _endif(self, body: CBody, node: UOp) -> None:
        body.depth -= 1
        body.line("}")

    def _custom(self, body: CBody, node: UOp) -> str | None:
        text = node.arg.format(*(body.names[s] for s in node.src))
        if node.dtype is dtypes.void:
            body.line(text)
            return None
        return body.value(body.type(node.dtype), text)


def _variable(body: CBody, kind: str, text: str) -> str:
    return text if text.isidentifier() else body.value(kind, text)


def _element(body: CBody, memory: UOp) -> str:
    """What a pointer points to: a bool is a byte."""
    base = memory.dtype.base
    return body.type(dtypes.uint8 if base is dtypes.bool else base)


_Rule = Callable[[CRenderer, CBody, UOp], str | None]
_NOTHING: Final[_Rule] = lambda renderer, body, node: None  # noqa: E731

_STRUCTURE: Final[dict[Ops, _Rule]] = {
    Ops.DEFINE_GLOBAL: lambda renderer, body, node: body.names[node],
    Ops.DEFINE_VAR: lambda renderer, body, node: body.names[node],
    Ops.DEFINE_LOCAL: CRenderer._memory,
    Ops.DEFINE_REG: CRenderer._memory,
    Ops.SPECIAL: lambda renderer, body, node: renderer.special(body, node),
    Ops.INDEX: CRenderer._index,
    Ops.LOAD: CRenderer._load,
    Ops.STORE: CRenderer._store,
    Ops.VECTORIZE: CRenderer._vectorize,
    Ops.GEP: CRenderer._gep,
    Ops.CAT: CRenderer._cat,
    Ops.RANGE: CRenderer._range,
    Ops.END: CRenderer._end,
    Ops.IF: CRenderer._if,
    Ops.ENDIF: CRenderer._endif,
    Ops.BARRIER: _NOTHING,
    Ops.SINK: _NOTHING,
    Ops.NOOP: _NOTHING,
    Ops.CUSTOM: CRenderer._custom,
    Ops.CUSTOMI: CRenderer._custom,
}
