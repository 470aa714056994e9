"""Specs: each family of rules is broken on purpose, and the break is caught and explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.schedule import graphs
from tests.uop.golden_graphs import VECTORS, kernel, program
from tgcore.codegen import Fragment, Opt, OptOps, TensorCore
from tgcore.dtype import AddrSpace, Invalid, dtypes
from tgcore.errors import SpecError
from tgcore.helpers import Context
from tgcore.schedule import clear_schedule_cache, create_schedule
from tgcore.uop import AxisType, Ops, UOp
from tgcore.uop.node import BufferizeInfo, unobserved
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.spec import Spec, spec_full, spec_kernel, spec_program, spec_shared, spec_tensor
from tgcore.uop.verify import order_flaw, verify, verify_program, violation

F32, I32, INDEX, BOOL = dtypes.float32, dtypes.int32, dtypes.index, dtypes.bool
X = UOp.buffer("TEST", 12, F32, 0).reshape((3, 4))
Y = UOp.buffer("TEST", 12, I32, 1).reshape((3, 4))
I, J = UOp.range(8, 0), UOp.range(4, 1, AxisType.REDUCE)
N = UOp.variable("n", 1, 8)
DATA = UOp.define(Ops.DEFINE_GLOBAL, F32, 8, 0)
WIDE = UOp.define(Ops.DEFINE_GLOBAL, F32, 64, 1)
REG = UOp.define(Ops.DEFINE_REG, F32, 1, ("acc", 0))
STORE = DATA.index(I).store(WIDE.index(I))
K = UOp.range(UOp.const(I32, 8), 0)
VECTOR = UOp(Ops.LOAD, F32.vec(4), (UOp(Ops.INDEX, WIDE.dtype, (WIDE, K)),))
AT = UOp(Ops.INDEX, DATA.dtype, (DATA, K))
GATED = UOp(Ops.INDEX, DATA.dtype, (DATA, K, K < 3))
ONE, TRUE = UOp.const(F32, 1.0), UOp.const(BOOL, True)
LOCAL = BufferizeInfo("TEST", AddrSpace.LOCAL)
CORE = TensorCore(
    (8, 8, 4), 32, F32, F32, Fragment("l2 l3 l4", "l0 l1"), Fragment("l0 l1", "l2 l3 l4"),
    Fragment("l2 l3 l4", "e0 l0 l1"),
)  # fmt: skip


class Mutation(NamedTuple):
    """A legal node, and what changes of its fields make it illegal, by which family's rules."""

    what: str
    spec: Spec
    family: str
    legal: UOp
    change: dict[str, Any]


def of(spec: Spec, family: str, legal: UOp, **changes: dict[str, Any]) -> list[Mutation]:
    """Mutations of one node."""
    return [Mutation(w.replace("_", " "), spec, family, legal, c) for w, c in changes.items()]


