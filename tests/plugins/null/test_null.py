"""NULL compiles and accounts, and runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tg_null import plugin

from tgcore.dtype import dtypes
from tgcore.errors import CompileError
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import CopyCall, GraphCall, ProgramCall
from tgcore.runtime.device import Device
from tgcore.testing import kernels
from tgcore.uop.ops import Ops


def device() -> plugin.NullDevice:
    opened = Device["NULL"]
    assert isinstance(opened, plugin.NullDevice)
    return opened


def test_commands_and_time_are_counted() -> None:
    null = device()
    add = kernels.elementwise(null, Ops.ADD, dtypes.float32, 4, 2)
    buffers = [Buffer("NULL", 4, dtypes.float32).ensure_allocated() for _ in range(3)]
    before, clock = null.commands["exec"], null.clock
    for _ in range(5):
        add(buffers)
    assert null.commands["exec"] == before + 5
    assert null.clock == clock + 5_000_000
    assert add(buffers, wait=True) == pytest.approx(1e-3)


def test_a_graph_takes_100_ms() -> None:
    null = device()
    assert null.graph is not None
    add = kernels.elementwise(null, Ops.ADD, dtypes.float32, 4, 2)
    a, b, c = (Buffer("NULL", 4, dtypes.float32).ensure_allocated() for _ in range(3))
    calls: list[GraphCall] = [ProgramCall(add, (a, b, c)), CopyCall(b, a)]
    graph = null.graph(null, calls * 10, {})
    before = null.commands["exec"]
    assert graph.replay([], wait=True) == pytest.approx(0.1)
    assert null.commands["exec"] == before + 10


def test_memory_costs_nothing() -> None:
    big = Buffer("NULL", 1 << 38, dtypes.uint8).ensure_allocated()
    assert device().allocator.used >= 1 << 38
    del big


def test_the_binary_is_the_source() -> None:
    compiler = plugin.NullCompiler()
    source = "define void @f() {\n  ret void\n}\n"
    binary = compiler.compile(source)
    assert binary == compiler.compile(source) and compiler.disassemble(binary) == source
    with pytest.raises(CompileError):
        device().load("f", b"something else", None)  # type: ignore[arg-type]


def test_it_is_small() -> None:
    assert len(Path(plugin.__file__).read_text().splitlines()) < 200


def test_a_first_kernel_is_quick_and_needs_no_llvm() -> None:
    code = (
        "import sys\n"
        "from tgcore.runtime.device import Device\n"
        "from tgcore.testing import kernels\n"
        "from tgcore.uop.ops import Ops\n"
        "from tgcore.dtype import dtypes\n"
        "assert Device.DEFAULT == 'NULL'\n"
        "kernels.elementwise(Device['NULL'], Ops.ADD, dtypes.float32, 4, 2)\n"
        "print('llvmlite' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NULL": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "False\n", done.stderr
