"""Random kernels x random moves: optimised or not, in each language, the numbers are the same.

    python -m tests.codegen.kernel_fuzzer --minutes 60 --seed 7

A batch of (kernel, moves) pairs is lowered, written in LLVM IR and in C, compiled with one call a
language, and run on memory with guards around it. Integers must agree with the kernel without
moves to the bit, floats up to the rounding that another order of the same sums can cause. Of some
pairs the linear program is also run by the reference interpreter. A failure is reported with the
kernel's text and the shortest list of moves that still fails.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tg_cpu import compilers, llvm
from tg_cpu.loader import LoadedCode, load_code
from tg_cpu.plugin import cpu_target

from tests.codegen.grid import grid_program
from tests.codegen.random_kernels import RandomKernel, random_kernel, random_matmul
from tgcore.codegen import Kernel, Opt, OptOps, optimize
from tgcore.codegen.late.estimates import estimate
from tgcore.codegen.lower import define_local_buffers
from tgcore.codegen.opt.tensor_core import matmuls
from tgcore.codegen.pipeline import OptimizedKernel
from tgcore.codegen.program import ProgramSpec
from tgcore.codegen.simplify import simplify_kernel
from tgcore.codegen.target import Target
from tgcore.errors import KernelOptError, TgcoreError
from tgcore.renderer.c import CRenderer
from tgcore.renderer.llvm import LLVMRenderer
from tgcore.runtime.compile import make_program
from tgcore.testing.interpreter import run_program
from tgcore.uop import AxisType
from tgcore.uop.node import infer
from tgcore.uop.render import pyrender

# copies of the body that moves may make: more take long to compile and find nothing new
_MOST_COPIES = 24
_GUARD = 64  # bytes on both sides of each buffer
_LANGUAGES = ("llvm", "c") if compilers.CCompiler().command else ("llvm",)
_TARGET = cpu_target(LLVMRenderer)
_RENDERERS = {"llvm": LLVMRenderer(_TARGET), "c": CRenderer(cpu_target(CRenderer))}


@dataclass
class Pair:
    """A kernel and moves; None: those that the heuristics choose."""

    kernel: RandomKernel
    opts: list[Opt] | None
    seed: int = 0  # of the batch
    interpret: bool = False


@dataclass
class Failure:
    """A pair whose results are wrong, or that fails on its way."""

    pair: Pair
    message: str
    shortest: list[Opt] | None = None

    def __str__(self) -> str:
        lines = [
            f"batch seed {self.pair.seed}: {self.message}",
            f"moves: {self.pair.opts}",
            f"shortest that fail: {self.shortest}",
            pyrender(self.pair.kernel.ast),
        ]
        return "\n".join(lines)


# *** random moves ***


def random_moves(
    rng: random.Random, ast: Any, most: int = 4, target: Target = _TARGET
) -> list[Opt]:
    """A list of moves that are legal for the kernel."""
    kernel = Kernel(simplify_kernel(define_local_buffers(ast)), target)
    wanted = rng.randint(1, most)
    if target.parallel_grid and rng.random() < 0.5:
        _pad_for_matrix_instructions(rng, kernel)
    for _ in range(6 * wanted):
        if len(kernel.applied) == wanted or not kernel.ranges:
            break
        before = kernel.ast
        try:
            kernel.apply(_random_move(rng, kernel))
        except KernelOptError:
            assert kernel.ast is before
            continue
        if _copies(kernel) > _MOST_COPIES:
            kernel.applied.pop()
            break
    return kernel.applied


_SHARED = (OptOps.UPCAST, OptOps.UPCAST, OptOps.UNROLL, OptOps.UNROLL, OptOps.SWAP, OptOps.PADTO)
_MOVES = (*_SHARED, OptOps.THREAD)
_GRID_MOVES = (
    *_SHARED,
    *(OptOps.LOCAL, OptOps.LOCAL, OptOps.LOCAL, OptOps.TC, OptOps.TC),
    *(OptOps.GROUP, OptOps.GROUP, OptOps.GROUP, OptOps.GROUPTOP, OptOps.GROUPTOP),
)


def _pad_for_matrix_instructions(rng: random.Random, kernel: Kernel) -> None:
    """The kernel by matrix instructions, if it is a matmul of types that there are some for."""
    cores = kernel.target.tensor_cores
    fitting = [(c, m) for c in cores for m in matmuls(kernel, c)]
    if not fitting:
        return
    core, match = rng.choice(fitting)
    for r, tile in zip(match.ranges, core.dims):
        axis = next(n for n, other in enumerate(kernel.ranges) if other.arg == r.arg)
        if (r.vmax + 1) % tile and r.vmax + 1 > tile // 4:
            kernel.apply(Opt(OptOps.PADTO, axis, tile))
    with contextlib.suppress(KernelOptError):
        kernel.apply(Opt(OptOps.TC, rng.randrange(2), cores.index(core)))


def _random_grid_move(rng: random.Random, kernel: Kernel) -> Opt:
    op = OptOps.NOLOCALS if rng.random() < 0.003 else rng.choice(_GRID_MOVES)
    kinds = {
        OptOps.UPCAST: (AxisType.GLOBAL, AxisType.LOCAL),
        OptOps.LOCAL: (AxisType.GLOBAL,),
        OptOps.UNROLL: (AxisType.REDUCE, AxisType.GROUP_REDUCE),
        OptOps.GROUP: (AxisType.REDUCE,),
        OptOps.GROUPTOP: (AxisType.REDUCE,),
    }
    axes = list(range(len(kernel.ranges)))
    if op in kinds and rng.random() < 0.95:
        axes = kernel.axes(*kinds[op]) or axes
    axis = rng.choice(axes)
    size = kernel.ranges[axis].vmax + 1
    match op:
        case OptOps.NOLOCALS:
            return Opt(op)
        case OptOps.SWAP:
            return Opt(op, axis, rng.choice(axes))
        case OptOps.PADTO:
            return Opt(op, axis, rng.choice([2, 3, 4, 5, 7, 8, 16]))
        case OptOps.TC:
            return Opt(op, rng.randrange(3))
    divisors = [d for d in range(2, size + 1) if size % d == 0]
    return Opt(op, axis, rng.choice([*divisors, 0, 2, 4]))


def _random_move(rng: random.Random, kernel: Kernel) -> Opt:
    count = len(kernel.ranges)
    if kernel.target.parallel_grid:
        return _random_grid_move(rng, kernel)
    op = rng.choice(_MOVES)
    axis = rng.randrange(count)
    match op:
        case OptOps.SWAP:
            return Opt(op, axis, rng.randrange(count))
        case OptOps.THREAD:
            return Opt(op, axis, rng.choice([0, 2, 2]))
        case OptOps.PADTO:
            return Opt(op, axis, rng.choice([2, 3, 4, 5, 7, 8, 16]))
    return Opt(op, axis, rng.choice([0, 2, 2, 3, 4, 4, 5, 6, 7, 8, 16]))


def _copies(kernel: Kernel) -> int:
    total = 1
    for r in kernel.ranges:
        if r.axis_type in (AxisType.UPCAST, AxisType.UNROLL):
            total *= r.vmax + 1
    return total


# *** from pairs to functions ***


@dataclass
class _Job:
    """A pair on its way to numbers; `base` is the same kernel without moves."""

    name: str
    pair: Pair
    base: str
    spec: ProgramSpec
    results: dict[str, dict[int, NDArray[Any]]] = field(default_factory=dict)


def _lowered(name: str, pair: Pair, base: str) -> _Job:
    made = optimize(pair.kernel.ast, _TARGET, pair.opts)
    named = OptimizedKernel(made.ast, name, made.opts, made.threads)
    return _Job(name, pair, base, make_program(pair.kernel.ast, _RENDERERS["llvm"], named))


def _source(language: str, jobs: Sequence[_Job]) -> str:
    """All kernels as one source: what several of them declare stands there once."""
    if language == "llvm":
        texts = [job.spec.source for job in jobs]
    else:
        texts = [_RENDERERS["c"].render(job.spec.uops, job.name) for job in jobs]
        zeros = r"^static const char zeros\[(\d+)\].*\n"
        sizes = [int(n) for text in texts for n in re.findall(zeros, text, re.MULTILINE)]
        texts = [re.sub(zeros, "", text, flags=re.MULTILINE) for text in texts]
        size = max([*sizes, 1])
        texts.insert(0, f"static const char zeros[{size}] __attribute__((aligned(64)));")
    shared = ("declare ", "attributes ", "typedef ", "static inline ")
    lines: dict[str, None] = {}
    for number, line in enumerate("\n".join(texts).split("\n")):
        lines[line if line.startswith(shared) else f"{line}\0{number}"] = None
    return "\n".join(line.partition("\0")[0] for line in lines)


def _compiled(language: str, source: str, level: int) -> LoadedCode:
    if language == "llvm":
        return load_code(llvm.compile_ir(source, level))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        options = [o for o in compilers._C_OPTIONS if not o.startswith("-O")]
        command = [str(compilers.CCompiler().command), *options, "-x", "c", "-"]
        command += [f"-O{level}", "-o", str(path), "-lm"]
        done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
        if b"internal compiler error" in done.stderr and not level:
            # gcc 12 cannot make 16 doubles of 16 ints for AVX-512 at -O0, which users never ask for
            return _compiled(language, source, 1)
        if done.returncode:
            raise TgcoreError(f"C does not compile:\n{done.stderr.decode()[:2000]}")
        return load_code(path.read_bytes())


def _compile_and_run(language: str, jobs: Sequence[_Job], level: int) -> Iterator[Failure]:
    """Fills in the results; jobs that do not compile are found by halving."""
    try:
        code = _compiled(language, _source(language, jobs), level)
    except (TgcoreError, RuntimeError) as error:
        if len(jobs) == 1:
            yield Failure(jobs[0].pair, f"{language}: {error}")
            return
        half = len(jobs) // 2
        yield from _compile_and_run(language, jobs[:half], level)
        yield from _compile_and_run(language, jobs[half:], level)
        return
    for job in jobs:
        function = _function(code.functions[job.name])
        try:
            job.results[language] = _run(function, job, backwards=language == "c")
        except TgcoreError as error:
            yield Failure(job.pair, f"{language}: {error}")
    code.release()


def _function(address: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(address)


def _run(function: Any, job: _Job, backwards: bool) -> dict[int, NDArray[Any]]:
    """The outputs; threads one after another, whose order must not matter."""
    kernel, spec = job.pair.kernel, job.spec
    memory = {n: _guarded(kernel.inputs[n]) for n in spec.globals}
    values = [kernel.variables[v.arg[0]] for v in spec.vars]
    addresses = [memory[n].ctypes.data + _GUARD for n in spec.globals]
    arguments = np.array([*addresses, *values], np.int64)
    threads = range(spec.threads)
    for thread in reversed(threads) if backwards else threads:
        function(arguments.ctypes.data, thread)
    found: dict[int, NDArray[Any]] = {}
    for number, raw in memory.items():
        before = kernel.inputs[number]
        content = raw[_GUARD:-_GUARD][: before.nbytes].view(before.dtype)
        guards = (raw[:_GUARD], raw[_GUARD + before.nbytes :])
        if any((guard != 0xAA).any() for guard in guards):
            raise TgcoreError(f"it writes beyond the ends of parameter {number}")
        if number in kernel.outputs:
            found[number] = content
        elif content.tobytes() != before.tobytes():
            raise TgcoreError(f"it writes to parameter {number}, which it only reads")
    return found


def _guarded(values: NDArray[Any]) -> NDArray[Any]:
    """The bytes on a 64-byte boundary, with guards on both sides."""
    size = -(-values.nbytes // 64) * 64 + 2 * _GUARD
    room = np.full(size + 64, 0xAA, np.uint8)
    start = -room.ctypes.data % 64
    raw = room[start : start + size]
    raw[_GUARD : _GUARD + values.nbytes] = values.view(np.uint8).reshape(-1)
    return raw


# *** comparing ***


def difference(found: NDArray[Any], expected: NDArray[Any], error: float) -> str | None:
    """Where arrays differ by more than both may be off; None if nowhere."""
    if found.dtype.kind in "iub":
        wrong = found != expected
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(a - b) <= 2 * error) | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    place = int(np.flatnonzero(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ: [{place}] is {found[place]}, "
        f"without moves {expected[place]}, allowed error {error}"
    )


def _compare(jobs: Sequence[_Job], bases: dict[str, _Job]) -> Iterator[Failure]:
    for job in jobs:
        if "llvm" not in bases[job.base].results:
            continue  # reported as a failure of its own
        expected = bases[job.base].results["llvm"]
        for language, results in job.results.items():
            for number, error in job.pair.kernel.outputs.items():
                text = difference(results[number], expected[number], error)
                if text is not None:
                    yield Failure(job.pair, f"{language}: parameter {number}: {text}")
        if job.pair.interpret:
            yield from _interpreted(job, expected)


def _interpreted(job: _Job, expected: dict[int, NDArray[Any]]) -> Iterator[Failure]:
    kernel = job.pair.kernel
    memory = {n: a.copy() for n, a in kernel.inputs.items()}
    try:
        counts = run_program(job.spec.uops, memory, kernel.variables)
    except TgcoreError as error:
        yield Failure(job.pair, f"interpreter: {type(error).__name__}: {error}")
        return
    for number, error in kernel.outputs.items():
        text = difference(memory[number].reshape(-1), expected[number], error)
        if text is not None:
            yield Failure(job.pair, f"interpreter: parameter {number}: {text}")
    ops = infer(estimate(job.spec.uops).ops, kernel.variables)
    if ops != counts.ops:
        yield Failure(job.pair, f"estimated {ops} operations, counted {counts.ops}")


# *** batches ***


def draw(seed: int, count: int, interpreted: int = 40, target: Target = _TARGET) -> list[Pair]:
    """So many random pairs; one of `interpreted` goes through the interpreter too."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    while len(pairs) < count:
        matmul = target.parallel_grid and rng.random() < 0.3
        kernel = random_matmul(rng) if matmul else random_kernel(rng)
        for _ in range(5):
            opts = None if rng.random() < 0.1 else random_moves(rng, kernel.ast, target=target)
            chosen = rng.randrange(interpreted) == 0
            pairs.append(Pair(kernel, opts, seed, chosen))
    return pairs[:count]