CHOICE = (K < 3).where(K, 0)
SINK = UOp.sink(STORE.end(I))
MUTATIONS = [
    *of(
        spec_shared,
        "constants",
        ONE,
        an_int_as_a_float={"arg": 12345},
        a_constant_of_pointer_type={"dtype": F32.ptr(4)},
        a_void_constant={"dtype": dtypes.void},
        a_constant_with_a_source={"src": (ONE,)},
        a_constant_that_its_type_rounds={"arg": 0.1},
        Invalid_as_a_float={"arg": Invalid},
    ),
    *of(
        spec_shared,
        "constants",
        UOp.const(dtypes.uint8, 255),
        an_int_out_of_its_range={"arg": 256},
        a_text_as_an_int={"arg": "255"},
    ),
    *of(
        spec_shared,
        "constants",
        UOp.const(I32.vec(2), (1, 2)),
        too_few_lanes={"arg": (1, 2, 3)},
        a_float_in_a_lane={"arg": (1, 2.5)},
        a_list_of_lanes={"arg": None},
    ),
    *of(
        spec_shared,
        "variables",
        N,
        a_float_variable={"dtype": F32},
        bounds_in_the_wrong_order={"arg": ("n", 8, 1)},
        a_variable_without_a_name={"arg": ("", 1, 8)},
        a_variable_with_a_source={"src": (I,)},
    ),
    *of(
        spec_shared,
        "ranges",
        I,
        a_range_of_another_type_than_its_size={"dtype": I32},
        a_range_without_an_axis_type={"arg": (0,)},
        a_range_with_a_name={"arg": ("r", AxisType.LOOP)},
        a_range_without_a_size={"src": ()},
        a_range_of_floats={"dtype": F32, "src": (ONE,)},
    ),
    *of(
        spec_shared,
        "arithmetic",
        I + 1,
        a_result_of_another_type={"dtype": I32},
        sources_of_two_types={"src": (I, ONE)},
        too_few_sources={"src": (I,)},
        too_many_sources={"src": (I, I, I)},
        an_argument={"arg": 3},
        a_float_op_of_integers={"op": Ops.FDIV},
        lanes_and_a_scalar={"dtype": INDEX.vec(4)},
    ),
    *of(
        spec_shared,
        "arithmetic",
        ONE + 1.0,
        an_integer_op_of_floats={"op": Ops.IDIV},
        bits_of_floats={"op": Ops.XOR},
        a_shift_of_a_float={"op": Ops.SHL},
        random_bits_of_floats={"op": Ops.THREEFRY},
        a_multiply_add_of_two={"op": Ops.MULACC},
    ),
    *of(
        spec_shared,
        "comparisons",
        I < 3,
        a_comparison_that_is_no_bool={"dtype": INDEX},
        values_of_two_types_compared={"src": (I, ONE)},
        three_values_compared={"src": (I, I, I)},
        a_comparison_of_lanes_as_a_scalar={"src": (VECTOR, VECTOR)},
    ),
    *of(
        spec_shared,
        "choices",
        (I < 3).where(I, 0),
        a_condition_that_is_no_bool={"src": (I, I, I)},
        branches_of_two_types={"src": (I < 3, I, ONE)},
        a_choice_without_an_else={"src": (I < 3, I)},
    ),
    *of(
        spec_shared,
        "casts",
        I.cast(F32),
        a_cast_to_a_pointer={"dtype": F32.ptr(1)},
        a_cast_that_changes_lanes={"dtype": F32.vec(2)},
        a_cast_of_two={"src": (I, I)},
        a_cast_to_void={"dtype": dtypes.void},
        a_cast_of_a_pointer={"src": (DATA,)},
    ),
    *of(
        spec_shared,
        "casts",
        ONE.bitcast(I32),
        a_bitcast_to_a_wider_type={"dtype": dtypes.int64},
        a_bitcast_of_nothing={"src": ()},
    ),
    *of(
        spec_shared,
        "vectors",
        UOp.vectorize(ONE + 1.0, ONE + 2.0),
        a_lane_too_few={"src": (ONE,)},
        a_lane_of_another_type={"src": (ONE, I)},
        a_vector_in_a_lane={"src": (ONE, VECTOR)},
    ),
    *of(
        spec_tensor,
        "buffers",
        X.base,
        a_buffer_without_a_device={"src": X.base.src[:1]},
        a_buffer_of_negative_size={"arg": -1},
        a_buffer_of_pointers={"dtype": F32.ptr(1)},
    ),
    *of(
        spec_tensor,
        "buffers",
        UOp(Ops.BUFFER_VIEW, F32, (X.base,), (4, 16)),
        a_view_beyond_its_buffer={"arg": (12, 16)},
        a_view_before_its_buffer={"arg": (4, -4)},
        a_view_of_a_constant={"src": (ONE,)},
    ),
    *of(
        spec_tensor,
        "devices",
        UOp(Ops.DEVICE, arg="TEST"),
        a_device_without_a_name={"arg": ""},
        a_device_that_is_a_number={"arg": 3},
        a_device_with_a_type={"dtype": F32},
    ),
    *of(
        spec_tensor,
        "bound variables",
        N.bind(3),
        a_value_beyond_the_greatest={"src": (N, N.const_like(9))},
        a_value_of_another_type={"src": (N, UOp.const(I32, 3))},
        a_bound_range={"src": (I, N.const_like(3))},
    ),
    *of(
        spec_tensor,
        "stored values",
        X.contiguous(),
        stored_as_another_type={"dtype": I32},
        two_values_stored_as_one={"src": (X, X)},
    ),
    *of(
        spec_tensor,
        "stored values",
        X.assign(X + 1.0),
        a_value_of_another_shape_assigned={"src": (X, X.reshape((4, 3)))},
        a_value_of_another_type_assigned={"src": (X, Y)},
        an_assign_without_a_value={"src": (X,)},
    ),
    *of(
        spec_tensor,
        "stored values",
        X.copy_to("OTHER"),
        a_copy_to_nowhere={"src": (X,)},
        a_copy_that_casts={"dtype": I32},
    ),
    *of(
        spec_tensor,
        "movement",
        X.reshape((2, 6)),
        another_number_of_elements={"src": (X, X.reshape((1, 12)).expand((5, 12)).src[1])},
        a_reshape_that_casts={"dtype": I32},
        a_reshape_without_a_shape={"src": (X,)},
    ),
    *of(
        spec_tensor,
        "movement",
        X.permute((1, 0)),
        an_axis_twice={"arg": (0, 0)},
        an_axis_too_many={"arg": (0, 1, 2)},
        no_order_at_all={"arg": None},
    ),
    *of(
        spec_tensor,
        "movement",
        X.shrink((0, 0), (2, 2)),
        a_box_beyond_the_end={
            "src": X.shrink((2, 0), (1, 4)).src[:2] + X.shrink((0, 0), (2, 4)).src[2:]
        },
        a_box_that_begins_before={
            "src": (X, UOp(Ops.VCONST, INDEX.vec(2), (), (-1, 0)), X.shrink((0, 0), (2, 2)).src[2])
        },
    ),
    *of(
        spec_tensor,
        "movement",
        X.flip((0,)),
        a_flip_of_an_axis_that_is_not_there={"arg": (2,)},
        axes_out_of_order={"arg": (1, 0)},
    ),
    *of(
        spec_tensor,
        "movement",
        X.reshape((3, 4, 1)).expand((3, 4, 5)),
        an_axis_expanded_that_is_not_1={"src": (X, X.reshape((4, 3)).src[1])},
    ),
    *of(
        spec_tensor,
        "reduced axes",
        X.reduce_axis(Ops.ADD, (0,)),
        a_reduce_by_an_op_that_cannot={"arg": (Ops.SUB, (0,))},
        a_reduced_axis_that_is_not_there={"arg": (Ops.ADD, (2,))},
        a_reduce_without_axes={"arg": Ops.ADD},
        a_reduce_that_casts={"dtype": I32},
    ),
    *of(
        spec_tensor,
        "calls",
        UOp(Ops.KERNEL, dtypes.void, (X.base,), UOp.sink()),
        a_call_of_nothing={"arg": None},
        a_call_with_a_value={"src": (X + 1.0,)},
    ),
    *of(
        spec_kernel,
        "kernel sinks",
        SINK,
        an_open_range_at_the_sink={"src": (STORE,)},
        a_value_at_the_sink={"src": (ONE,)},
    ),
    *of(
        spec_kernel,
        "memory",
        DATA,
        a_parameter_in_registers={"dtype": F32.ptr(8, AddrSpace.REG)},
        a_parameter_without_a_number={"arg": None},
        a_parameter_that_is_no_pointer={"dtype": F32},
        a_parameter_with_a_source={"src": (I,)},
    ),
    *of(
        spec_kernel,
        "accesses",
        DATA.index(I),
        an_index_of_a_constant={"src": (ONE, I)},
        an_index_of_machine_type={"src": (DATA, K)},
        an_index_after_the_end={"src": (DATA, I + 8)},
        an_index_before_the_begin={"src": (DATA, I + -8)},
        a_constant_index_out_of_bounds={"src": (DATA, UOp.const(INDEX, 8))},
        an_element_of_another_type={"dtype": I32},
        an_index_without_a_position={"src": (DATA,)},
    ),
    *of(
        spec_kernel,
        "stores",
        STORE,
        a_store_to_a_constant={"src": (ONE, ONE)},
        a_store_to_memory_as_a_whole={"src": (DATA, ONE)},
        a_value_of_another_type_stored={"src": (DATA.index(I), I)},
        a_store_of_nothing={"src": (DATA.index(I),)},
        a_store_that_has_a_value={"dtype": F32},
    ),
    *of(
        spec_kernel,
        "closed ranges",
        STORE.end(I),
        an_end_of_no_range={"src": (STORE,)},
        an_end_of_a_constant={"src": (STORE, ONE)},
        a_range_closed_twice={"src": (STORE, I, I)},
        an_end_of_a_value={"src": (ONE, I)},
        an_end_that_has_a_value={"dtype": F32},
    ),
    *of(
        spec_kernel,
        "reduces",
        WIDE.index(I * 4 + J).reduce(Ops.ADD, J),
        a_reduce_by_a_comparison={"arg": Ops.CMPLT},
        a_reduce_over_no_range={"src": (ONE,)},
        a_reduce_over_a_value={"src": (ONE, I + 1)},
        a_reduce_to_another_type={"dtype": I32},
    ),
    *of(
        spec_kernel,
        "storage in kernels",
        UOp(Ops.BUFFERIZE, F32, (DATA.index(I), I), LOCAL),
        global_storage_in_a_kernel={"arg": BufferizeInfo("TEST")},
        storage_nowhere={"arg": None},
        storage_of_another_type={"dtype": I32},
    ),
    *of(
        spec_kernel,
        "order",
        REG.after(STORE),
        an_order_after_nothing={"src": (REG,)},
        an_order_that_casts={"dtype": F32},
    ),
    *of(
        spec_program,
        "machine integers",
        K + 1,
        the_index_type_in_a_program={"dtype": INDEX, "src": (I, I), "op": Ops.MUL},
    ),
    *of(
        spec_program,
        "launch positions",
        UOp(Ops.SPECIAL, I32, (UOp.const(I32, 4),), "g0"),
        a_position_with_another_name={"arg": "x0"},
        a_position_in_a_fourth_dimension={"arg": "g3"},
        a_position_of_64_bits={"dtype": dtypes.int64},
    ),
    *of(
        spec_program,
        "addresses",
        AT,
        an_address_that_is_a_value={"dtype": F32},
        an_address_with_a_float_index={"src": (DATA, ONE)},
        an_address_with_an_int_as_gate={"src": (DATA, K, K)},
        an_address_out_of_bounds={"src": (DATA, UOp.const(I32, 8))},
        an_address_of_a_value={"src": (ONE, K)},
        an_address_with_two_gates={"src": (DATA, K, TRUE, TRUE)},
    ),
    *of(
        spec_program,
        "loads",
        AT.load(),
        a_load_without_an_index={"src": (DATA,)},
        a_load_of_another_type={"dtype": I32},
        an_alternative_without_a_gate={"src": (AT, ONE)},
        a_gate_without_an_alternative={"src": (GATED,)},
        an_alternative_of_another_type={"src": (GATED, K)},
    ),
    *of(
        spec_program,
        "program stores",
        AT.store(ONE),
        a_store_of_another_type={"src": (AT, K)},
        a_store_into_a_load={"src": (AT.load(), ONE)},
        a_store_with_three_sources={"src": (AT, ONE, TRUE)},
    ),
    *of(
        spec_program,
        "loops and branches",
        AT.store(ONE).end(K),
        an_end_of_two_ranges={"src": (AT.store(ONE), K, K)},
        a_branch_on_a_number={"op": Ops.IF, "src": (K,)},
        an_end_of_a_branch_that_is_none={"op": Ops.ENDIF, "src": (K,)},
    ),
    *of(
        spec_program,
        "lanes",
        UOp(Ops.GEP, F32, (VECTOR,), (3,)),
        a_lane_that_is_not_there={"arg": (4,)},
        a_lane_as_a_number={"arg": 3},
        more_lanes_than_the_result_has={"arg": (0, 1)},
    ),
    *of(
        spec_program,
        "lanes",
        UOp(Ops.CAT, F32.vec(8), (VECTOR, VECTOR)),
        lanes_that_do_not_add_up={"dtype": F32.vec(6)},
        lanes_of_another_type={"dtype": I32.vec(8)},
    ),
    *of(
        spec_program,
        "custom text",
        UOp(Ops.CUSTOM, dtypes.void, (), "nop;"),
        text_that_is_none={"arg": None},
    ),
    *of(
        spec_program,
        "matrix instructions",
        UOp(Ops.WMMA, F32.vec(2), (UOp.const(F32, 1.0),) * 2 + (UOp.const(F32.vec(2), 0.0),), CORE),
        a_matrix_of_another_type={"dtype": I32.vec(2)},
        more_elements_than_a_lane_holds={"dtype": F32.vec(4)},
        operands_that_are_vectors={"src": (UOp.const(F32.vec(2), 0.0),) * 3},
        two_matrices={"src": (UOp.const(F32, 1.0),) * 2},
        an_instruction_that_is_none={"arg": (8, 8, 4)},
    ),
    *of(
        spec_program,
        "barriers",
        UOp(Ops.BARRIER, dtypes.void, ()),
        a_barrier_that_has_a_value={"dtype": F32},
    ),
]


