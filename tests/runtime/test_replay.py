"""Recording kernels, and making them anew from the recording."""

import gc
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.graphs import DEVICE, schedule, tensor
from tgcore import Tensor, nn
from tgcore.codegen import optimize
from tgcore.codegen.opt import Opt, OptOps
from tgcore.codegen.target import Fragment, Target, TensorCore
from tgcore.dtype import dtypes
from tgcore.helpers import Context
from tgcore.plugin import observers
from tgcore.renderer import c_ops
from tgcore.renderer.c import CRenderer
from tgcore.renderer.llvm import LLVMRenderer
from tgcore.runtime import compile as programs
from tgcore.runtime import execute, recording
from tgcore.runtime.device import Device
from tgcore.runtime.encode import decode_opts, decode_target, encode_opts, encode_target
from tgcore.runtime.replay import NoRenderer, compare, decode, make, read, renderer_for
from tgcore.runtime.replay_pool import make_all
from tgcore.uop.encode import decode_graph, encode_graph, from_text, to_text
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops

# what the tests speak of, whatever the environment asks for
DEFAULTS = {"SPEC": 0, "IGNORE_OOB": 1, "DEBUG": 0, "NOOPT": 0, "PCONTIG": 0, "THREADS": 0}


def forget():
    programs.clear_program_cache()
    execute.clear_kernel_cache()
    recording.close()


@pytest.fixture
def file(tmp_path):
    """A file that kernels are recorded in while the test runs."""
    forget()
    path = tmp_path / "kernels.sqlite"
    with Context(**DEFAULTS, PROCESS_REPLAY=str(path)):
        yield path
    forget()


def kernel_ast(scale=3.0):
    return schedule(tensor(np.ones(24, "f")) * scale)[0].items[-1].ast


def make_here(rows, given_opts=False):
    return [compare(row, made) for row, made in zip(rows, make_all(rows, given_opts, 0, 60))]


def kinds(results):
    return {result.kind for result in results}


# *** kernels of real models ***


class Attention:
    def __init__(self):
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def __call__(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out((q @ k.transpose(-1, -2)).softmax(-1) @ v)


def train(layers, x):
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=0.01)
    with Tensor.train():
        loss = (x.sequential(layers) ** 2).mean().backward()
        loss.realize(*optimizer.schedule_step())


def run_models():
    """A convolutional network and attention, trained; and kernels that are unlike them."""
    Tensor.manual_seed(1)
    convolutions = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm(4), Tensor.relu, Tensor.max_pool2d]
    train(convolutions, Tensor.randn(2, 1, 8, 8))
    train([Attention()], Tensor.randn(2, 6, 16))
    n = UOp.variable("n", 1, 8).bind(5)
    (Tensor.ones(8, 3).contiguous()[:n] * 2).sum().realize()
    Tensor.cat(Tensor.arange(40), Tensor.full((30,), 7)).pad((3, 4)).contiguous().realize()
    Tensor.cat(Tensor(np.ones((40, 3), "f")) * 2, Tensor(np.ones((30, 3), "f"))).realize()
    (Tensor.randn(9).cast("bfloat16") + float("inf")).realize()
    Tensor([1.0, -0.0, float("nan")]).where(-0.0, float("nan")).isnan().realize()
    Tensor.randn(16).sort()[0].realize()
    Tensor.arange(6).cast("uint64").idiv(3).cast("float64").sin().realize()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The rows of two renderers' kernels of the models, and the ASTs as they were scheduled."""
    forget()
    path = tmp_path_factory.mktemp("replay") / "models.sqlite"
    asts = []
    settings = {**DEFAULTS, "PROCESS_REPLAY": str(path)}

    def keep(name, device, kernel):
        asts.append(kernel)

    with Context(**settings), observers.listen(observers.kernel_scheduled, keep):
        run_models()
        target = Device[DEVICE].renderer.target
        for language in (CRenderer, LLVMRenderer):
            renderer = language(replace(target, ops=language.supported_ops()))
            for ast in asts:
                programs.make_program(ast, renderer)
    forget()
    return read(path), asts