def check(pairs: Sequence[Pair], level: int = 0) -> list[Failure]:
    """Runs the pairs and the kernels without moves; what is wrong."""
    failures: list[Failure] = []
    bases: dict[str, _Job] = {}
    jobs: list[_Job] = []
    names: dict[int, str] = {}
    for number, pair in enumerate(pairs):
        try:
            base = names.get(id(pair.kernel))
            if base is None:
                base = names[id(pair.kernel)] = f"base{number}"
                bases[base] = _lowered(base, Pair(pair.kernel, [], pair.seed, number == 0), base)
            jobs.append(_lowered(f"moved{number}", pair, base))
        except Exception as error:  # whatever code generation raises is a finding
            failures.append(Failure(pair, f"code generation: {error!r}"))
    everything = [*bases.values(), *jobs]
    for language in _LANGUAGES if everything else ():
        failures += _compile_and_run(language, everything, level)
    return [*failures, *_compare(everything, bases)]


# *** kernels for a launch grid, which the interpreter runs ***


def check_on_grid(pairs: Sequence[Pair], target: Target) -> list[Failure]:
    """Runs the pairs and the kernels without moves; what is wrong. Every program is verified, and
    its accesses are proved to stay inside their memory."""
    failures: list[Failure] = []
    expected: dict[int, dict[int, NDArray[Any]]] = {}
    for pair in pairs:
        try:
            if id(pair.kernel) not in expected:
                expected[id(pair.kernel)] = _on_grid(Pair(pair.kernel, []), target)
            found = _on_grid(pair, target)
        except Exception as error:  # whatever code generation raises is a finding
            failures.append(Failure(pair, f"{type(error).__name__}: {error}"))
            continue
        for number, error in pair.kernel.outputs.items():
            text = difference(found[number], expected[id(pair.kernel)][number], error)
            if text is not None:
                failures.append(Failure(pair, f"parameter {number}: {text}"))
    return failures