def mutated(mutation: Mutation) -> UOp:
    with unobserved():
        return mutation.legal.replace(**mutation.change)


def test_there_are_mutations_of_every_family_of_every_level() -> None:
    assert len(MUTATIONS) >= 120
    broken = {m.family for m in MUTATIONS}
    for spec in (spec_shared, spec_tensor, spec_kernel, spec_program):
        families = {f.name for f in (*spec.families, *spec.vetoes)}
        assert families - broken <= {"constants on devices", "tensor sinks"}, spec.level


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.family}: {m.what}")
def test_a_broken_node_is_caught_by_its_family(mutation: Mutation) -> None:
    assert mutation.spec.allows(mutation.legal)
    bad = mutated(mutation)
    assert not mutation.spec.allows(bad)
    assert mutation.family in violation(bad, mutation.spec).family


def test_nodes_of_no_level_are_caught_when_they_are_made() -> None:
    missed = [m for m in MUTATIONS if spec_full.allows(mutated(m))]
    # legal at another level, or on the way from one to the next
    passing = {m.family for m in missed}
    assert passing <= {
        *("machine integers", "accesses", "addresses", "loads", "stores", "program stores"),
        *("kernel sinks", "storage in kernels", "closed ranges", "loops and branches"),
        *("launch positions", "choices", "order"),
    }
    assert len(missed) < len(MUTATIONS) // 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UOp(Ops.ADD, F32, (ONE, K)), "an illegal Ops.ADD"),
        (lambda: DATA.index(I).store(I), "an illegal Ops.STORE"),
        (lambda: X.reshape((5, 5)), "an illegal Ops.RESHAPE"),
        (lambda: UOp(Ops.GEP, F32, (VECTOR,), (9,)), "an illegal Ops.GEP"),
    ],
)
def test_an_illegal_node_cannot_be_made_with_SPEC_2(make: Callable[[], UOp], message: str) -> None:
    with Context(SPEC=2):
        for _ in range(2):  # a refused node is refused again
            with pytest.raises(SpecError, match=message):
                make()
    with Context(SPEC=0):
        make()


