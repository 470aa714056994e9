"""CUDA C: a kernel as one `__global__` function.

Arithmetic is scalar; vectors, structures with an alignment, only carry what is loaded and stored at
once and what matrix instructions take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from tg_nv.languages.cuda_ops import CODE_FOR_OP, CudaBody, constant
from tg_nv.languages.matrix import instruction
from tgcore.dtype import DType, PtrDType, dtypes
from tgcore.errors import CompileError
from tgcore.renderer.base import Renderer
from tgcore.renderer.llvm import gate_of
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

_PLACES: Final = {"g": "blockIdx", "l": "threadIdx"}


class CudaRenderer(Renderer):
    """Writes a linear program as CUDA C.

    The parameters are the buffers by number, then the variables in order.
    """

    code_for_op: ClassVar[Mapping[Ops, Any]] = CODE_FOR_OP

    def render(self, uops: Sequence[UOp], function_name: str) -> str:
        """The source of the kernel."""
        body = CudaBody()
        buffers = sorted((u for u in uops if u.op is Ops.DEFINE_GLOBAL), key=lambda u: u.arg)
        variables = sorted((u for u in uops if u.op is Ops.DEFINE_VAR), key=lambda u: u.arg)
        body.names |= {buffer: f"data{buffer.arg}" for buffer in buffers}
        body.names |= {variable: f"var{n}" for n, variable in enumerate(variables)}
        for node in uops:
            name = self._write(body, node)
            if name is not None:
                body.names[node] = name
        parameters = [f"{_element(body, b)} *__restrict__ data{b.arg}" for b in buffers]
        parameters += [f"const {body.type(v.dtype)} var{n}" for n, v in enumerate(variables)]
        threads = math.prod(
            int(u.src[0].arg) for u in uops if u.op is Ops.SPECIAL and u.arg[0] == "l"
        )
        head = f'extern "C" __global__ void __launch_bounds__({threads})'
        return "\n".join(
            [
                *body.typedefs,
                *body.helpers.values(),
                f"{head} {function_name}({', '.join(parameters)}) {{",
                *body.lines,
                "}",
                "",
            ]
        )

    def _write(self, body: CudaBody, node: UOp) -> str | None:
        if node.op is Ops.CAST and isinstance(node.dtype, PtrDType):
            return f"(({_element(body, node)} *){body.names[node.src[0]]})"
        writer = self.code_for_op.get(node.op)
        if writer is not None:
            if node.dtype.count > 1 or any(s.dtype.count > 1 for s in node.src):
                raise CompileError(f"CUDA C has no arithmetic of vectors: {node}")
            return writer(body, node)  # type: ignore[no-any-return]
        if node.op in GroupOp.Constant:
            return constant(body, node.arg, node.dtype)
        rule = _STRUCTURE.get(node.op)
        if rule is None:
            raise CompileError(f"CUDA C cannot say {node.op}: {node}")
        return rule(self, body, node)

    # *** memory ***

    def _registers(self, body: CudaBody, node: UOp) -> str:
        name = body.fresh("reg")
        body.line(f"{_element(body, node)} {name}[{max(node.dtype.size, 1)}];")
        return name

    def _shared(self, body: CudaBody, node: UOp) -> str:
        name = body.fresh("shared")
        size = max(node.dtype.size, 1)
        body.line(f"__shared__ __align__(16) {_element(body, node)} {name}[{size}];")
        return name

    def _index(self, body: CudaBody, node: UOp) -> str:
        return f"({body.names[node.src[0]]} + {body.names[node.src[1]]})"

    def _load(self, body: CudaBody, node: UOp) -> str:
        address = node.src[0]
        text = f"*{self._pointer(body, address, node.dtype)}"
        gate = gate_of(address)
        if gate is None:
            return body.value(node.dtype, text)
        return body.value(node.dtype, f"{body.names[gate]} ? {text} : {body.names[node.src[1]]}")

    def _store(self, body: CudaBody, node: UOp) -> None:
        address, value = node.src[:2]
        if gate_of(address) is not None:
            raise CompileError("a store with a gate must stand in IF and ENDIF")
        pointer = self._pointer(body, address, value.dtype)
        body.line(f"*{pointer} = {body.names[value]};")

    def _pointer(self, body: CudaBody, address: UOp, dtype: DType) -> str:
        name = body.names[address]
        if address.dtype.base.count == dtype.count:
            return name
        return f"({body.type(dtype)} *){name}"

    # *** vectors ***

    def _vectorize(self, body: CudaBody, node: UOp) -> str:
        return self._lanes(body, node.dtype, [body.names[s] for s in node.src])

    def _lanes(self, body: CudaBody, dtype: DType, lanes: Sequence[str]) -> str:
        return body.value(dtype, f"{{{{{', '.join(lanes)}}}}}")

    def _gep(self, body: CudaBody, node: UOp) -> str:
        source = node.src[0]
        name = body.names[source]
        if source.dtype.count == 1:
            return name
        lanes = [f"{name}.v[{lane}]" for lane in node.arg]
        return lanes[0] if node.dtype.count == 1 else self._lanes(body, node.dtype, lanes)

    def _cat(self, body: CudaBody, node: UOp) -> str:
        lanes = []
        for source in node.src:
            name, count = body.names[source], source.dtype.count
            lanes += [name] if count == 1 else [f"{name}.v[{lane}]" for lane in range(count)]
        return self._lanes(body, node.dtype, lanes)

    def _matrix(self, body: CudaBody, node: UOp) -> str:
        """A matrix instruction: its operands are registers of 32 bits."""
        result = body.fresh()
        body.line(f"{body.type(node.dtype)} {result};")
        a, b, c = (_registers_of(body.names[s], s.dtype) for s in node.src)
        if node.src[0].dtype.scalar() is dtypes.float32:
            rounded = body.help("to_tf32")
            a, b = ([f"{rounded}({text})" for text in part] for part in (a, b))
        outputs = [f"{result}.v[{n}]" for n in range(node.dtype.count)]
        letter = "f" if node.dtype.scalar() is dtypes.float32 else "r"
        packed = node.dtype.scalar().itemsize == 2
        if packed:
            outputs = [body.fresh("w") for _ in range(node.dtype.count // 2)]
            body.line(f"unsigned {', '.join(outputs)};")
        groups, number = [], 0
        for count in (len(outputs), len(a), len(b), len(c)):
            groups.append("{" + ", ".join(f"%{number + n}" for n in range(count)) + "}")
            number += count
        constraints = [f'"={letter}"({text})' for text in outputs]
        inputs = [f'"{letter}"({text})' for text in c]
        inputs = [f'"r"({text})' for text in (*a, *b)] + inputs
        body.line(
            f'asm("{instruction(node.arg)} {", ".join(groups)};" : {", ".join(constraints)}'
            f" : {', '.join(inputs)});"
        )
        if packed:
            for n, word in enumerate(outputs):
                body.line(f"{result}.v[{2 * n}] = (unsigned short){word};")
                body.line(f"{result}.v[{2 * n + 1}] = (unsigned short)({word} >> 16);")
        return result

    # *** control ***

    def _special(self, body: CudaBody, node: UOp) -> str:
        place = f"{_PLACES[node.arg[0]]}.{'xyz'[int(node.arg[1:])]}"
        return body.value(node.dtype, f"({body.type(node.dtype)}){place}")

    def _barrier(self, body: CudaBody, node: UOp) -> None:
        body.line("__syncthreads();")

    def _range(self, body: CudaBody, node: UOp) -> str:
        name, kind = body.fresh("i"), body.type(node.dtype)
        size = body.names[node.src[0]]
        body.line(f"for ({kind} {name} = 0; {name} < {size}; {name}++) {{")
        body.depth += 1
        return name

    def _end(self, body: CudaBody, node: UOp) -> None:
        for _ in node.src[1:]:
            body.depth -= 1
            body.line("}")

    def _if(self, body: CudaBody, node: UOp) -> None:
        body.line(f"if ({body.names[node.src[0]]}) {{")
        body.depth += 1

    def _endif(self, body: CudaBody, node: UOp) -> None:
        body.depth -= 1
        body.line("}")

    def _custom(self, body: CudaBody, node: UOp) -> str | None:
        text = node.arg.format(*(body.names[s] for s in node.src))
        if node.dtype is dtypes.void:
            body.line(text)
            return None
        return body.value(node.dtype, text)


def _element(body: CudaBody, memory: UOp) -> str:
    return body.type(memory.dtype.base)


def _registers_of(name: str, dtype: DType) -> list[str]:
    """What a lane holds, as registers: several small elements in one, the first lowest."""
    size, lanes = dtype.scalar().itemsize, [f"{name}.v[{n}]" for n in range(dtype.count)]
    if size == 4:
        return lanes
    kind = {1: "unsigned char", 2: "unsigned short"}[size]
    per = 4 // size
    return [
        " | ".join(
            f"(unsigned)({kind}){lane} << {8 * size * n}" if n else f"(unsigned)({kind}){lane}"
            for n, lane in enumerate(lanes[start : start + per])
        )
        for start in range(0, len(lanes), per)
    ]


_Rule = Callable[[CudaRenderer, CudaBody, UOp], str | None]


def _named(renderer: CudaRenderer, body: CudaBody, node: UOp) -> str:
    return body.names[node]


def _nothing(renderer: CudaRenderer, body: CudaBody, node: UOp) -> None:
    return None


_STRUCTURE: Final[dict[Ops, _Rule]] = {
    **dict.fromkeys((Ops.DEFINE_GLOBAL, Ops.DEFINE_VAR), _named),
    Ops.DEFINE_LOCAL: CudaRenderer._shared,
    Ops.DEFINE_REG: CudaRenderer._registers,
    Ops.SPECIAL: CudaRenderer._special,
    Ops.INDEX: CudaRenderer._index,
    Ops.LOAD: CudaRenderer._load,
    Ops.STORE: CudaRenderer._store,
    Ops.VECTORIZE: CudaRenderer._vectorize,
    Ops.GEP: CudaRenderer._gep,
    Ops.CAT: CudaRenderer._cat,
    Ops.WMMA: CudaRenderer._matrix,
    Ops.RANGE: CudaRenderer._range,
    Ops.END: CudaRenderer._end,
    Ops.IF: CudaRenderer._if,
    Ops.ENDIF: CudaRenderer._endif,
    Ops.BARRIER: CudaRenderer._barrier,
    Ops.CUSTOM: CudaRenderer._custom,
    Ops.CUSTOMI: CudaRenderer._custom,
    **dict.fromkeys((Ops.SINK, Ops.NOOP), _nothing),
}
