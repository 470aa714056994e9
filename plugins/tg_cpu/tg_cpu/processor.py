"""The native command processor: LLVM IR text, compiled once a machine.

It is the CPU's "hardware". One thread runs `tg_run`: it walks a ring of packets, 64-bit words that
start with `op | words << 8`:

    SKIP                            nothing (the end of the ring)
    EXEC function threads args...   call function(&args, thread) for each thread
    COPY dest source bytes
    SIGNAL signal value
    WAIT signal value
    TIMESTAMP address               nanoseconds of the monotonic clock

Threads in `tg_work` take part in EXECs of more than one thread. All wait by spinning for a short
while, then by futex. A signal is 32 bytes: value, timestamp, number of sleeping waiters.

How an EXEC is shared: its `ticket` holds (sequence number, threads, next thread) in one word; a
worker claims a thread by compare-and-swap. Whoever succeeds knows that the EXEC cannot be over
before its thread is, so function and args are stable to read after, and only after, the claim.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

SKIP, EXEC, COPY, SIGNAL, WAIT, TIMESTAMP = range(6)

SIGNAL_BYTES: Final = 32
STATE_BYTES: Final = 512

# byte offsets in the state; what different threads write lies on different cache lines
RING: Final = 0
RING_WORDS: Final = 8
SPINS: Final = 16
TAIL: Final = 64  # words ever written to the ring
HEAD: Final = 128  # words ever consumed
CURRENT: Final = 136  # the function that runs
STOP: Final = 192
ASLEEP: Final = 196  # 1 while the processor sleeps
TICKET: Final = 256  # next thread: 16 bits, threads: 16 bits, sequence number: 32 bits
FUNCTION: Final = 264
ARGS: Final = 272
REMAINING: Final = 320
JOINING: Final = 324  # 1 while the processor sleeps until the threads are done
IDLE: Final = 384  # workers that sleep

_PAUSE: Final = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}
_FUTEX_NUMBER: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

# futex: WAIT_PRIVATE = 128, WAKE_PRIVATE = 129
_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @sleep_on(ptr %address, i32 %expected, i64 %ns) noinline {
  %time = alloca [2 x i64]
  %seconds = udiv i64 %ns, 1000000000
  %rest = urem i64 %ns, 1000000000
  store i64 %seconds, ptr %time
  %second = getelementptr i64, ptr %time, i64 1
  store i64 %rest, ptr %second
  %value = zext i32 %expected to i64
  call i64 (i64, ...) @syscall(i64 NUMBER, ptr %address, i64 128, i64 %value, ptr %time, i64 0)
  ret void
}

define internal void @wake(ptr %address, i32 %count) noinline {
  %number = zext i32 %count to i64
  call i64 (i64, ...) @syscall(i64 NUMBER, ptr %address, i64 129, i64 %number, i64 0, i64 0, i64 0)
  ret void
}
"""

# where there is no futex: sleep for 50 microseconds and look again
_NO_FUTEX = """
declare i32 @usleep(i32)

define internal void @sleep_on(ptr %address, i32 %expected, i64 %ns) noinline {
  %ignored = call i32 @usleep(i32 50)
  ret void
}

define internal void @wake(ptr %address, i32 %count) {
  ret void
}
"""

