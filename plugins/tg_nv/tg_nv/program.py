"""Programs on a GPU: code in its memory, and the descriptor of a launch, ready but for sizes and
arguments."""

from __future__ import annotations

import struct
import weakref
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tg_nv import addresses
from tg_nv.architecture import (
    MOST_BLOCK,
    MOST_GRID,
    MOST_THREADS,
    REGISTER_UNIT,
    REGISTERS,
    WARP,
)
from tg_nv.cubin import KernelInfo, parse_cubin
from tg_nv.queue.qmd import LAYOUTS, SLOT_BYTES, QMDLayout
from tgcore.errors import CompileError, DeviceError
from tgcore.hcq.program import HCQProgram
from tgcore.hcq.queue import Words
from tgcore.hcq.symbol import Symbol, Value

if TYPE_CHECKING:
    from tg_nv.device import NVDevice
    from tgcore.codegen.program import ProgramSpec

_QMD_WORDS: Final = SLOT_BYTES // 4
_ALIGNMENT: Final = 256
_BANK_UNIT: Final = 16
_RESERVED_SHARED: Final = 0x400
_RESERVED_STACK: Final = 0x240
_STACK_TOP: Final = (1 << 24) - _RESERVED_STACK
_CTA_GRID: Final = 2  # type of descriptor
_SYSTEM_BARRIER: Final = 1  # at the end of a grid, what it wrote is seen by all
_ANY_GROUP: Final = 0x1F
_SIZES_KEPT: Final = 16  # launch sizes whose templates a program keeps


def _round_up(value: int, unit: int) -> int:
    return value + unit - 1 & -unit


class _TemplateWords(Words):
    word_type = "I"


