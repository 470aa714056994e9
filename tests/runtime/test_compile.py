"""Programs through the caches, in memory and on disk."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.graphs import DEVICE, realize, schedule, tensor, values_of
from tgcore.codegen.program import Estimates, ProgramSpec
from tgcore.errors import CompileError
from tgcore.helpers import Context
from tgcore.runtime import compile as programs
from tgcore.runtime import diskcache, execute
from tgcore.runtime.device import Device
from tgcore.runtime.diskcache import DiskCache
from tgcore.runtime.encode import decode_program, decode_sint, encode_program, encode_sint
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """An empty disk cache."""
    cache = DiskCache(tmp_path / "programs.sqlite")
    monkeypatch.setattr(diskcache, "_cache", cache)
    with Context(SPEC=0, DEBUG=0, CACHELEVEL=1):  # others make everything anew
        yield cache


def kernel_ast(scale=3.0):
    node = tensor(np.ones(8, "f")) * scale
    return schedule(node)[0].items[-1].ast


class CountingCompiler:
    def __init__(self, compiler):
        self.compiler, self.count = compiler, 0
        self.cache_key = compiler.cache_key

    def compile(self, source):
        self.count += 1
        return self.compiler.compile(source)


def test_same_kernel_is_compiled_once(disk):
    device = Device[DEVICE]
    compiler = CountingCompiler(device.compiler)
    programs.clear_program_cache()
    ast = kernel_ast()
    first = programs.get_program(ast, device.renderer, compiler)
    assert programs.get_program(ast, device.renderer, compiler) is first
    programs.clear_program_cache()  # as a new process would find it
    spec, binary = programs.get_program(ast, device.renderer, compiler)
    assert compiler.count == 1
    assert binary == first[1]
    assert replace(spec, uops=()) == replace(first[0], uops=())


def test_settings_are_part_of_the_key(disk):
    device = Device[DEVICE]
    ast = kernel_ast()
    programs.clear_program_cache()
    plain = programs.disk_key_of(ast, device.renderer, device.compiler)
    with Context(NOOPT=1):
        assert programs.disk_key_of(ast, device.renderer, device.compiler) != plain
    other = kernel_ast(4.0)
    assert programs.disk_key_of(other, device.renderer, device.compiler) != plain


def test_junk_under_the_key_is_replaced(disk):
    device = Device[DEVICE]
    compiler = CountingCompiler(device.compiler)
    ast = kernel_ast(5.0)
    key = programs.disk_key_of(ast, device.renderer, compiler)
    for junk in (b"", b"junk", b"tgp3\xff\xff\xff\xff", b"tgp3\x02\0\0\0{}", b"tgp3\x02\0\0\0[]"):
        disk.put(key, junk)
        programs.clear_program_cache()
        compiler.count = 0
        programs.get_program(ast, device.renderer, compiler)
        assert compiler.count == 1
        programs.clear_program_cache()
        programs.get_program(ast, device.renderer, compiler)
        assert compiler.count == 1


def test_disk_key_is_the_same_in_every_process():
    code = (
        "import numpy as np\nfrom tests.runtime.test_compile import kernel_ast, programs, Device\n"
        "d = Device['CPU']\n"
        "print(hash(programs.disk_key_of(kernel_ast(), d.renderer, d.compiler)))\n"
    )
    seen = set()
    for seed in ("0", "1"):
        text = code.replace("hash(", "repr(")
        done = subprocess.run([sys.executable, "-c", text], env=_environment(seed), check=True,
                              capture_output=True, text=True)  # fmt: skip
        seen.add(done.stdout)
    assert len(seen) == 1


def _environment(seed):
    import os

    return {**os.environ, "PYTHONHASHSEED": seed, "DEBUG": "0"}


def test_program_describes_its_parameters():
    a, b = tensor(np.ones((4, 8), "f")), tensor(np.ones((4, 8), "f"))
    made, _ = schedule(a * b + a)
    device = Device[DEVICE]
    spec, _ = programs.get_program(made.items[-1].ast, device.renderer, device.compiler)
    assert spec.globals == (0, 1, 2)
    assert spec.outs == (0,)
    assert spec.ins == (1, 2)
    assert spec.estimates == Estimates(ops=64, mem=3 * 128, lds=3 * 128)


def test_symbolic_values_survive_encoding():
    n = UOp.variable("n", 1, 100)
    value = (n * 4 + 3) // 5
    assert decode_sint(encode_sint(value)) is value
    assert decode_sint(encode_sint(7)) == 7
    spec = ProgramSpec("name", "f", "source", "X", UOp.sink(), (), (0, 1), (0,), (1,), (n,),
                       (value, 1, 1), None, 1, Estimates(value, 2, 3))  # fmt: skip
    decoded, binary = decode_program(encode_program(spec, b"\0binary"), spec.ast)
    assert decoded == spec
    assert binary == b"\0binary"


def test_no_optimisation_gives_the_same_values():
    x = np.random.default_rng(0).normal(size=(16, 24)).astype("f")
    node = tensor(x).reduce_axis(Ops.ADD, (1,))
    for noopt in (0, 1):
        with Context(NOOPT=noopt):
            (out,) = realize(node)
        np.testing.assert_allclose(values_of(out), x.sum(1), rtol=1e-5)
    assert len({key[2] for key in execute._kernels}) == 2


def test_many_kernels_are_compiled_in_the_background(disk):
    programs.clear_program_cache()
    execute.clear_kernel_cache()
    arrays = [np.full(100 + n, n, "f") for n in range(6)]
    outputs = realize(*[tensor(a) * 2.5 + float(n) for n, a in enumerate(arrays)])
    assert not programs._jobs
    for number, (array, out) in enumerate(zip(arrays, outputs)):
        np.testing.assert_array_equal(values_of(out), array * 2.5 + number)


def test_an_error_in_the_background_reaches_who_needs_the_kernel(disk):
    device = Device[DEVICE]

    class Broken:
        cache_key, threads = "broken", 1

        def compile(self, source):
            raise CompileError("no such luck", source)

    good, bad = kernel_ast(6.0), kernel_ast(7.0)
    programs.compile_ahead([good, bad], device.renderer, Broken())
    for ast in (good, bad):
        with pytest.raises(CompileError, match="no such luck"):
            programs.get_program(ast, device.renderer, Broken())
    spec, _ = programs.get_program(good, device.renderer, device.compiler)
    assert spec.ast is good
