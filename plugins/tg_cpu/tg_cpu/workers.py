"""The command processor at work: its memory, and the threads parked in native code."""

from __future__ import annotations

import functools
import threading
import time
from array import array
from typing import Any, Final

from tg_cpu import processor
from tg_cpu.filecache import cached
from tg_cpu.host import allowed_processors, has_half, host_key
from tg_cpu.loader import LoadedCode, load_code
from tg_cpu.native import OWN_SYMBOLS, ffi, libc, pointer, view
from tgcore.errors import DeviceError

_RING_WORDS: Final = 1 << 18  # 2 MB
_LINE: Final = 64
_SPINS: Final = 3000  # pauses before a thread sleeps: about 50 microseconds
_HOST_SPINS: Final = 1000


class Functions:
    """The processor's native functions, as cffi calls them."""

    def __init__(self, code: LoadedCode) -> None:
        self.code = code
        self.run = self._function("run_t", "tg_run")
        self.work = self._function("run_t", "tg_work")
        self.submit = self._function("submit_t", "tg_submit")
        self.stop = self._function("stop_t", "tg_stop")
        self.wait = self._function("wait_t", "tg_wait")
        self.signal = self._function("set_t", "tg_signal")

    def _function(self, kind: str, name: str) -> Any:
        return ffi().cast(kind, self.code.functions[name])


@functools.cache
def functions() -> Functions:
    """The native functions, compiled if no cache has them."""
    source = processor.source(half=has_half())

    def compile() -> bytes:
        from tg_cpu import llvm  # slow to import, and not needed when the cache has the code

        return llvm.compile_ir(source)

    code = load_code(cached("tg-cpu-processor", f"{host_key()}\n{source}", compile))
    if has_half():
        OWN_SYMBOLS["__truncdfhf2"] = code.functions["__truncdfhf2"]
    return Functions(code)


class Processor:
    """One command processor: a ring, a thread that walks it, and `threads - 1` workers.

    Threads start with the first submission that needs them. They are daemons: what stops them at
    the end of the process is `close`. The memory they look at is never freed, as a thread that
    is in a long kernel may outlive everything else.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.native = functions()
        self.address = lasting_memory(processor.STATE_BYTES)
        self.state = pointer(self.address)
        self.ring = lasting_memory(_RING_WORDS * 8, zero=False)
        self._words = view(self.address, processor.STATE_BYTES).cast("q")
        self._spins = _SPINS if allowed_processors() > 1 else 0
        self._started: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.closed = False
        self._reset()

    @property
    def most_words(self) -> int:
        """The longest submission that the ring takes."""
        return _RING_WORDS // 4

    def submit(self, words: array[int], threads: int = 1) -> None:
        """Put packets in the ring, and see that there are threads to run them."""
        if self.closed:
            raise DeviceError("the CPU device is closed", "", "", "open it again: Device[name]")
        wanted = min(threads, self.threads)
        if len(self._started) < wanted:
            self._start(wanted)
        source = ffi().from_buffer(words)
        while not self.native.submit(self.state, source, len(words)):
            time.sleep(0.0005)  # the ring is full: the processor is far behind

    @property
    def current(self) -> int:
        """The address of the function that was started last."""
        return self._words[processor.CURRENT // 8]

    @property
    def consumed(self) -> int:
        """How many words of packets were consumed so far."""
        return self._words[processor.HEAD // 8]

    def close(self) -> bool:
        """Stop the threads; False if a kernel is still running after a while."""
        self.closed = True
        end = time.monotonic() + 2.0
        for thread in self._started:
            while thread.is_alive() and time.monotonic() < end:
                self.native.stop(self.state)
                thread.join(0.02)
        return not any(thread.is_alive() for thread in self._started)

    def forked(self) -> None:
        """In a child process: the threads are not here; new ones start when needed."""
        self._lock = threading.Lock()
        self._started = []
        self._reset()

    def _reset(self) -> None:
        for number in range(processor.STATE_BYTES // 8):
            self._words[number] = 0
        self._words[processor.RING // 8] = self.ring
        self._words[processor.RING_WORDS // 8] = _RING_WORDS
        self._words[processor.SPINS // 8] = self._spins

    def _start(self, count: int) -> None:
        with self._lock:
            while len(self._started) < count:
                body = self.native.work if self._started else self.native.run
                name = f"tg_cpu {'worker' if self._started else 'processor'}"
                thread = threading.Thread(target=body, args=(self.state,), name=name, daemon=True)
                thread.start()
                self._started.append(thread)


def lasting_memory(nbytes: int, *, zero: bool = True) -> int:
    """Memory on cache lines of its own, that is never freed."""
    memory = libc().aligned_alloc(_LINE, nbytes)
    if memory == ffi().NULL:
        raise MemoryError(f"no {nbytes} bytes for the command processor")
    if zero:
        ffi().memmove(memory, bytes(nbytes), nbytes)
    return int(ffi().cast("uintptr_t", memory))


def host_wait(address: int, value: int, seconds: float) -> bool:
    """Wait on a signal from the host: spin shortly, then sleep for at most so long."""
    return bool(functions().wait(pointer(address), value, _host_spins(), int(seconds * 1e9)))


@functools.cache
def _host_spins() -> int:
    return _HOST_SPINS if allowed_processors() > 1 else 0
