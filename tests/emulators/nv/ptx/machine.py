"""Runs kernels: blocks of threads in batches, in each of them the lowest basic block first.

Threads of a batch that stand at the same basic block run it together. Where they part, the group
at the lowest block goes first, so that the groups meet again. A group at a barrier, or at an
operation of warps, is held back until the threads that it needs are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Batch, Launch
from .faults import Hang, Index3, PtxError, SyncFault
from .flow import Block, Op, Register
from .memory import Memory, Threads
from .module import Kernel
from .syntax import Int
from .writer import EXIT

Numbers = NDArray[np.int64]
Trace = Callable[[int, int], None]  # line, number of threads

BATCH_THREADS = 1 << 15
BATCH_SHARED_BYTES = 32 << 20
BATCH_LOCAL_BYTES = 64 << 20
DEFAULT_BUDGET = 20_000_000
# once in so many turns the highest block runs, so that spinning threads starve nobody
FAIR_TURN = 64
MASK_OPERAND = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1, "bar": 0}


def run(
    kernel: Kernel,
    grid: Index3,
    block: Index3,
    params: bytes,
    memory: Memory,
    *,
    shared_bytes: int = 0,
    shared_window: int = 0x4_0000_0000,
    local_window: int = 0xFF00_0000,
    symbols: dict[str, int] | None = None,
    budget: int = DEFAULT_BUDGET,
    trace: Trace | None = None,
) -> int:
    """Runs all blocks of a grid; returns the number of instructions that were executed.

    shared_bytes: dynamic shared memory. symbols: addresses of the module's global and constant
    variables, whose contents are already in memory. budget: instructions that a batch of blocks
    may execute (an instruction for many threads counts once) before `Hang` is raised.
    """
    launch = Launch(
        kernel, grid, block, params, memory, shared_bytes, shared_window, local_window,
        symbols or {},
    )  # fmt: skip
    check_launch(launch)
    total = grid[0] * grid[1] * grid[2]
    step = blocks_per_batch(launch)
    executed = 0
    with np.errstate(all="ignore"):
        for first in range(0, total, step):
            batch = Batch(launch, first, min(step, total - first))
            executed += Scheduler(batch, budget, trace).run()
    return executed


def check_launch(launch: Launch) -> None:
    kernel = launch.kernel
    line = kernel.function.line
    if len(launch.parameters) < kernel.parameter_bytes:
        needed = kernel.parameter_bytes
        raise PtxError(f"{kernel.name} takes {needed} bytes of parameters", line)
    if launch.threads < 1 or min(launch.grid) < 1:
        raise PtxError(f"{kernel.name} is launched without threads", line)
    if kernel.max_threads is not None and launch.threads > kernel.max_threads:
        raise PtxError(f"{kernel.name} allows {kernel.max_threads} threads", line)
    if kernel.required_threads not in (None, launch.block):
        raise PtxError(f"{kernel.name} needs blocks of {kernel.required_threads}", line)


def blocks_per_batch(launch: Launch) -> int:
    """Blocks one after another where they could wait for each other, else many at once."""
    if "locks" in launch.kernel.features:
        return 1
    by_threads = BATCH_THREADS // launch.threads
    by_shared = BATCH_SHARED_BYTES // max(launch.shared_size, 1)
    by_local = BATCH_LOCAL_BYTES // max(launch.kernel.local_bytes * launch.threads, 1)
    return max(1, min(by_threads, by_shared, by_local))


class Scheduler:
    """One batch from start to end."""

    def __init__(self, batch: Batch, budget: int, trace: Trace | None) -> None:
        self.batch = batch
        self.kernel = batch.launch.kernel
        self.blocks = self.kernel.flow.blocks
        self.registers = self.kernel.initial_registers()
        self.budget = budget
        self.trace = trace
        self.executed = 0
        self.waiting: dict[int, Numbers] = {}  # threads at each basic block
        self.turn = 0

    def run(self) -> int:
        number, threads = 0, None
        while True:
            following = self.step(number, threads)
            if type(following) is int and not self.waiting:
                if following == EXIT:
                    return self.executed
                number = following
                if not self.blocks[number].sync:
                    continue
                # the group is alone, but lanes may be missing for good
                if threads is None and self.all_here(self.blocks[number]):
                    continue
            self.put(following, threads)
            chosen = self.choose()
            if chosen is None:
                return self.executed
            number, threads = chosen

    def step(self, number: int, threads: Threads) -> Any:
        block = self.blocks[number]
        self.executed += len(block.ops)
        if self.executed > self.budget:
            fault = Hang(f"more than {self.budget} instructions", block.ops[0].line)
            raise self.batch.fault(fault, 0, threads)
        if self.trace is not None:
            self.trace(block.ops[0].line, self.batch.count(threads))
        function = self.kernel.block_function(number, threads is not None)
        if threads is None:
            return function(self.batch, self.registers)
        return function(self.batch, self.registers, threads)

    def put(self, following: Any, threads: Threads) -> None:
        """Threads go to where they want to run next."""
        if type(following) is int:
            all_threads = np.arange(self.batch.n) if threads is None else threads
            following = ((following, all_threads),)
        for number, group in following:
            # who only goes on to leave is not waited for: the rest may then be all that there is
            if number == EXIT or self.blocks[number].leaves:
                continue
            there = self.waiting.get(number)
            if there is not None:
                group = np.concatenate([there, group])
                group.sort()
            self.waiting[number] = group

    def choose(self) -> tuple[int, Threads] | None:
        """The next group; None when all threads have left."""
        if not self.waiting:
            return None
        self.turn += 1
        order = sorted(self.waiting, reverse=self.turn % FAIR_TURN == 0)
        for number in order:
            group = self.waiting[number]
            block = self.blocks[number]
            if not block.sync:
                del self.waiting[number]
                return number, self.alone(group)
            chosen = group[self.ready(block, group)]
            if chosen.size:
                # more may have come while others were released
                rest = np.setdiff1d(self.waiting.pop(number), chosen)
                if rest.size:
                    self.waiting[number] = rest
                return number, self.alone(chosen)
        raise self.deadlock()

    def alone(self, group: Numbers) -> Threads:
        """None for all threads; those that have left are forgotten."""
        if self.waiting:
            return group
        if group.size < self.batch.n:
            self.batch.compact(group)
            self.registers = [r[group] if r.ndim else r for r in self.registers]
        return None

    # --- waiting for others

    def all_here(self, block: Block) -> bool:
        """May a group of all threads go on without a closer look?"""
        if block.sync == "cta":
            return len(block.ops[0].operands) == 1
        return self.batch.whole(None) and self.mask(block.ops[0], None) is None

    def mask(self, op: Op, group: Threads) -> Any:
        """The lanes that must take part, for each thread; None for all of the warp."""
        if op.op not in MASK_OPERAND:
            return None
        operand = op.operands[MASK_OPERAND[op.op]]
        if isinstance(operand, Int):
            value = np.uint32(operand.value & 0xFFFFFFFF)
        elif isinstance(operand, Register):
            register = self.registers[operand.index]
            value = (register[group] if register.ndim and group is not None else register).view(
                "u4"
            )
        else:
            raise PtxError("a mask of lanes is a register or a number", op.line)
        return None if value.ndim == 0 and value == 0xFFFFFFFF else value

    def ready(self, block: Block, group: Numbers) -> Any:
        """Which threads of a group at a synchronising block can go on?"""
        if block.sync == "cta":
            return self.ready_blocks(block, group)
        warp, lane = self.batch.warps(group)
        mask = self.mask(block.ops[0], group)
        existing = self.batch.existing_lanes(warp)
        wanted = existing if mask is None else np.broadcast_to(mask & existing, group.shape)
        own = np.uint32(1) << lane.astype(np.uint32)
        if ((wanted & own) == 0).any():
            place = int(np.argmax((wanted & own) == 0))
            fault = SyncFault("a thread is not in its own mask of lanes", block.ops[0].line)
            raise self.batch.fault(fault, place, group)
        arrived = np.zeros(int(warp[-1]) + 1, np.uint32)
        np.bitwise_or.at(arrived, warp, own)
        ready = (wanted & ~arrived[warp]) == 0
        # of groups of lanes with different masks, one at a time
        first = np.zeros(arrived.shape, np.uint32)
        first[warp[ready][::-1]] = wanted[ready][::-1]
        return ready & (wanted == first[warp])

    def barrier(self, op: Op) -> tuple[int, int | None]:
        """Number of a barrier, and of the threads that it is for, if it says so."""
        red = "red" in op.modifiers
        operands = op.operands[1:-1] if red else op.operands
        values = []
        for operand in operands:
            if isinstance(operand, Int):
                values.append(operand.value)
            elif isinstance(operand, Register) and self.registers[operand.index].ndim == 0:
                values.append(int(self.registers[operand.index]))
            else:
                raise PtxError("a barrier's number must be the same for all threads", op.line)
        return values[0], values[1] if len(values) > 1 else None

    def ready_blocks(self, block: Block, group: Numbers) -> Any:
        """Threads of thread blocks that are complete at this barrier."""
        batch, op = self.batch, block.ops[0]
        number, count = self.barrier(op)
        size = batch.blocks
        here = np.bincount(batch.blocks_of(group), minlength=size)
        alive = np.zeros(size, np.int64)
        elsewhere = np.zeros(size, np.int64)  # at the same barrier, but at another instruction
        for other, threads in self.waiting.items():
            counts = np.bincount(batch.blocks_of(threads), minlength=size)
            alive += counts
            other_op = self.blocks[other].ops[0]
            if other != block.number and self.blocks[other].sync == "cta":
                elsewhere += counts if self.barrier(other_op)[0] == number else 0
        needed = alive if count is None else np.minimum(count, alive)
        ready = here + elsewhere >= needed
        if (ready & (here > 0) & (elsewhere > 0)).any():
            self.check_divergence(block, group, ready)
        return ready[batch.blocks_of(group)]

    def check_divergence(self, block: Block, group: Numbers, ready: Any) -> None:
        """Warps may meet at different instructions, the lanes of one warp may not.

        Those that are elsewhere are let go too: their barrier is complete.
        """
        batch, op = self.batch, block.ops[0]
        number, _ = self.barrier(op)
        warps = set(batch.warps(group)[0].tolist())
        for other in list(self.waiting):
            other_block = self.blocks[other]
            if other == block.number or other_block.sync != "cta":
                continue
            if self.barrier(other_block.ops[0])[0] != number:
                continue
            threads = self.waiting[other]
            released = threads[ready[batch.blocks_of(threads)]]
            shared = warps & set(batch.warps(released)[0].tolist())
            if shared:
                lines = f"lines {op.line} and {other_block.ops[0].line}"
                fault = SyncFault(f"lanes of one warp are at different barriers, {lines}", op.line)
                raise batch.fault(fault, 0, group)
            if "red" in op.modifiers or len(other_block.ops) == 0:
                raise batch.fault(SyncFault("bar.red at different places", op.line), 0, group)
            self.release(other, released)

    def release(self, number: int, threads: Numbers) -> None:
        """Runs a block whose barrier is complete, though it is not its turn."""
        kept = np.setdiff1d(self.waiting.pop(number), threads)
        if kept.size:
            self.waiting[number] = kept
        if threads.size:
            self.put(self.step(number, threads), threads)

    def deadlock(self) -> SyncFault:
        """All groups wait for threads that have left, or that wait elsewhere."""
        waiting = []
        for number, group in sorted(self.waiting.items()):
            op = self.blocks[number].ops[0]
            waiting.append(f"{group.size} threads at line {op.line}: {op}")
        number, group = min(self.waiting.items())
        line = self.blocks[number].ops[0].line
        message = "threads wait for others that never come: " + "; ".join(waiting)
        fault = SyncFault(message, line, waiting=waiting)
        self.batch.fault(fault, 0, group)
        return fault
