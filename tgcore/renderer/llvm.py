"""LLVM IR text: one language for many devices.

A kernel is an internal function with one `noalias` pointer a buffer, and a small exported entry
that unpacks the arguments of the device's calling convention. A target with another convention
overrides `entry`, `signature`, `special`, `barrier`, `local_memory` and `pointer_type`; one with
other memory `alignment` and `gated_load`; one with matrix instructions `matrix`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from tgcore.dtype import AddrSpace, DType, PtrDType, dtypes
from tgcore.errors import CompileError
from tgcore.renderer.base import Renderer
from tgcore.renderer.llvm_ops import (
    CODE_FOR_OP,
    LLVMBody,
    constant,
    convert,
    from_memory,
    memory_type,
    suffix,
    to_memory,
    type_name,
)
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


class LLVMRenderer(Renderer):
    """Writes a linear program as LLVM IR, for CPU-like devices.

    The entry is `void NAME(const int64_t *args, int32_t thread)`: `args` holds the addresses of
    the buffers, then the values of the variables.
    """

    code_for_op: ClassVar[Mapping[Ops, Any]] = CODE_FOR_OP

    def render(self, uops: Sequence[UOp], function_name: str) -> str:
        """The module with the kernel's two functions."""
        body = LLVMBody()
        buffers = [u for u in uops if u.op is Ops.DEFINE_GLOBAL]
        buffers.sort(key=lambda u: u.arg)
        variables = sorted((u for u in uops if u.op is Ops.DEFINE_VAR), key=lambda u: u.arg)
        self.name_parameters(body, buffers, variables)
        for node in uops:
            name = self._write(body, node)
            if name is not None:
                body.names[node] = name
        head = [*body.entry, *self._zero_memory(body)]
        signature = self.signature(function_name, buffers, variables)
        text = [
            f"{signature} {{",
            "entry:",
            *head,
            *body.lines,
            "  ret void",
            "}",
            *self.entry(function_name, buffers, variables),
            *body.declarations,
            *self.module_lines(body),
        ]
        return "\n".join(text) + "\n"

    # *** what a target may want to differ in ***

    def pointer_type(self, addrspace: AddrSpace) -> str:
        """How a pointer into an address space is written."""
        return "ptr"

    def name_parameters(
        self, body: LLVMBody, buffers: Sequence[UOp], variables: Sequence[UOp]
    ) -> None:
        """Give the parameters their names."""
        for buffer in buffers:
            body.names[buffer] = f"%data{buffer.arg}"
        for position, variable in enumerate(variables):
            body.names[variable] = f"%var{position}"

    def signature(
        self, function_name: str, buffers: Sequence[UOp], variables: Sequence[UOp]
    ) -> str:
        """The head of the function that holds the kernel's body."""
        parameters = [
            f"{self.pointer_type(AddrSpace.GLOBAL)} noalias nocapture "
            f"align {b.dtype.base.scalar().itemsize} %data{b.arg}"
            for b in buffers
        ]
        parameters += [f"{type_name(v.dtype)} %var{n}" for n, v in enumerate(variables)]
        parameters.append("i32 %thread")
        # not inlined: the parameters keep their noalias
        return f"define internal void @{function_name}.body({', '.join(parameters)}) noinline #0"

    def entry(
        self, function_name: str, buffers: Sequence[UOp], variables: Sequence[UOp]
    ) -> list[str]:
        """The exported function, which unpacks the arguments."""
        lines = [f"define void @{function_name}(ptr %args, i32 %thread) #0 {{", "entry:"]
        operands = []
        for position, node in enumerate([*buffers, *variables]):
            lines.append(f"  %p{position} = getelementptr inbounds i64, ptr %args, i64 {position}")
            kind = "ptr" if node.op is Ops.DEFINE_GLOBAL else "i64"
            lines.append(f"  %a{position} = load {kind}, ptr %p{position}, align 8")
            if kind == "i64" and type_name(node.dtype) != "i64":
                kind = type_name(node.dtype)
                lines.append(f"  %n{position} = trunc i64 %a{position} to {kind}")
                operands.append(f"{kind} %n{position}")
            else:
                operands.append(f"{kind} %a{position}")
        operands.append("i32 %thread")
        lines.append(f"  tail call void @{function_name}.body({', '.join(operands)})")
        return [*lines, "  ret void", "}"]

    def special(self, body: LLVMBody, node: UOp) -> str:
        """The position in the launch that the node names."""
        if node.arg != "t0":
            raise CompileError(f"a CPU kernel has no launch position {node.arg}")
        if type_name(node.dtype) == "i32":
            return "%thread"
        return convert(body, "%thread", dtypes.int32, node.dtype)

    def local_memory(self, body: LLVMBody, node: UOp) -> str:
        """Memory of a work group; here a group is one work item."""
        return self.register_memory(body, node)

    def register_memory(self, body: LLVMBody, node: UOp) -> str:
        """A work item's own memory: LLVM makes registers of it where it can."""
        name = body.fresh("reg")
        kind = type_name(memory_type(node.dtype.base))
        size = max(node.dtype.size, 1)
        body.entry.append(f"  {name} = alloca [{size} x {kind}], align 64")
        return name

    def barrier(self, body: LLVMBody) -> None:
        """Waits for the other work items of the group; here there are none."""

    def matrix(self, body: LLVMBody, node: UOp) -> str:
        """A matrix instruction, if the target has them."""
        raise CompileError(f"LLVM IR for {self.target.device} has no matrix instructions: {node}")

    def attributes(self, body: LLVMBody) -> dict[str, str]:
        """String attributes of the functions."""
        width = self.target.vector_bytes * 8
        vectors = {"prefer-vector-width": str(width)} if width else {}
        return {"no-trapping-math": "true", **vectors}

    def module_lines(self, body: LLVMBody) -> list[str]:
        """What follows the functions."""
        texts = [f'"{key}"="{value}"' for key, value in self.attributes(body).items()]
        return [f"attributes #0 = {{ nounwind {' '.join(texts)} }}"]

    def alignment(self, dtype: DType) -> int:
        """The alignment of a value in memory, in bytes; here vectors lie anywhere."""
        return max(dtype.scalar().itemsize, 1)

    def gated_load(self, body: LLVMBody, node: UOp, gate: UOp) -> str:
        """A load under a condition; here one of zeros where that does not hold."""
        address, other = node.src
        stored = memory_type(node.dtype)
        space = self.pointer_type(_space(address))
        zeros = self.zero_address(body, stored.itemsize)
        flag = body.names[gate]
        chosen = body.emit(f"select i1 {flag}, {space} {body.names[address]}, {space} {zeros}")
        value = self.load_from(body, node, chosen)
        if other.op is Ops.CONST and repr(other.arg) in ("0", "0.0", "False"):
            return value  # that is what was loaded
        full = type_name(node.dtype)
        return body.emit(f"select i1 {flag}, {full} {value}, {body.typed(other)}")

    def zero_address(self, body: LLVMBody, nbytes: int) -> str:
        """An address of zeros, for a gated load to read where its gate is off."""
        body.zero_bytes = max(body.zero_bytes, nbytes)
        return "%zeros"

    # *** the nodes ***

    def _write(self, body: LLVMBody, node: UOp) -> str | None:
        writer = self.code_for_op.get(node.op)
        if writer is not None:
            if node.op is Ops.CAST and isinstance(node.dtype, PtrDType):
                return body.names[node.src[0]]
            return writer(body, node)  # type: ignore[no-any-return]
        if node.op in (Ops.CONST, Ops.VCONST):
            return constant(node.arg, node.dtype)
        rule = _STRUCTURE.get(node.op)
        if rule is None:
            raise CompileError(f"LLVM IR cannot say {node.op}: {node}")
        return rule(self, body, node)

    def _zero_memory(self, body: LLVMBody) -> list[str]:
        if not body.zero_bytes:
            return []
        size = body.zero_bytes
        body.declarations["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"] = None
        return [
            f"  %zeros = alloca [{size} x i8], align 64",
            f"  call void @llvm.memset.p0.i64(ptr align 64 %zeros, i8 0, i64 {size}, i1 false)",
        ]

    def _parameter(self, body: LLVMBody, node: UOp) -> str:
        return body.names[node]

    def _index(self, body: LLVMBody, node: UOp) -> str:
        memory, index = node.src[:2]
        element = type_name(memory_type(memory.dtype.base))
        pointer = self.pointer_type(memory.dtype.addrspace)
        if index.op is Ops.CONST and index.arg == 0:
            return body.names[memory]
        return body.emit(
            f"getelementptr inbounds {element}, {pointer} {body.names[memory]}, {body.typed(index)}"
        )

    def load_from(self, body: LLVMBody, node: UOp, name: str) -> str:
        """What a load gives, from the address of that name."""
        kind, space = type_name(memory_type(node.dtype)), self.pointer_type(_space(node.src[0]))
        align = self.alignment(node.dtype)
        value = body.emit(f"load {kind}, {space} {name}, align {align}")
        return from_memory(body, value, node.dtype)

    def _load(self, body: LLVMBody, node: UOp) -> str:
        gate = gate_of(node.src[0])
        if gate is None:
            return self.load_from(body, node, body.names[node.src[0]])
        if gate.dtype.count > 1:
            return self._masked_load(body, node, gate)
        return self.gated_load(body, node, gate)

    def _masked_load(self, body: LLVMBody, node: UOp, gate: UOp) -> str:
        address, other = node.src
        stored = memory_type(node.dtype)
        kind, mask = type_name(stored), type_name(gate.dtype)
        space = self.pointer_type(_space(address))
        number = _space_number(space)
        intrinsic = f"@llvm.masked.load.{suffix(stored)}.p{number}"
        body.declarations[f"declare {kind} {intrinsic}({space}, i32, {mask}, {kind})"] = None
        other_name = to_memory(body, body.names[other], node.dtype)
        value = body.emit(
            f"call {kind} {intrinsic}({space} {body.names[address]}, "
            f"i32 {self.alignment(node.dtype)}, {mask} {body.names[gate]}, {kind} {other_name})"
        )
        return from_memory(body, value, node.dtype)

    def _store(self, body: LLVMBody, node: UOp) -> None:
        address, value = node.src[:2]
        gate = gate_of(address)
        space = self.pointer_type(_space(address))
        kind, align = type_name(memory_type(value.dtype)), self.alignment(value.dtype)
        name = to_memory(body, body.names[value], value.dtype)
        target = f"{space} {body.names[address]}"
        if gate is None:
            body.effect(f"store {kind} {name}, {target}, align {align}")
            return
        if gate.dtype.count == 1:
            raise CompileError("a store with a scalar gate must stand in IF and ENDIF")
        mask = type_name(gate.dtype)
        stored = suffix(memory_type(value.dtype))
        intrinsic = f"@llvm.masked.store.{stored}.p{_space_number(space)}"
        body.declarations[f"declare void {intrinsic}({kind}, {space}, i32, {mask})"] = None
        body.effect(
            f"call void {intrinsic}({kind} {name}, {target}, i32 {align}, "
            f"{mask} {body.names[gate]})"
        )

    def _vectorize(self, body: LLVMBody, node: UOp) -> str:
        kind, lane = type_name(node.dtype), type_name(node.dtype.scalar())
        names = [body.names[s] for s in node.src]
        if all(s is node.src[0] for s in node.src):
            first = body.emit(f"insertelement {kind} poison, {lane} {names[0]}, i64 0")
            return body.emit(
                f"shufflevector {kind} {first}, {kind} poison, <{len(names)} x i32> zeroinitializer"
            )
        vector = "poison"
        for position, name in enumerate(names):
            vector = body.emit(f"insertelement {kind} {vector}, {lane} {name}, i64 {position}")
        return vector

    def _gep(self, body: LLVMBody, node: UOp) -> str:
        source = node.src[0]
        if source.dtype.count == 1:
            return body.names[source]
        if node.dtype.count == 1:
            return body.emit(f"extractelement {body.typed(source)}, i64 {node.arg[0]}")
        return _shuffle(body, body.typed(source), type_name(source.dtype), "poison", node.arg)

    def _cat(self, body: LLVMBody, node: UOp) -> str:
        parts = [(body.names[s], s.dtype.count) for s in node.src]
        scalar = node.dtype.scalar()
        while len(parts) > 1:
            joined = [_join(body, scalar, *parts[i : i + 2]) for i in range(0, len(parts), 2)]
            parts = joined
        return parts[0][0]

    def _range(self, body: LLVMBody, node: UOp) -> str:
        size = node.src[0]
        number = body.counter = body.counter + 1
        index, kind = f"%i{number}", type_name(node.dtype)
        before = body.block
        if size.vmin < 1:
            runs = body.emit(f"icmp sgt {body.typed(size)}, 0")
            body.effect(f"br i1 {runs}, label %loop{number}, label %done{number}")
        else:
            body.effect(f"br label %loop{number}")
        body.label(f"loop{number}")
        body.lines.append(
            f"  {index} = phi {kind} [ 0, %{before} ], [ {index}.next, %latch{number} ]"
        )
        return index

    def _end(self, body: LLVMBody, node: UOp) -> None:
        for loop in node.src[1:]:
            index, kind = body.names[loop], type_name(loop.dtype)
            number = index[2:]
            body.effect(f"br label %latch{number}")
            body.label(f"latch{number}")
            body.lines.append(f"  {index}.next = add nuw nsw {kind} {index}, 1")
            body.lines.append(
                f"  {index}.more = icmp slt {kind} {index}.next, {body.names[loop.src[0]]}"
            )
            body.effect(f"br i1 {index}.more, label %loop{number}, label %done{number}")
            body.label(f"done{number}")

    def _if(self, body: LLVMBody, node: UOp) -> str:
        number = body.counter = body.counter + 1
        body.effect(f"br i1 {body.names[node.src[0]]}, label %then{number}, label %endif{number}")
        body.label(f"then{number}")
        return str(number)

    def _endif(self, body: LLVMBody, node: UOp) -> None:
        number = body.names[node.src[0]]
        body.effect(f"br label %endif{number}")
        body.label(f"endif{number}")

    def _custom(self, body: LLVMBody, node: UOp) -> str | None:
        text = node.arg.format(*(body.names[s] for s in node.src))
        if node.dtype is dtypes.void:
            body.effect(text)
            return None
        return body.emit(text)