def test_every_kernel_of_models_survives_as_data(recorded):
    rows, asts = recorded
    assert len(set(asts)) > 30
    for ast in asts:
        assert decode_graph(from_text(to_text(encode_graph(ast)))) is ast
    wanted = {to_text(encode_graph(ast)) for ast in asts}
    written = {to_text(from_text(row.kernel)["ast"]) for row in rows}
    assert wanted == written


def test_what_is_made_of_kernels_survives_as_data(recorded):
    for ast in recorded[1][::5]:
        spec = programs.make_program(ast, Device[DEVICE].renderer)
        program = UOp.sink(*spec.uops)
        assert decode_graph(from_text(to_text(encode_graph(program)))) is program


def test_nothing_differs_when_nothing_was_changed(recorded):
    rows, _ = recorded
    assert {r.kernel.count("CRenderer") > 0 for r in rows} == {True, False}
    for given_opts in (False, True):
        assert kinds(make_here(rows, given_opts)) == {"equal"}


def test_nothing_differs_in_other_processes(recorded):
    rows = recorded[0][::6]
    made = make_all(rows, False, 2, 60)
    assert kinds(compare(row, m) for row, m in zip(rows, made)) == {"equal"}


def test_kernels_whose_loops_are_cut_have_their_moves_chosen_anew(recorded):
    made = make_all(recorded[0], True, 0, 60)
    assert any(m.cut for m in made) and not all(m.cut for m in made)


def test_one_character_of_a_renderer_is_seen(recorded, monkeypatch):
    rows, _ = recorded
    table = dict(CRenderer.code_for_op)
    table[Ops.ADD] = c_ops._arithmetic("+ ", "|")
    monkeypatch.setattr(CRenderer, "code_for_op", table)
    results = make_here(rows)
    assert kinds(results) == {"equal", "source"}
    for result in results:
        if result.kind == "source":
            assert "CRenderer" in result.row.kernel
            removed = [line for line in result.diff if line[0] == "-"][1:]
            added = [line for line in result.diff if line[0] == "+"][1:]
            assert [line[1:].replace(" + ", " +  ") for line in removed] == [a[1:] for a in added]


def test_another_choice_of_the_optimiser_is_seen_and_told_apart(recorded, monkeypatch):
    rows, _ = recorded
    monkeypatch.setattr("tgcore.codegen.pipeline.optimize_by_hand", lambda kernel: None)
    results = make_here(rows)
    assert "opts" in kinds(results)
    for result in results:
        if result.kind == "opts":
            assert result.diff[:2] == ("--- opts recorded", "+++ opts now")
            assert any(line.startswith("-UPCAST axis") for line in result.diff) or any(
                line.startswith(("-UNROLL", "-THREAD", "-PADTO")) for line in result.diff
            )
    given = [r for r in make_here(rows, given_opts=True) if not r.cut]
    assert kinds(given) == {"equal"}


def test_another_launch_is_seen(recorded, monkeypatch):
    row = recorded[0][0]
    other = row._replace(launch=row.launch.replace("threads 1", "threads 7").replace("2", "3"))
    (result,) = make_here([other])
    assert result.kind == "launch" and result.diff[:2] == ("--- launch recorded", "+++ launch now")


# *** recording ***


def get(ast):
    device = Device[DEVICE]
    return programs.get_program(ast, device.renderer, device.compiler)[0]


def test_the_same_kernel_is_one_row(file):
    for _ in range(2):
        get(kernel_ast())
        get(kernel_ast(4.0))
        forget()
    assert len(read(file)) == 2


def test_a_row_says_all_that_the_kernel_was_made_from(file):
    ast = kernel_ast()
    with Context(NOOPT=1, THREADS=1):
        spec = get(ast)
    (row,) = read(file)
    found = decode(row.kernel, row.opts)
    renderer = Device[DEVICE].renderer
    assert found.ast is ast and found.target == renderer.target
    assert found.renderer == found.renderer_key == renderer.cache_key
    settings = {"NOOPT": 1, "PCONTIG": 0, "THREADS": 1, "TC": 1, "ALLOW_TF32": 0}
    assert found.settings == settings
    assert (found.opts, found.given) == ((), False)
    assert (row.source, row.device, row.provider) == (spec.source, DEVICE, "tg-cpu")
    assert kinds(make_here([row])) == {"equal"}