# *** what the message says ***


def test_the_message_names_the_node_its_sources_the_demand_and_shows_it_as_python() -> None:
    with unobserved():
        bad = UOp(Ops.ADD, I32, (K, ONE))
    with pytest.raises(SpecError) as caught:
        verify(UOp(Ops.NOOP, dtypes.void, (bad,)), spec_program, "program r_8")
    text = str(caught.value)
    assert text.startswith("program r_8: an illegal Ops.ADD\nno rule of the family 'arithmetic'")
    assert "all of the result's type" in text
    assert "node: <UOp Ops.ADD dtypes.int32" in text
    assert "source 1: <UOp Ops.CONST dtypes.float32" in text
    assert (
        "r0 = UOp.range(UOp.const(dtypes.int32, 8), 0, AxisType.LOOP)\nresult = UOp(Ops.ADD" in text
    )
    assert (caught.value.level, caught.value.family) == ("program r_8", "'arithmetic'")


def test_an_op_of_another_level_is_said_to_be_unknown() -> None:
    with pytest.raises(SpecError, match=r"no family of the level 'kernel' knows Ops\.UNIQUE"):
        verify(X, spec_kernel)


def bad_rule(x: UOp) -> UOp:
    return UOp(Ops.MUL, F32, (x, I))


def test_the_pass_and_the_rule_that_made_a_node_are_named() -> None:
    matcher = PatternMatcher([(UPat(Ops.SQRT, src=(UPat.var("x"),)), bad_rule)])
    line = f"test_spec.py:{bad_rule.__code__.co_firstlineno}"
    with Context(SPEC=2), pytest.raises(SpecError) as caught:
        graph_rewrite(UOp.sink(X.sqrt() + 1.0), matcher, name="spoil")
    assert caught.value.made_by.startswith("pass 'spoil', rule ")
    assert caught.value.made_by.endswith(line)


