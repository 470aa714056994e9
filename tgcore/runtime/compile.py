"""From a kernel's AST to a program that a device can load, through two caches.

In memory the key is the AST itself; on disk it is everything that the result depends on: the AST's
content, the target, renderer and compiler, the settings of the optimiser, and tgcore's own sources.
A process that finds its programs on disk neither generates code nor compiles.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tgcore.codegen import lower_kernel, optimize
from tgcore.codegen.late.decompositions import decompositions
from tgcore.codegen.late.estimates import estimate
from tgcore.codegen.late.linearize import linearize
from tgcore.codegen.pipeline import OptimizedKernel
from tgcore.codegen.program import ProgramSpec
from tgcore.codegen.target import Target
from tgcore.dtype import AddrSpace
from tgcore.errors import CodegenError
from tgcore.helpers import (
    ALLOW_TF32,
    DEBUG,
    IGNORE_OOB,
    NOOPT,
    PCONTIG,
    SPEC,
    TC,
    THREADS,
    TRACE_REWRITES,
    ansistrip,
)
from tgcore.plugin import observers
from tgcore.renderer.base import Compiler, Renderer
from tgcore.runtime import diskcache, recording
from tgcore.runtime.encode import decode_program, encode_program
from tgcore.uop.encode import NotEncodable
from tgcore.uop.node import UOp, sint, to_sint
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher
from tgcore.uop.render import pyrender
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.stage import stage
from tgcore.uop.validate import validate
from tgcore.uop.verify import verify_program

if TYPE_CHECKING:
    from concurrent.futures import Executor

SETTINGS: Final = (NOOPT, PCONTIG, THREADS, TC, ALLOW_TF32)
"""The settings that change what a kernel becomes."""

# the packages whose sources decide what a kernel becomes
_SOURCES: Final = ("uop", "codegen", "renderer", "runtime/compile.py", "dtype.py", "helpers.py")

# seconds that a compiling thread may wait for this one, each time it comes back into Python
_SHORT_INTERVAL: Final = 1e-4
_MOST_PROGRAMS: Final = 4096  # kept in memory; the oldest goes first
_programs: dict[tuple[object, ...], tuple[ProgramSpec, bytes]] = {}

Job: TypeAlias = Callable[[], tuple[ProgramSpec, bytes]]
_jobs: dict[tuple[object, ...], Job] = {}  # begun by `compile_ahead`


def get_program(ast: UOp, renderer: Renderer, compiler: Compiler) -> tuple[ProgramSpec, bytes]:
    """The kernel as source with all that a launch needs, and compiled."""
    key = _key(ast, renderer, compiler)
    found = _programs.get(key)
    if found is None:
        job = _jobs.pop(key, None) or _start(ast, renderer, compiler)
        found = _programs[key] = job()
        if len(_programs) > _MOST_PROGRAMS:
            del _programs[next(iter(_programs))]
    return found


def compile_ahead(kernels: Iterable[UOp], renderer: Renderer, compiler: Compiler) -> None:
    """Begin with kernels that `get_program` will be asked for soon.

    Code is generated here, one kernel after another; meanwhile other threads compile what is ready
    (compilers spend their time outside Python).
    """
    if observers.compile_wrappers:
        return  # they need not expect threads
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SHORT_INTERVAL)
    try:
        for ast in kernels:
            key = _key(ast, renderer, compiler)
            if key not in _programs and key not in _jobs:
                _jobs[key] = _start(ast, renderer, compiler, _pool(compiler.threads))
    finally:
        sys.setswitchinterval(interval)


def _key(ast: UOp, renderer: Renderer, compiler: Compiler) -> tuple[object, ...]:
    settings = (*(setting.value for setting in SETTINGS), IGNORE_OOB.value)
    return (ast, renderer.target, renderer.cache_key, compiler.cache_key, settings)


@functools.cache
def _pool(threads: int) -> Executor:
    from concurrent.futures import ThreadPoolExecutor  # only where there is much to compile

    return ThreadPoolExecutor(threads, "tgcore-compile")


def clear_program_cache() -> None:
    """Forget the programs of this process (for tests; those on disk stay)."""
    _programs.clear()
    _jobs.clear()


def _start(ast: UOp, renderer: Renderer, compiler: Compiler, pool: Executor | None = None) -> Job:
    """Find the program on disk, or make it: what is returned gives it when called."""
    disk_key = disk_key_of(ast, renderer, compiler)
    if not _is_watched() and (data := diskcache.load(disk_key)) is not None:
        try:
            spec, binary = decode_program(data, ast)
        except ValueError:
            pass  # of no use: made anew and overwritten
        else:
            return functools.partial(_loaded, spec, binary, compiler)
    spec = make_program(ast, renderer)
    if pool is None:
        device = renderer.target.device
        result: Callable[[], bytes] = functools.partial(
            observers.compile_with_wrappers, device, spec.source, compiler.compile
        )
    else:
        result = pool.submit(compiler.compile, spec.source).result
    return functools.partial(_made, spec, result, disk_key, compiler)


def _is_watched() -> bool:
    """Whether somebody sees, verifies or records what code generation does, so that it must be
    done even if the program is on disk."""
    return DEBUG >= 5 or bool(SPEC) or not IGNORE_OOB or bool(TRACE_REWRITES) or recording.is_on()


def _loaded(spec: ProgramSpec, binary: bytes, compiler: Compiler) -> tuple[ProgramSpec, bytes]:
    _show(spec, binary, compiler)
    return spec, binary


def _made(
    spec: ProgramSpec, compiled: Callable[[], bytes], disk_key: str, compiler: Compiler
) -> tuple[ProgramSpec, bytes]:
    binary = compiled()
    if observers.program_compiled:
        observers.program_compiled(
            name=spec.name, device=spec.device, source=spec.source, binary=binary
        )
    _show(spec, binary, compiler)
    with contextlib.suppress(NotEncodable):  # rare: a symbolic size with unusual nodes
        diskcache.store(disk_key, encode_program(spec, binary))
    return spec, binary


def make_program(
    ast: UOp, renderer: Renderer, optimized: OptimizedKernel | None = None
) -> ProgramSpec:
    """Code generation, without caches and without compiling."""
    with stage(f"making a kernel for {renderer.target.device}", ast, CodegenError):
        return _make_program(ast, renderer, optimized)


def _make_program(ast: UOp, renderer: Renderer, optimized: OptimizedKernel | None) -> ProgramSpec:
    target, given = renderer.target, optimized is not None
    if optimized is None:
        optimized = optimize(ast, target)
    lowered = lower_kernel(optimized, target)
    matcher = _late_matcher(target, renderer.extra_matcher)
    graph = graph_rewrite(lowered, matcher, name="decompositions")
    if DEBUG >= 5:
        print(f"{optimized.name}: kernel\n{pyrender(ast)}")
        print(f"{optimized.name}: UOps\n{pyrender(graph)}")
    program = linearize(graph, target)
    if SPEC:
        verify_program(program, f"program {ansistrip(optimized.name)}")
    if not IGNORE_OOB:
        validate(program, ansistrip(optimized.name))
    function_name = re.sub(r"\W", "_", ansistrip(optimized.name))
    source = renderer.render(program, function_name)
    spec = describe(
        optimized, program, source=source, function_name=function_name, ast=ast, target=target
    )
    if recording.is_on():
        recording.record(spec, renderer, SETTINGS, given)
    return spec


@functools.cache
def _late_matcher(target: Target, extra: PatternMatcher | None) -> PatternMatcher:
    rules = decompositions(target)
    return rules if extra is None else rules + extra


def describe(
    optimized: OptimizedKernel,
    program: list[UOp],
    *,
    source: str,
    function_name: str,
    ast: UOp,
    target: Target,
) -> ProgramSpec:
    """All that is needed to launch a linear program."""
    specials = {u.arg: to_sint(u.src[0]) for u in program if u.op is Ops.SPECIAL}
    variables = sorted((u for u in program if u.op is Ops.DEFINE_VAR), key=lambda u: u.arg)
    return ProgramSpec(
        name=optimized.name,
        function_name=function_name,
        source=source,
        device=target.device,
        ast=ast,
        uops=tuple(program),
        globals=tuple(sorted(u.arg for u in program if u.op is Ops.DEFINE_GLOBAL)),
        outs=_accessed(program, Ops.STORE),
        ins=_accessed(program, Ops.LOAD),
        vars=tuple(variables),
        global_size=_launch_sizes(specials, "g"),
        local_size=_launch_sizes(specials, "l"),
        threads=int(specials.get("t0", 1)),
        estimates=estimate(program),
        applied_opts=optimized.opts,
    )


def _launch_sizes(specials: dict[str, sint], letter: str) -> tuple[sint, ...] | None:
    sizes = tuple(specials.get(f"{letter}{axis}", 1) for axis in range(3))
    return sizes if any(name[0] == letter for name in specials) else None


def _accessed(program: list[UOp], op: Ops) -> tuple[int, ...]:
    """The numbers of the parameters that are loaded from (or stored to)."""
    found = set()
    for node in program:
        if node.op is op:
            memory = node.src[0]
            while memory.op not in GroupOp.Define:
                memory = memory.src[0]
            if memory.dtype.addrspace is AddrSpace.GLOBAL:
                found.add(memory.arg)
    return tuple(sorted(found))


def _show(spec: ProgramSpec, binary: bytes, compiler: Compiler) -> None:
    if DEBUG >= 3:
        print(f"{spec.name}: {', '.join(map(str, spec.applied_opts)) or 'no moves'}")
    if DEBUG >= 6:
        print(f"{spec.name}: linear program")
        print(_listing(spec.uops))
    if DEBUG >= 4:
        print(spec.source)
    if DEBUG >= 7:
        print(compiler.disassemble(binary))


def _listing(nodes: Iterable[UOp]) -> str:
    """A line a node: number, op, type, numbers of the sources, argument."""
    numbers: dict[UOp, int] = {}
    lines: list[str] = []
    for node in nodes:
        numbers[node] = len(lines)
        sources = ", ".join(str(numbers.get(s, "?")) for s in node.src)
        lines.append(f"{len(lines):5d} {node.op!s:20s} {node.dtype!s:32s} [{sources}] {node.arg}")
    return "\n".join(lines)


# *** keys ***


def disk_key_of(ast: UOp, renderer: Renderer, compiler: Compiler) -> str:
    """Names everything that the program depends on; the same in every process."""
    settings = " ".join(repr(setting) for setting in SETTINGS)
    return "\n".join(
        [
            ast.key.hex(),
            target_key(renderer.target),
            renderer.cache_key,
            compiler.cache_key,
            settings,
            source_key(type(renderer)),
        ]
    )


@functools.cache
def target_key(target: Target) -> str:
    """The target as text, sets in a fixed order."""
    parts = []
    for name in target.__dataclass_fields__:
        value = getattr(target, name)
        if isinstance(value, frozenset):
            value = sorted(map(repr, value))
        parts.append(f"{name}={value!r}")
    return " ".join(parts)


@functools.cache
def source_key(renderer_type: type) -> str:
    """A hash of the sizes and times of the source files that generate code.

    Reading their contents would take longer than most kernels take from the cache.
    """
    root = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=16)
    for source in _SOURCES:
        path = root / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            _add_file(digest, file)
    for kind in renderer_type.__mro__:
        module = sys.modules.get(kind.__module__)
        if module is not None and getattr(module, "__file__", None):
            _add_file(digest, Path(str(module.__file__)))
    return digest.hexdigest()


def _add_file(digest: hashlib.blake2b, file: Path) -> None:
    try:
        status = os.stat(file)
    except OSError:  # inside a zip file, say: then the name alone must do
        digest.update(f"{file}\n".encode())
        return
    digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