def test_given_moves_are_recorded_as_given(file):
    ast, renderer = kernel_ast(), Device[DEVICE].renderer
    for arg in (2, 4):
        opts = (Opt(OptOps.UPCAST, 0, arg),)
        programs.make_program(ast, renderer, optimize(ast, renderer.target, opts))
    programs.make_program(ast, renderer)
    rows = read(file)
    found = [decode(row.kernel, row.opts) for row in rows]
    assert sorted((f.given, f.opts[0].arg) for f in found if f.given) == [(True, 2), (True, 4)]
    assert len(rows) == 3 and kinds(make_here(rows)) == {"equal"}


def test_a_kernel_in_the_disk_cache_is_recorded(file):
    with Context(PROCESS_REPLAY=""):
        ast = kernel_ast(5.0)
        get(ast)
        programs.clear_program_cache()
    assert not file.exists()
    get(ast)
    assert len(read(file)) == 1


@pytest.mark.parametrize("value", ["", "0"])
def test_it_can_be_off(value, file):
    with Context(PROCESS_REPLAY=value):
        get(kernel_ast())
    assert not file.exists()


def test_record_names_the_file_in_the_cache(file, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "cache_dir", lambda: tmp_path / "cache")
    for value in ("record", "1"):
        with Context(PROCESS_REPLAY=value):
            get(kernel_ast(float(len(value))))
            forget()
    assert len(read(tmp_path / "cache" / recording.FILE)) == 2


def test_trouble_with_the_file_is_one_warning(file, capfd):
    file.write_bytes(b"something of great worth" * 100)
    for scale in (2.0, 3.0):
        get(kernel_ast(scale))
    assert capfd.readouterr().err.count("kernels are not recorded from here on") == 1
    assert file.read_bytes() == b"something of great worth" * 100


def test_a_database_of_another_kind_is_left_alone(file, capfd):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE money (amount)")
    get(kernel_ast())
    assert "holds something else" in capfd.readouterr().err
    names = sqlite3.connect(file).execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("money",)]


def test_a_full_disk_is_one_warning(file, capfd, monkeypatch):
    get(kernel_ast())
    recorder = recording._recorder(str(file))
    recorder._connection.execute("PRAGMA max_page_count=1")  # SQLite says the disk is full
    for scale in range(20, 60):
        ast = kernel_ast(float(scale))
        assert get(ast).ast is ast
    assert capfd.readouterr().err.count("disk is full") == 1
    assert len(read(file)) >= 1


@pytest.mark.parametrize("path", ["/proc/no/such/folder/file", "/"])
def test_a_file_that_cannot_be_made_is_one_warning(path, file, capfd):
    with Context(PROCESS_REPLAY=path):
        get(kernel_ast())
        get(kernel_ast(4.0))
    assert capfd.readouterr().err.count("PROCESS_REPLAY") == 1


def test_a_kernel_that_has_no_form_is_a_warning_and_the_next_is_recorded(file, capfd):
    ast, renderer = kernel_ast(), Device[DEVICE].renderer
    spec = programs.make_program(ast, renderer)
    odd = replace(spec, ast=UOp.sink(arg=object()))
    recording.record(odd, renderer, (), False)
    recording.record(replace(spec, source="\ud800"), renderer, (), True)
    assert "is not recorded: object has no form as data" in capfd.readouterr().err
    assert len(read(file)) == 1