def test_at_borders_the_maker_of_a_node_is_known_too() -> None:
    matcher = PatternMatcher([(UPat(Ops.SQRT, src=(UPat.var("x"),)), bad_rule)])
    with Context(SPEC=1):
        graph = graph_rewrite(UOp.sink((X * 3.0).sqrt()), matcher, name="spoil")
        with pytest.raises(SpecError, match=r"made by: pass 'spoil', rule .*test_spec\.py"):
            verify(graph, spec_tensor)


def test_outside_of_passes_the_line_that_made_a_node_is_named() -> None:
    with Context(SPEC=2), pytest.raises(SpecError, match=r"made by: .*test_spec\.py:\d+\n"):
        UOp(Ops.ADD, F32, (ONE, K))


def test_a_rebuilt_node_may_wait_for_its_rule() -> None:
    """A pass that changes types gives a node new sources first and a new type then."""
    matcher = PatternMatcher(
        [
            (UPat(Ops.CONST, dtype=F32), lambda: UOp.const(dtypes.float64, 1.0)),
            (UPat(Ops.ADD, F32, name="n"), lambda n: n.replace(dtype=n.src[0].dtype)),
        ]
    )
    with Context(SPEC=2):
        assert graph_rewrite(ONE + 1.0, matcher).dtype is dtypes.float64