_COMMON = """
declare i32 @clock_gettime(i32, ptr)
declare ptr @memcpy(ptr, ptr, i64)

define internal void @pause() alwaysinline {
  call void asm sideeffect "PAUSE", "~{memory}"()
  ret void
}

; *** signals ***

define i32 @tg_wait(ptr %signal, i64 %value, i64 %spins, i64 %ns) {
entry:
  %waiters = getelementptr i8, ptr %signal, i64 16
  br label %spin
spin:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  %seen = load atomic i64, ptr %signal acquire, align 8
  %there = icmp uge i64 %seen, %value
  br i1 %there, label %yes, label %more
more:
  %enough = icmp uge i64 %i, %spins
  br i1 %enough, label %doze, label %again
again:
  call void @pause()
  %i1 = add i64 %i, 1
  br label %spin
doze:
  %before = atomicrmw add ptr %waiters, i32 1 seq_cst
  %seen2 = load atomic i64, ptr %signal seq_cst, align 8
  %there2 = icmp uge i64 %seen2, %value
  br i1 %there2, label %up, label %down
down:
  %low = trunc i64 %seen2 to i32
  call void @sleep_on(ptr %signal, i32 %low, i64 %ns)
  br label %up
up:
  %after = atomicrmw sub ptr %waiters, i32 1 seq_cst
  %seen3 = load atomic i64, ptr %signal acquire, align 8
  %there3 = icmp uge i64 %seen3, %value
  br i1 %there3, label %yes, label %no
yes:
  ret i32 1
no:
  ret i32 0
}

define void @tg_signal(ptr %signal, i64 %value) {
  store atomic i64 %value, ptr %signal seq_cst, align 8
  %place = getelementptr i8, ptr %signal, i64 16
  %waiters = load atomic i32, ptr %place seq_cst, align 4
  %any = icmp ne i32 %waiters, 0
  br i1 %any, label %rouse, label %done
rouse:
  call void @wake(ptr %signal, i32 2147483647)
  br label %done
done:
  ret void
}

define internal void @stamp(ptr %address) {
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %scaled = mul i64 %seconds, 1000000000
  %ns = add i64 %scaled, %rest
  store atomic i64 %ns, ptr %address release, align 8
  ret void
}

; *** the host's side ***

define i32 @tg_submit(ptr %state, ptr %words, i64 %count) {
entry:
  %ring_at = getelementptr i8, ptr %state, i64 RING_
  %ring = load ptr, ptr %ring_at
  %size_at = getelementptr i8, ptr %state, i64 RING_WORDS_
  %size = load i64, ptr %size_at
  %tail_at = getelementptr i8, ptr %state, i64 TAIL_
  %tail = load i64, ptr %tail_at
  %head_at = getelementptr i8, ptr %state, i64 HEAD_
  %head = load atomic i64, ptr %head_at acquire, align 8
  %mask = sub i64 %size, 1
  %position = and i64 %tail, %mask
  %room = sub i64 %size, %position
  %wraps = icmp ult i64 %room, %count
  %pad = select i1 %wraps, i64 %room, i64 0
  %need = add i64 %count, %pad
  %used = sub i64 %tail, %head
  %free = sub i64 %size, %used
  %full = icmp ult i64 %free, %need
  br i1 %full, label %no, label %fits
no:
  ret i32 0
fits:
  br i1 %wraps, label %skip, label %write
skip:
  %skip_at = getelementptr i64, ptr %ring, i64 %position
  %skip_size = shl i64 %pad, 8
  store i64 %skip_size, ptr %skip_at
  br label %write
write:
  %start = select i1 %wraps, i64 0, i64 %position
  %to = getelementptr i64, ptr %ring, i64 %start
  %bytes = shl i64 %count, 3
  %ignored = call ptr @memcpy(ptr %to, ptr %words, i64 %bytes)
  %tail1 = add i64 %tail, %need
  store atomic i64 %tail1, ptr %tail_at seq_cst, align 8
  call void @ring_bell(ptr %state)
  ret i32 1
}

define internal void @ring_bell(ptr %state) {
  %asleep_at = getelementptr i8, ptr %state, i64 ASLEEP_
  %asleep = load atomic i32, ptr %asleep_at seq_cst, align 4
  %is = icmp ne i32 %asleep, 0
  br i1 %is, label %rouse, label %done
rouse:
  store atomic i32 0, ptr %asleep_at seq_cst, align 4
  call void @wake(ptr %asleep_at, i32 1)
  br label %done
done:
  ret void
}

define void @tg_stop(ptr %state) {
  %stop_at = getelementptr i8, ptr %state, i64 STOP_
  store atomic i32 1, ptr %stop_at seq_cst, align 4
  call void @ring_bell(ptr %state)
  %sequence_at = getelementptr i8, ptr %state, i64 SEQUENCE_
  call void @wake(ptr %sequence_at, i32 2147483647)
  ret void
}

; *** the processor ***

define i32 @tg_run(ptr %state) {
entry:
  %tail_at = getelementptr i8, ptr %state, i64 TAIL_
  %head_at = getelementptr i8, ptr %state, i64 HEAD_
  %stop_at = getelementptr i8, ptr %state, i64 STOP_
  %asleep_at = getelementptr i8, ptr %state, i64 ASLEEP_
  %ring_at = getelementptr i8, ptr %state, i64 RING_
  %ring = load ptr, ptr %ring_at
  %size_at = getelementptr i8, ptr %state, i64 RING_WORDS_
  %size = load i64, ptr %size_at
  %mask = sub i64 %size, 1
  %spins_at = getelementptr i8, ptr %state, i64 SPINS_
  %spins = load i64, ptr %spins_at
  br label %look
look:
  %tail = load atomic i64, ptr %tail_at acquire, align 8
  %head = load i64, ptr %head_at
  %empty = icmp eq i64 %tail, %head
  br i1 %empty, label %idle, label %walk
idle:
  %i = phi i64 [ 0, %look ], [ %i1, %again ]
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %peek
peek:
  %tail1 = load atomic i64, ptr %tail_at acquire, align 8
  %still = icmp eq i64 %tail1, %head
  br i1 %still, label %patience, label %look
patience:
  %enough = icmp uge i64 %i, %spins
  br i1 %enough, label %doze, label %again
again:
  call void @pause()
  %i1 = add i64 %i, 1
  br label %idle
doze:
  store atomic i32 1, ptr %asleep_at seq_cst, align 4
  %tail2 = load atomic i64, ptr %tail_at seq_cst, align 8
  %nothing = icmp eq i64 %tail2, %head
  %stop2 = load atomic i32, ptr %stop_at seq_cst, align 4
  %going = icmp eq i32 %stop2, 0
  %may = and i1 %nothing, %going
  br i1 %may, label %down, label %up
down:
  call void @sleep_on(ptr %asleep_at, i32 1, i64 10000000000)
  br label %up
up:
  store atomic i32 0, ptr %asleep_at seq_cst, align 4
  br label %look

walk:
  %position = and i64 %head, %mask
  %packet = getelementptr i64, ptr %ring, i64 %position
  %header = load i64, ptr %packet
  %words = lshr i64 %header, 8
  %op = and i64 %header, 255
  %p1 = getelementptr i64, ptr %packet, i64 1
  %p2 = getelementptr i64, ptr %packet, i64 2
  %p3 = getelementptr i64, ptr %packet, i64 3
  switch i64 %op, label %next [
    i64 1, label %exec
    i64 2, label %copy
    i64 3, label %signal
    i64 4, label %wait
    i64 5, label %timestamp
  ]
exec:
  %function = load ptr, ptr %p1
  %threads = load i64, ptr %p2
  %current_at = getelementptr i8, ptr %state, i64 CURRENT_
  store atomic ptr %function, ptr %current_at monotonic, align 8
  %single = icmp ule i64 %threads, 1
  br i1 %single, label %alone, label %together
alone:
  call void %function(ptr %p3, i32 0)
  br label %next
together:
  call void @share(ptr %state, ptr %function, ptr %p3, i64 %threads)
  br label %next
copy:
  %dest = load ptr, ptr %p1
  %source = load ptr, ptr %p2
  %bytes = load i64, ptr %p3
  %ignored = call ptr @memcpy(ptr %dest, ptr %source, i64 %bytes)
  br label %next
signal:
  %target = load ptr, ptr %p1
  %value = load i64, ptr %p2
  ; the ring's space is free before the signal: who waits for it may stop the processor
  %ahead = add i64 %head, %words
  store atomic i64 %ahead, ptr %head_at release, align 8
  call void @tg_signal(ptr %target, i64 %value)
  br label %look
wait:
  %awaited = load ptr, ptr %p1
  %least = load i64, ptr %p2
  %reached = call i32 @tg_wait(ptr %awaited, i64 %least, i64 %spins, i64 10000000)
  %passed = icmp ne i32 %reached, 0
  br i1 %passed, label %next, label %hold
hold:
  %stop3 = load atomic i32, ptr %stop_at acquire, align 4
  %stopped3 = icmp ne i32 %stop3, 0
  br i1 %stopped3, label %out, label %wait
timestamp:
  %place = load ptr, ptr %p1
  call void @stamp(ptr %place)
  br label %next
next:
  %head1 = add i64 %head, %words
  store atomic i64 %head1, ptr %head_at release, align 8
  br label %look
out:
  ret i32 0
}

; *** one EXEC on several threads ***

define internal i32 @take_one(ptr %state) {
entry:
  %ticket_at = getelementptr i8, ptr %state, i64 TICKET_
  br label %try
try:
  %ticket = load atomic i64, ptr %ticket_at acquire, align 8
  %next = and i64 %ticket, 65535
  %shifted = lshr i64 %ticket, 16
  %threads = and i64 %shifted, 65535
  %open = icmp ult i64 %next, %threads
  br i1 %open, label %claim, label %none
claim:
  %wanted = add i64 %ticket, 1
  %result = cmpxchg ptr %ticket_at, i64 %ticket, i64 %wanted seq_cst acquire
  %won = extractvalue { i64, i1 } %result, 1
  br i1 %won, label %work, label %try
work:
  %function_at = getelementptr i8, ptr %state, i64 FUNCTION_
  %function = load ptr, ptr %function_at
  %args_at = getelementptr i8, ptr %state, i64 ARGS_
  %args = load ptr, ptr %args_at
  %thread = trunc i64 %next to i32
  call void %function(ptr %args, i32 %thread)
  %remaining_at = getelementptr i8, ptr %state, i64 REMAINING_
  %before = atomicrmw sub ptr %remaining_at, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %tell, label %did
tell:
  %joining_at = getelementptr i8, ptr %state, i64 JOINING_
  %joining = load atomic i32, ptr %joining_at seq_cst, align 4
  %asleep = icmp ne i32 %joining, 0
  br i1 %asleep, label %rouse, label %did
rouse:
  call void @wake(ptr %remaining_at, i32 1)
  br label %did
did:
  ret i32 1
none:
  ret i32 0
}

define internal void @share(ptr %state, ptr %function, ptr %args, i64 %threads) {
entry:
  %function_at = getelementptr i8, ptr %state, i64 FUNCTION_
  store ptr %function, ptr %function_at
  %args_at = getelementptr i8, ptr %state, i64 ARGS_
  store ptr %args, ptr %args_at
  %remaining_at = getelementptr i8, ptr %state, i64 REMAINING_
  %count = trunc i64 %threads to i32
  store atomic i32 %count, ptr %remaining_at seq_cst, align 4
  %ticket_at = getelementptr i8, ptr %state, i64 TICKET_
  %old = load i64, ptr %ticket_at
  %sequence = lshr i64 %old, 32
  %sequence1 = add i64 %sequence, 1
  %high = shl i64 %sequence1, 32
  %middle = shl i64 %threads, 16
  %new = or i64 %high, %middle
  store atomic i64 %new, ptr %ticket_at seq_cst, align 8
  %idle_at = getelementptr i8, ptr %state, i64 IDLE_
  %idle = load atomic i32, ptr %idle_at seq_cst, align 4
  %any = icmp ne i32 %idle, 0
  br i1 %any, label %rouse, label %work
rouse:
  %sequence_at = getelementptr i8, ptr %state, i64 SEQUENCE_
  %helpers = sub i32 %count, 1
  call void @wake(ptr %sequence_at, i32 %helpers)
  br label %work
work:
  %did = call i32 @take_one(ptr %state)
  %more = icmp ne i32 %did, 0
  br i1 %more, label %work, label %join
join:
  %spins_at = getelementptr i8, ptr %state, i64 SPINS_
  %spins = load i64, ptr %spins_at
  %joining_at = getelementptr i8, ptr %state, i64 JOINING_
  br label %spin
spin:
  %i = phi i64 [ 0, %join ], [ %i1, %again ]
  %left = load atomic i32, ptr %remaining_at acquire, align 4
  %done = icmp eq i32 %left, 0
  br i1 %done, label %out, label %patience
patience:
  %enough = icmp uge i64 %i, %spins
  br i1 %enough, label %doze, label %again
again:
  call void @pause()
  %i1 = add i64 %i, 1
  br label %spin
doze:
  store atomic i32 1, ptr %joining_at seq_cst, align 4
  %left2 = load atomic i32, ptr %remaining_at seq_cst, align 4
  %done2 = icmp eq i32 %left2, 0
  br i1 %done2, label %up, label %down
down:
  call void @sleep_on(ptr %remaining_at, i32 %left2, i64 10000000)
  br label %doze
up:
  store atomic i32 0, ptr %joining_at seq_cst, align 4
  br label %out
out:
  ret void
}

define i32 @tg_work(ptr %state) {
entry:
  %stop_at = getelementptr i8, ptr %state, i64 STOP_
  %idle_at = getelementptr i8, ptr %state, i64 IDLE_
  %ticket_at = getelementptr i8, ptr %state, i64 TICKET_
  %sequence_at = getelementptr i8, ptr %state, i64 SEQUENCE_
  %spins_at = getelementptr i8, ptr %state, i64 SPINS_
  %spins = load i64, ptr %spins_at
  br label %look
look:
  %did = call i32 @take_one(ptr %state)
  %worked = icmp ne i32 %did, 0
  br i1 %worked, label %look, label %spin
spin:
  %i = phi i64 [ 0, %look ], [ %i1, %again ]
  %open = call i1 @is_open(ptr %ticket_at)
  br i1 %open, label %look, label %check
check:
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %patience
patience:
  %enough = icmp uge i64 %i, %spins
  br i1 %enough, label %doze, label %again
again:
  call void @pause()
  %i1 = add i64 %i, 1
  br label %spin
doze:
  %before = atomicrmw add ptr %idle_at, i32 1 seq_cst
  %ticket = load atomic i64, ptr %ticket_at seq_cst, align 8
  %open2 = call i1 @is_open(ptr %ticket_at)
  %stop2 = load atomic i32, ptr %stop_at seq_cst, align 4
  %stopped2 = icmp ne i32 %stop2, 0
  %busy = or i1 %open2, %stopped2
  br i1 %busy, label %up, label %down
down:
  %high = lshr i64 %ticket, 32
  %sequence = trunc i64 %high to i32
  call void @sleep_on(ptr %sequence_at, i32 %sequence, i64 1000000000)
  br label %up
up:
  %after = atomicrmw sub ptr %idle_at, i32 1 seq_cst
  br label %look
out:
  ret i32 0
}

define internal i1 @is_open(ptr %ticket_at) alwaysinline {
  %ticket = load atomic i64, ptr %ticket_at seq_cst, align 8
  %next = and i64 %ticket, 65535
  %shifted = lshr i64 %ticket, 16
  %threads = and i64 %shifted, 65535
  %open = icmp ult i64 %next, %threads
  ret i1 %open
}
"""