def test_several_processes_record_into_one_file(file):
    code = (
        "import sys; from tgcore import Tensor\n"
        "for n in range(8):\n"
        "    (Tensor.ones(100 + n).contiguous() * int(sys.argv[1])).realize()\n"
        "    (Tensor.ones(200 + n).contiguous() * 3).realize()\n"
    )
    environment = {**os.environ, "PROCESS_REPLAY": str(file), "DEBUG": "0"}
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], env=environment,
                         stderr=subprocess.PIPE, text=True)
        for number in (11, 12, 13, 14)
    ]  # fmt: skip
    for process in running:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0 and errors == ""
    rows = read(file)
    assert len(rows) == 16 + 4 * 8 + 8  # the ones; the products
    assert kinds(make_here(rows[:4])) == {"equal"}


def test_a_child_process_opens_the_file_itself(file):
    get(kernel_ast())
    recorder = recording._recorder(str(file))
    before, recorder._pid = recorder._connection, -1  # as a fork would find it
    get(kernel_ast(4.0))
    assert recorder._connection is not before and len(read(file)) == 2


# *** targets, moves, renderers ***


def test_targets_and_moves_come_back():
    targets = [
        Device[DEVICE].renderer.target,
        Target("X", dtypes=frozenset({dtypes.float32, dtypes.float32.vec(4)})),
        Target("X", global_max=(1, 2, 3), local=True, masked=True, tensor_cores=(
            TensorCore((8, 8, 4), 32, dtypes.float16, dtypes.float32, Fragment("l2 l3 l4", "l0 l1"),
                       Fragment("l0 l1", "l2 l3 l4"), Fragment("l2 l3 l4", "e0 l0 l1")),)),
    ]  # fmt: skip
    for target in targets:
        assert decode_target(from_text(to_text(encode_target(target)))) == target
    opts = (Opt(OptOps.NOLOCALS), Opt(OptOps.PADTO, 3, 32))
    assert decode_opts(from_text(to_text(encode_opts(opts)))) == opts


@pytest.mark.parametrize(
    "change",
    [
        {"device": 1}, {"device": None}, {"arch": ["x"]}, {"dtypes": [["op", "ADD"]]},
        {"dtypes": "all"}, {"ops": [1]}, {"ops": [["op", "__class__"]]}, {"masked": 1},
        {"threads": True}, {"threads": 1 << 300}, {"memory_widths": [1.5]}, {"unknown": 1},
        {"memory_widths": [["op", "ADD"]]}, {"tensor_cores": [1]}, {"__class__": 1},
        {"tensor_cores": [[["tuple", 1, 2], 3, ["dtype", "half"], None]]},
    ],
)  # fmt: skip
def test_junk_is_no_target(change):
    with pytest.raises(ValueError):
        decode_target({"device": "X", **change})
    with pytest.raises(ValueError):
        decode_target([change])


@pytest.mark.parametrize(
    "data", [None, {}, [1], [[]], [["UPCAST", 0]], [["EVIL", 0, 1]], [["UPCAST", True, 1]],
             [["UPCAST", 0, 1 << 300]], [["__class__", None, None]], [[["UPCAST"], 0, 1]]],
)  # fmt: skip
def test_junk_is_no_list_of_moves(data):
    with pytest.raises(ValueError):
        decode_opts(data)


class OddRenderer(LLVMRenderer):
    def __init__(self, target, extra):
        super().__init__(target)


class KeyRenderer(LLVMRenderer):
    @property
    def cache_key(self):
        return "key with options"


def test_a_renderer_is_found_without_its_device(file):
    target = replace(Device[DEVICE].renderer.target, device="NOSUCHCHIP")
    programs.make_program(kernel_ast(), LLVMRenderer(target))
    (row,) = read(file)
    assert (row.device, row.provider) == ("NOSUCHCHIP", "")
    assert kinds(make_here([row])) == {"equal"}


def test_a_renderer_with_a_key_of_its_own_is_found(file):
    programs.make_program(kernel_ast(), KeyRenderer(Device[DEVICE].renderer.target))
    assert kinds(make_here(read(file))) == {"equal"}