def _on_grid(pair: Pair, target: Target) -> dict[int, NDArray[Any]]:
    memory = {n: a.copy() for n, a in pair.kernel.inputs.items()}
    program = grid_program(pair.kernel.ast, pair.opts, target)
    counts = run_program(program, memory, pair.kernel.variables)
    ops = infer(estimate(program).ops, pair.kernel.variables)
    if ops != counts.ops:
        raise TgcoreError(f"estimated {ops} operations, counted {counts.ops}")
    return {number: memory[number].reshape(-1) for number in pair.kernel.outputs}


def shrink_on_grid(failure: Failure, target: Target) -> Failure:
    """The failure with as few of its moves as fail."""
    opts = list(optimize(failure.pair.kernel.ast, target, failure.pair.opts).opts)
    found = True
    while found:
        found = False
        for position in range(len(opts)):
            fewer = opts[:position] + opts[position + 1 :]
            with contextlib.suppress(KernelOptError):
                optimize(failure.pair.kernel.ast, target, fewer)
                if check_on_grid([Pair(failure.pair.kernel, fewer)], target):
                    opts, found = fewer, True
                    break
    failure.shortest = opts
    return failure


def shrink(failure: Failure, level: int = 0) -> Failure:
    """The failure with the shortest list of its moves that fails: one after another is left out as
    long as there is a failure without it."""
    opts = failure.pair.opts
    if opts is None:
        opts = list(optimize(failure.pair.kernel.ast, _TARGET).opts)
        if not _fails(failure.pair, opts, level):
            return failure  # it takes loops cut in pieces
    found = True
    while found:
        found = False
        for position in range(len(opts)):
            fewer = opts[:position] + opts[position + 1 :]
            if _fails(failure.pair, fewer, level):
                opts, found = fewer, True
                break
    failure.shortest = opts
    return failure


def _fails(pair: Pair, opts: list[Opt], level: int) -> bool:
    try:
        optimize(pair.kernel.ast, _TARGET, opts)
    except KernelOptError:
        return False
    except Exception:
        return True
    return bool(check([Pair(pair.kernel, opts, pair.seed, pair.interpret)], level))


def main() -> None:
    """Batches until the time is over; prints the seed of each, so that a crash can be repeated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=100, help="in a batch")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    seed, done, failed = arguments.seed, 0, 0
    while time.monotonic() < end:
        level = (0, 0, 1, 3)[seed % 4]
        print(
            f"seed {seed}, compilers at -O{level}: {done} pairs so far, {failed} fail", flush=True
        )
        for failure in check(draw(seed, arguments.pairs), level):
            failed += 1
            print(f"\n{shrink(failure, level)}\n", flush=True)
        done += arguments.pairs
        seed += 1


if __name__ == "__main__":
    main()