# What LLVM calls to round float64 to float16, which few C libraries have. Through float32, rounded
# to odd first, so that the second rounding cannot go wrong (Boldo and Melquiond, "Emulation of FMA
# and correctly rounded sums: proved algorithms using rounding to odd", 2008).
_HALF = """
define half @__truncdfhf2(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %near to i32
  %odd = trunc i32 %bits to i1
  %even = xor i1 %odd, true
  %adjust = and i1 %inexact, %even
  %absolute_x = call double @llvm.fabs.f64(double %x)
  %absolute_back = call double @llvm.fabs.f64(double %back)
  %too_big = fcmp ogt double %absolute_back, %absolute_x
  %step = select i1 %too_big, i32 -1, i32 1
  %moved = add i32 %bits, %step
  %chosen = select i1 %adjust, i32 %moved, i32 %bits
  %single = bitcast i32 %chosen to float
  %result = fptrunc float %single to half
  ret half %result
}

declare double @llvm.fabs.f64(double)
"""


def source(half: bool) -> str:
    """The processor's IR for this machine; `half`: with conversions to float16."""
    machine = platform.machine()
    number = _FUTEX_NUMBER.get(machine) if sys.platform == "linux" else None
    sleeping = _NO_FUTEX if number is None else _FUTEX.replace("NUMBER", str(number))
    text = sleeping + _COMMON.replace("PAUSE", _PAUSE.get(machine, "")) + (_HALF if half else "")
    text = text.replace("CLOCK", "1" if sys.platform == "linux" else "6")  # CLOCK_MONOTONIC
    offsets = {
        "RING_WORDS_": RING_WORDS,
        "RING_": RING,
        "SPINS_": SPINS,
        "TAIL_": TAIL,
        "HEAD_": HEAD,
        "CURRENT_": CURRENT,
        "STOP_": STOP,
        "ASLEEP_": ASLEEP,
        "SEQUENCE_": TICKET + 4,
        "TICKET_": TICKET,
        "FUNCTION_": FUNCTION,
        "ARGS_": ARGS,
        "REMAINING_": REMAINING,
        "JOINING_": JOINING,
        "IDLE_": IDLE,
    }
    for name, offset in offsets.items():
        text = text.replace(f"i64 {name}", f"i64 {offset}")
    return text