@pytest.mark.parametrize(
    ("field", "name", "why"),
    [
        ("renderer", "os.system", "no back end that is installed"),
        ("renderer", "tgcore.renderer.base.Renderer", "no back end that is installed"),
        ("renderer", f"{__name__}.OddRenderer", "cannot be made from a target alone"),
        ("renderer_key", "another", "is another one"),
    ],
)
def test_a_renderer_that_is_not_here_is_said(field, name, why, file):
    get(kernel_ast())
    (row,) = read(file)
    kernel = to_text({**from_text(row.kernel), field: name})
    with pytest.raises(NoRenderer, match=why):
        renderer_for(decode(kernel, row.opts))
    (result,) = make_here([row._replace(kernel=kernel)])
    assert result.kind == "missing" and why in result.diff[0]


def test_no_name_in_the_file_is_imported(file, tmp_path, monkeypatch):
    (tmp_path / "harmful.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    get(kernel_ast())
    (row,) = read(file)
    data = from_text(row.kernel)
    data["renderer"] = data["renderer_key"] = "harmful.Renderer"
    data["target"]["device"] = "harmful"
    (result,) = make_here([row._replace(kernel=to_text(data), provider="harmful")])
    assert result.kind == "missing"
    assert "harmful" not in sys.modules and not (tmp_path / "trace").exists()


# *** kernels that are meant to do harm ***


def hostile(row, ast, **fields):
    kernel = to_text({**from_text(row.kernel), "ast": encode_graph(ast), **fields})
    return row._replace(kernel=kernel)


def store_of(value):
    memory = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 1, 0)
    return UOp.sink(memory.index(0).store(value))


def test_a_kernel_without_end_takes_no_more_than_its_time(file):
    get(kernel_ast())
    (row,) = read(file)
    huge = UOp.range(1 << 60, 0, AxisType.UNROLL)
    bomb = hostile(row, store_of(huge.cast(dtypes.int32).reduce(Ops.ADD, huge)))
    slow, good = make_all([bomb, row], False, 1, 8.0)
    assert slow.kind == "failed" and good.kind == "made"


def test_kernels_that_mean_nothing_fail_one_by_one(file):
    get(kernel_ast())
    (row,) = read(file)
    with Context(SPEC=0):
        shapeless = [
            UOp.const(dtypes.index, 1),
            UOp(Ops.SINK, dtypes.void, (), ("tuple", 1)),
            UOp.sink(UOp(Ops.STORE, dtypes.void, ())),
            UOp.sink(UOp(Ops.END, dtypes.void, ())),
            store_of(UOp(Ops.RANGE, dtypes.index, (), None)),
            store_of(UOp(Ops.CUSTOMI, dtypes.int32, (), "{0.__class__.__mro__}")),
            store_of(UOp(Ops.CAST, dtypes.float32.vec(9), (UOp.const(dtypes.int32, 1),) * 4)),
        ]
        rows = [hostile(row, ast) for ast in shapeless]
        rows.append(row._replace(opts='[["UPCAST",99,4]]'))
        made = make_all(rows, True, 0, 60)
    assert {m.kind for m in made} <= {"failed", "made"}
    assert "there is no axis 99" in made[-1].text


def test_settings_of_the_process_are_left_alone(file):
    get(kernel_ast())
    (row,) = read(file)
    for name in ("DEV", "PROCESS_REPLAY", "__class__", "CACHELEVEL"):
        kernel = to_text({**from_text(row.kernel), "settings": {name: 1}})
        with pytest.raises(ValueError, match="no setting"):
            decode(kernel, row.opts)
    for value in ("1", None, True, [1], 1.5):
        kernel = to_text({**from_text(row.kernel), "settings": {"NOOPT": value}})
        with pytest.raises(ValueError, match="must be of type int"):
            decode(kernel, row.opts)
    assert make(row.kernel, row.opts, False).kind == "made"


def test_recorded_graphs_are_no_leak(file):
    get(kernel_ast())
    (row,) = read(file)
    made = make(row.kernel, row.opts, False)
    gc.collect()
    from tgcore.uop.node import live_nodes

    before = live_nodes()
    for _ in range(3):
        assert make(row.kernel, row.opts, False) == made
    gc.collect()
    assert live_nodes() <= before + 50
