"""Running schedules: counters, the lines of DEBUG, events."""

import re

import numpy as np
import pytest

from tests.runtime.graphs import DEVICE, memory, realize, schedule, tensor, values_of
from tgcore.dtype import dtypes
from tgcore.errors import TgcoreError
from tgcore.helpers import Context, ansilen, ansistrip
from tgcore.plugin import observers
from tgcore.runtime import execute
from tgcore.runtime.counters import GlobalCounters
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


def test_counters():
    a = tensor(np.ones(1000, "f"))
    GlobalCounters.reset()
    realize(a * 2.0 + 1.0)
    assert GlobalCounters.kernel_count == 1
    assert GlobalCounters.global_ops == 2000
    assert GlobalCounters.global_mem == 8000
    assert GlobalCounters.mem_used > 0


def test_memory_of_dead_nodes_is_freed():
    a = tensor(np.ones(1 << 18, "f"))
    before = GlobalCounters.mem_used
    (out,) = realize(a + 1.0)
    assert GlobalCounters.mem_used == before + (1 << 20)
    del out
    assert GlobalCounters.mem_used == before
    count = len(execute.buffers)
    del a
    assert len(execute.buffers) == count - 1


LINE = re.compile(
    r"\*\*\* CPU +\d+ \S.{43} arg +\d+ mem +\d+\.\d\d GB tm +[\d.]+(us|ms|s )/ +[\d.]+ms "
    r"\( *[\d.]+ GFLOPS +[\d.]+\|[\d.]+ +GB/s\)"
)


def test_a_line_a_kernel(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    a = tensor(np.ones((32, 16), "f"))
    with Context(DEBUG=2):
        realize(a * 7.0 + 1.5)
        realize(a * 7.0 + 1.5)
    lines = [t for t in capsys.readouterr().out.splitlines() if "***" in t]
    assert len(lines) == 2
    assert all(LINE.match(ansistrip(line)) for line in lines), lines
    assert lines[0].startswith("\x1b[32m***")  # a first run is green
    assert lines[1].startswith("***")
    assert ansilen(lines[0]) != len(lines[0])


def test_no_color(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    a = tensor(np.ones((32, 16), "f"))
    with Context(DEBUG=2):
        realize(a * 7.0 + 2.5)
    assert "\x1b" not in capsys.readouterr().out


def test_source_is_shown(capsys):
    a = tensor(np.ones((32, 16), "f"))
    with Context(DEBUG=4):
        realize(a * 7.0 + 3.5)
    assert "void E_32_16" in capsys.readouterr().out.replace("@", "")


SHOWN = {  # from this level on, of a kernel that is new
    3: r": Opt\(OptOps\.",
    4: r"\bvoid ",  # the source of a function
    5: r"\nresult = ",
    6: r": linear program\n",
    7: r"\n.*\bretq?\s*\n",
}


def test_each_level_shows_what_it_promises_beside_what_those_below_show(capsys):
    a = tensor(np.ones((32, 64), "f"))
    for level in range(2, 8):
        with Context(DEBUG=level):
            realize(a * 7.0 + 100.5 + level)
        text = ansistrip(capsys.readouterr().out)
        assert [n for n, part in SHOWN.items() if re.search(part, text)] == [
            n for n in SHOWN if n <= level
        ]


def test_large_numbers_are_shown_in_larger_units(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    execute.report("X", "name", 3, 1e-3, (10**12, 10**11, 10**11))
    assert "TFLOPS" in capsys.readouterr().out
    execute.report("X", "name", 3, 1e-3, (1, 10**11, 10**11), metadata=("sum", "mul"))
    text = capsys.readouterr().out
    assert "TB/s" in text
    assert text.endswith("sum mul\n")


def test_events():
    launched = []
    a = tensor(np.ones(8, "f"))
    with observers.listen(observers.kernel_launched, lambda **facts: launched.append(facts)):
        realize(a + 9.0)
    assert [fact["device"] for fact in launched] == [DEVICE]
    assert len(launched[0]["buffers"]) == 2


def test_variables():
    n = UOp.variable("n", 1, 100)
    a = tensor(np.ones(8, np.int32))
    for value in (3, 5):
        (out,) = realize(a + n.bind(value).cast(a.dtype))
        assert (values_of(out) == 1 + value).all()


def test_views_share_memory():
    a = tensor(np.arange(8, dtype="f"))
    view = UOp(Ops.BUFFER_VIEW, a.dtype, (a.base,), (4, 16))
    buffer = execute.buffer_of(view)
    assert buffer.base is memory(a)
    assert buffer.numpy().tolist() == [4, 5, 6, 7]


def test_wrong_item_is_an_error():
    made, _ = schedule(tensor(np.ones(4, "f")) + 1.0)
    item = made.items[0]
    with pytest.raises(TgcoreError):
        execute.run([type(item)(UOp.const(dtypes.int32, 1), item.buffers)])