def test_a_rebuilt_node_that_stays_is_verified() -> None:
    matcher = PatternMatcher([(UPat(Ops.CONST, dtype=F32), lambda: UOp.const(dtypes.float64, 1.0))])
    with Context(SPEC=2), pytest.raises(SpecError, match="pass 'half', which put new sources in"):
        graph_rewrite(ONE + 1.0, matcher, name="half")


# *** borders ***


def test_real_graphs_pass_at_all_levels() -> None:
    for level in (1, 2):
        clear_schedule_cache()
        with Context(SPEC=level):
            ast = kernel(graphs.matmul(graphs.buffer(4, 8), graphs.buffer(8, 16)))
            verify(ast, spec_kernel)
            verify_program(program(ast, [Opt(OptOps.UPCAST, 1, 8)], VECTORS))


def test_a_wrong_tensor_graph_is_refused_at_the_border() -> None:
    with unobserved():
        bad = UOp(Ops.ADD, F32, (X, Y))
    with Context(SPEC=1), pytest.raises(SpecError, match="tensor graph: an illegal"):
        create_schedule(UOp.sink(bad), "TEST")


def test_without_SPEC_nothing_is_checked_or_kept() -> None:
    with Context(SPEC=0):
        assert not hasattr(UOp(Ops.MUL, F32, (ONE, K), 77), "made_by")


# *** the order of programs ***

LOOP = UOp.range(UOp.const(I32, 4), 9)
VALUE = LOOP + 1
PLACE = UOp(Ops.INDEX, DATA.dtype, (DATA, LOOP))
WRITE = PLACE.store(ONE)
CLOSE = WRITE.end(LOOP)
BRANCH = UOp(Ops.IF, dtypes.void, (TRUE,))
JOIN = UOp(Ops.ENDIF, dtypes.void, (BRANCH,))
HEAD = [DATA, ONE, TRUE, UOp.const(I32, 4), UOp.const(I32, 1)]


def test_a_program_in_order_has_no_flaw() -> None:
    assert order_flaw([*HEAD, LOOP, VALUE, PLACE, BRANCH, WRITE, JOIN, CLOSE]) is None


@pytest.mark.parametrize(
    ("program", "flaw"),
    [
        ([*HEAD, VALUE, LOOP, PLACE, WRITE, CLOSE], "comes before its source"),
        ([*HEAD, LOOP, PLACE, WRITE], "is never closed"),
        ([*HEAD, LOOP, PLACE, WRITE, CLOSE, VALUE], "outside of the loop"),
        ([*HEAD, LOOP, PLACE, BRANCH, WRITE, CLOSE, JOIN], "not the innermost open one"),
        ([*HEAD, LOOP, PLACE, WRITE, CLOSE, PLACE], "stands in the program twice"),
        ([*HEAD, BRANCH, LOOP, PLACE, WRITE, CLOSE], "is never closed"),
        ([*HEAD, JOIN], "comes before its source"),
    ],
)
def test_a_program_out_of_order_is_caught(program: list[UOp], flaw: str) -> None:
    with pytest.raises(SpecError, match=flaw):
        verify_program(program)