def gate_of(address: UOp) -> UOp | None:
    """The condition under which an address may be used."""
    while address.op is Ops.CAST:
        address = address.src[0]
    return address.src[2] if address.op is Ops.INDEX and len(address.src) > 2 else None


def _space(address: UOp) -> AddrSpace:
    return address.dtype.addrspace  # type: ignore[no-any-return]


def _space_number(pointer: str) -> str:
    return pointer.partition("(")[2].rstrip(")") or "0"


def _shuffle(body: LLVMBody, left: str, kind: str, right: str, lanes: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return body.emit(f"shufflevector {left}, {kind} {right}, <{len(lanes)} x i32> <{mask}>")


def _join(
    body: LLVMBody,
    scalar: DType,
    left: tuple[str, int],
    right: tuple[str, int] | None = None,
) -> tuple[str, int]:
    if right is None:
        return left
    (a, n), (b, m) = left, right
    total = n + m
    if n == m and n > 1:
        kind = type_name(scalar.vec(n))
        return _shuffle(body, f"{kind} {a}", kind, b, range(total)), total
    full = type_name(scalar.vec(total))
    wide_a = _widen(body, scalar, a, n, total)
    wide_b = _widen(body, scalar, b, m, total)
    lanes = [*range(n), *range(total, total + m)]
    return _shuffle(body, f"{full} {wide_a}", full, wide_b, lanes), total


def _widen(body: LLVMBody, scalar: DType, name: str, count: int, total: int) -> str:
    if count == 1:
        kind, lane = type_name(scalar.vec(total)), type_name(scalar)
        return body.emit(f"insertelement {kind} poison, {lane} {name}, i64 0")
    kind = type_name(scalar.vec(count))
    lanes = [*range(count), *([0] * (total - count))]
    return _shuffle(body, f"{kind} {name}", kind, "poison", lanes)


def _nothing(renderer: LLVMRenderer, body: LLVMBody, node: UOp) -> None:
    return None


def _barrier(renderer: LLVMRenderer, body: LLVMBody, node: UOp) -> None:
    renderer.barrier(body)


_STRUCTURE: Final[dict[Ops, Callable[[LLVMRenderer, LLVMBody, UOp], str | None]]] = {
    Ops.DEFINE_GLOBAL: LLVMRenderer._parameter,
    Ops.DEFINE_VAR: LLVMRenderer._parameter,
    Ops.DEFINE_LOCAL: lambda renderer, body, node: renderer.local_memory(body, node),
    Ops.DEFINE_REG: lambda renderer, body, node: renderer.register_memory(body, node),
    Ops.SPECIAL: lambda renderer, body, node: renderer.special(body, node),
    Ops.INDEX: LLVMRenderer._index,
    Ops.LOAD: LLVMRenderer._load,
    Ops.STORE: LLVMRenderer._store,
    Ops.VECTORIZE: LLVMRenderer._vectorize,
    Ops.GEP: LLVMRenderer._gep,
    Ops.CAT: LLVMRenderer._cat,
    Ops.WMMA: lambda renderer, body, node: renderer.matrix(body, node),
    Ops.RANGE: LLVMRenderer._range,
    Ops.END: LLVMRenderer._end,
    Ops.IF: LLVMRenderer._if,
    Ops.ENDIF: LLVMRenderer._endif,
    Ops.BARRIER: _barrier,
    Ops.SINK: _nothing,
    Ops.NOOP: _nothing,
    Ops.CUSTOM: LLVMRenderer._custom,
    Ops.CUSTOMI: LLVMRenderer._custom,
}
