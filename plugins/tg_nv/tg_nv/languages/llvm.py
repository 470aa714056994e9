"""LLVM IR of a GPU kernel, for LLVM's NVPTX target.

Arithmetic is scalar; vectors only carry what is loaded and stored at once and what matrix
instructions take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tg_nv.languages.matrix import instruction
from tgcore.dtype import AddrSpace, DType, dtypes
from tgcore.renderer.llvm import LLVMRenderer
from tgcore.renderer.llvm_ops import LLVMBody, convert, memory_type, type_name
from tgcore.uop.node import UOp

_SPACES: Final = {
    AddrSpace.GLOBAL: "ptr addrspace(1)",
    AddrSpace.LOCAL: "ptr addrspace(3)",
    AddrSpace.REG: "ptr",
}
_PLACES: Final = {"g": "ctaid", "l": "tid"}
_MOST: Final = 1 << 31


class NVPTXRenderer(LLVMRenderer):
    """Writes a linear program as LLVM IR: one `ptx_kernel`, which CUDA would call `__global__`.

    The parameters are the buffers by number, then the variables in order.
    """

    def pointer_type(self, addrspace: AddrSpace) -> str:
        return _SPACES[addrspace]

    def signature(
        self, function_name: str, buffers: Sequence[UOp], variables: Sequence[UOp]
    ) -> str:
        parameters = [
            f"{self.pointer_type(AddrSpace.GLOBAL)} noalias "
            f"align {b.dtype.base.scalar().itemsize} %data{b.arg}"
            for b in buffers
        ]
        parameters += [f"{type_name(v.dtype)} %var{n}" for n, v in enumerate(variables)]
        return f"define ptx_kernel void @{function_name}({', '.join(parameters)}) #0"

    def entry(
        self, function_name: str, buffers: Sequence[UOp], variables: Sequence[UOp]
    ) -> list[str]:
        """There is none: the kernel itself is called."""
        return []

    def attributes(self, body: LLVMBody) -> dict[str, str]:
        return {"no-trapping-math": "true", "nvvm.maxntid": str(body.group_items)}

    def module_lines(self, body: LLVMBody) -> list[str]:
        matrix = "attributes #1 = { convergent nounwind memory(none) }"
        return [*super().module_lines(body), matrix]

    # *** positions and groups ***

    def special(self, body: LLVMBody, node: UOp) -> str:
        if node.arg[0] == "l":
            body.group_items *= int(node.src[0].arg)
        register = f"@llvm.nvvm.read.ptx.sreg.{_PLACES[node.arg[0]]}.{'xyz'[int(node.arg[1:])]}"
        body.declarations[f"declare i32 {register}()"] = None
        limit = node.vmax + 1
        bounds = f"range(i32 0, {limit}) " if limit < _MOST else ""
        name = body.emit(f"call {bounds}i32 {register}()")
        return convert(body, name, dtypes.int32, node.dtype)

    def local_memory(self, body: LLVMBody, node: UOp) -> str:
        name = f"@{body.fresh('shared')[1:]}"
        array = f"[{max(node.dtype.size, 1)} x {type_name(memory_type(node.dtype.base))}]"
        body.declarations[f"{name} = internal addrspace(3) global {array} undef, align 16"] = None
        return name

    def barrier(self, body: LLVMBody) -> None:
        body.declarations["declare void @llvm.nvvm.barrier0()"] = None
        body.effect("call void @llvm.nvvm.barrier0()")

    # *** memory ***

    def alignment(self, dtype: DType) -> int:
        """That of the whole vector: the GPU loads and stores it at once."""
        return min(16, dtype.itemsize & -dtype.itemsize)

    def gated_load(self, body: LLVMBody, node: UOp, gate: UOp) -> str:
        """A branch around the load, of which the assembler makes a predicate."""
        address, other = node.src
        body.counter += 1
        number, before = body.counter, body.block
        body.effect(f"br i1 {body.names[gate]}, label %read{number}, label %after{number}")
        body.label(f"read{number}")
        value = self.load_from(body, node, body.names[address])
        body.effect(f"br label %after{number}")
        body.label(f"after{number}")
        lanes = f"[ {value}, %read{number} ], [ {body.names[other]}, %{before} ]"
        return body.emit(f"phi {type_name(node.dtype)} {lanes}")

    # *** matrix instructions ***

    def matrix(self, body: LLVMBody, node: UOp) -> str:
        """One instruction of a warp, as inline assembly: operands are registers of 32 bits."""
        result = node.dtype
        wide = result.scalar().itemsize == 4
        letter, word = ("f", "float") if result.scalar() is dtypes.float32 else ("r", "i32")
        outputs = result.itemsize // 4
        a, b, c = node.src
        operands = [_words(body, a, "i32"), _words(body, b, "i32"), _words(body, c, word)]
        if node.arg.mantissa_bits:
            operands[:2] = [[_to_tf32(body, text) for text in part] for part in operands[:2]]
        groups, number = [], 0
        for count in (outputs, *map(len, operands)):
            groups.append("{" + ", ".join(f"${number + n}" for n in range(count)) + "}")
            number += count
        letters = [f"={letter}"] * outputs + ["r"] * (len(operands[0]) + len(operands[1]))
        constraints = ",".join([*letters, *[letter] * len(operands[2])])
        text = f'asm "{instruction(node.arg)} {", ".join(groups)};", "{constraints}"'
        given = ", ".join(name for part in operands for name in part)
        kind = f"{{{', '.join([word] * outputs)}}}"
        called = body.emit(f"call {kind} {text}({given}) #1")
        vector, full = "poison", f"<{outputs} x {word}>"
        for n in range(outputs):
            lane = body.emit(f"extractvalue {kind} {called}, {n}")
            vector = body.emit(f"insertelement {full} {vector}, {word} {lane}, i64 {n}")
        if wide:
            return vector
        return body.emit(f"bitcast {full} {vector} to {type_name(result)}")


def _to_tf32(body: LLVMBody, operand: str) -> str:
    """The bits of a float rounded to what the instruction takes of them, half away from zero."""
    text = 'asm "cvt.rna.tf32.f32 $0, $1;", "=r,r"'
    return f"i32 {body.emit(f'call i32 {text}({operand})')}"


def _words(body: LLVMBody, node: UOp, word: str) -> list[str]:
    """What a lane holds, as operands of 32 bits: several small elements in one, first lowest."""
    name, kind, count = body.names[node], type_name(node.dtype), node.dtype.itemsize // 4
    full = f"<{count} x {word}>"
    if kind != full:
        name = body.emit(f"bitcast {kind} {name} to {full}")
    return [f"{word} {body.emit(f'extractelement {full} {name}, i64 {n}')}" for n in range(count)]