class NVProgram(HCQProgram):
    """A kernel in the GPU's memory."""

    device: NVDevice

    def __init__(
        self, device: NVDevice, function_name: str, binary: bytes, spec: ProgramSpec
    ) -> None:
        super().__init__(device, function_name, spec)
        self.cubin = parse_cubin(binary)
        if function_name not in self.cubin.kernels:
            names = ", ".join(self.cubin.kernels)
            raise CompileError(f"the cubin has no kernel {function_name}; it has {names}")
        self.kernel = self.cubin.kernels[function_name]
        self.architecture = device.architecture
        self.layout: QMDLayout = LAYOUTS[self.architecture.qmd[0]]
        self.stack_bytes = _round_up(self.kernel.stack_bytes + _RESERVED_STACK, 32)
        self.shared_bytes = self._shared_bytes(self.kernel)
        self._check_kernel()
        device.ensure_stack(self.stack_bytes)
        self.code = device.upload(self.cubin.image, self.cubin.relocated)
        weakref.finalize(self, device.allocator.free, self.code, len(self.cubin.image))
        self._template = self._make_template()
        self._by_size: dict[tuple[tuple[int, int, int], tuple[int, int, int]], array[int]] = {}

    # *** limits ***

    def _shared_bytes(self, kernel: KernelInfo) -> int:
        if self.architecture.shared_reserve_included:
            return _round_up(max(kernel.shared_bytes, _RESERVED_SHARED), _ALIGNMENT)
        return _round_up(_RESERVED_SHARED + kernel.shared_bytes, _ALIGNMENT)

    def _check_kernel(self) -> None:
        most = self.architecture.carve_outs[-1] << 10
        if self.shared_bytes > most:
            raise self._refused(
                f"it needs {self.shared_bytes} bytes of shared memory, blocks have {most}",
                "use smaller tiles",
            )

    def check_launch(self, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """DeviceError if the kernel cannot run with these sizes."""
        kernel, threads = self.kernel, block[0] * block[1] * block[2]
        most = min(MOST_THREADS, kernel.most_threads)
        for what, sizes, limits in (("grid", grid, MOST_GRID), ("block", block, MOST_BLOCK)):
            if any(not 0 < size <= limit for size, limit in zip(sizes, limits)):
                raise self._refused(f"a {what} of {sizes} is beyond {limits}", "split it")
        if threads > most:
            why = f"a block of {block} has {threads} threads, it may have {most}"
            raise self._refused(why, "use smaller blocks")
        if kernel.required_block is not None and block != kernel.required_block:
            raise self._refused(f"its block must be {kernel.required_block}, not {block}", "")
        registers = _round_up(kernel.registers * WARP, REGISTER_UNIT) * -(-threads // WARP)
        if registers > REGISTERS:
            why = f"{threads} threads of {kernel.registers} registers do not fit in {REGISTERS}"
            raise self._refused(why, "use smaller blocks")

    def _refused(self, why: str, fix: str) -> DeviceError:
        return DeviceError(
            f"{self.device.name} cannot run {self.function_name}", self.device.provider, why, fix
        )

    # *** launches ***

    def _make_template(self) -> array[int]:
        """Descriptor and constant bank 0, with all that is the same in each launch."""
        bank_bytes = max(
            self.architecture.bank.params, self.kernel.param_base + self.kernel.param_bytes
        )
        bank = bytearray(_round_up(bank_bytes, _ALIGNMENT))
        layout = self.architecture.bank
        if layout.shared_window is not None:
            struct.pack_into("<Q", bank, layout.shared_window, addresses.SHARED_WINDOW)
        struct.pack_into("<Q", bank, layout.local_window, addresses.LOCAL_WINDOW)
        struct.pack_into("<I", bank, layout.stack_pointer, _STACK_TOP)
        words = _TemplateWords()
        words.words.frombytes(bytes(SLOT_BYTES) + bytes(bank))
        self._fill_descriptor(words, _round_up(bank_bytes, _BANK_UNIT))
        return words.words

    def _fill_descriptor(self, words: Words, bank_bytes: int) -> None:
        major, minor = self.architecture.qmd
        fields = {
            "qmd_major_version": major,
            "qmd_minor_version": minor,
            "qmd_group_id": _ANY_GROUP if major == 5 else 0,
            "qmd_type": _CTA_GRID,
            "sm_global_caching_enable": 1,
            "api_visible_call_limit": 1,
            "cwd_membar_type": _SYSTEM_BARRIER,
            "invalidate_shader_data_cache": 1,
            "sass_version": self.device.sass_version,
            "register_count": self.kernel.registers,
            "barrier_count": max(1, self.kernel.barriers),
            "constant_buffer_valid_0": 1,
            "constant_buffer_invalidate_0": 1,
            **self._shared_memory_fields(),
        }
        for name, value in fields.items():
            if name in self.layout.fields:
                self.layout.place(words, 0, name, value)
        for name, value in (
            ("shared_memory_size", self.shared_bytes),
            ("shader_local_memory_high_size", self.stack_bytes),
            ("constant_buffer_size_0", bank_bytes),
        ):
            self.layout.place_scaled(words, 0, name, value)
        self.layout.place_address(
            words, 0, "program_address", "", self.code.address + self.kernel.code_offset
        )
        for bank, (offset, nbytes) in self.kernel.banks.items():
            self.layout.place(words, 0, f"constant_buffer_valid_{bank}", 1)
            self.layout.place_scaled(words, 0, f"constant_buffer_size_{bank}", nbytes)
            at = self.code.address + offset
            self.layout.place_address(words, 0, "constant_buffer_addr", f"_{bank}", at)

    def _shared_memory_fields(self) -> dict[str, int]:
        """How much shared memory a multiprocessor is to be set to."""
        sizes = self.architecture.carve_outs
        least = next(size for size in sizes if size << 10 >= self.shared_bytes)
        return {
            "min_sm_config_shared": least // 4 + 1,
            "target_sm_config_shared": least // 4 + 1,
            "max_sm_config_shared": sizes[-1] // 4 + 1,
        }

    def write_launch(
        self,
        data: Words,
        place: Symbol,
        args: Sequence[Value],
        global_size: Sequence[Value],
        local_size: Sequence[Value],
    ) -> None:
        """Append descriptor and constant bank of a launch; they will be at `place`."""
        start = len(data.words)
        x, y, z = global_size
        symbolic = isinstance(x, Symbol) or isinstance(y, Symbol) or isinstance(z, Symbol)
        grid = (1, 1, 1) if symbolic else (x, y, z)
        data.words.extend(self._sized(grid, tuple(local_size)))  # type: ignore[arg-type]
        if symbolic:
            self._place_grid(data, start, global_size)
        self.layout.place_address(data, start, "constant_buffer_addr", "_0", place + SLOT_BYTES)
        self._write_args(data, start + _QMD_WORDS + self.kernel.param_base // 4, args)

    def _sized(self, grid: tuple[int, int, int], block: tuple[int, int, int]) -> array[int]:
        """The template with these sizes, which are checked when they are new."""
        found = self._by_size.get((grid, block))
        if found is not None:
            return found
        if any(isinstance(size, Symbol) for size in block):
            raise self._refused("the size of its blocks depends on a variable", "use NOLOCALS")
        self.check_launch(grid, block)
        words = _TemplateWords()
        words.words.extend(self._template)
        self._place_grid(words, 0, grid)
        for axis, size in enumerate(block):
            self.layout.place(words, 0, f"cta_thread_dimension{axis}", size)
            words.words[_QMD_WORDS + self.architecture.bank.block // 4 + axis] = size
        if len(self._by_size) >= _SIZES_KEPT:
            self._by_size.clear()
        self._by_size[grid, block] = words.words
        return words.words

    def _place_grid(self, data: Words, start: int, grid: Sequence[Value]) -> None:
        bank = start + _QMD_WORDS + self.architecture.bank.grid // 4
        for axis, name in enumerate(("width", "height", "depth")):
            self.layout.place(data, start, f"cta_raster_{name}", grid[axis])
            data.put(bank + axis, grid[axis])

    def _write_args(self, data: Words, base: int, args: Sequence[Value]) -> None:
        params = self.kernel.params
        if len(args) != len(params):
            why = f"it takes {len(params)} arguments, {len(args)} were given"
            raise self._refused(why, "")
        for (offset, nbytes), arg in zip(params, args):
            position = base + offset // 4
            data.put(position, arg & 0xFFFF_FFFF)
            if nbytes == 8:
                data.put(position + 1, arg >> 32 & 0xFFFF_FFFF)
