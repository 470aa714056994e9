"""Graphs as data: what goes in comes out as the very same object, and junk is refused."""

import contextlib
import gc
import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tgcore.dtype import AddrSpace, Invalid, dtypes
from tgcore.helpers import Context
from tgcore.uop.encode import (
    NotEncodable,
    decode_dtype,
    decode_graph,
    decode_value,
    encode_dtype,
    encode_graph,
    encode_value,
    from_text,
    to_text,
)
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import AxisType, Ops


def as_text(data):
    """The data as another process would read it."""
    return from_text(to_text(data))


def round_trip(graph):
    return decode_graph(as_text(encode_graph(graph)))


# *** what may occur ***

scalars = st.sampled_from([dtypes.void, dtypes.index, *dtypes.all])
values = st.sampled_from([dtypes.index, *dtypes.all])
vectors = st.builds(lambda d, n: d.vec(n), values, st.integers(2, 64))
pointers = st.builds(
    lambda d, size, space: d.ptr(size, space),
    values | vectors,
    st.integers(-1, 1 << 50),
    st.sampled_from(list(AddrSpace)),
)
any_dtype = scalars | vectors | pointers
NEGATIVE_ZERO = dtypes.as_const(-0.0, dtypes.float32)
plain_args = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 255), 1 << 255),
    st.floats(allow_nan=False),
    st.sampled_from([math.nan, math.inf, -math.inf, NEGATIVE_ZERO, Invalid]),
    st.text(),
    st.sampled_from([*Ops, *AxisType, *AddrSpace]),
    any_dtype,
    st.builds(
        BufferizeInfo,
        st.none() | st.text(),
        st.sampled_from(list(AddrSpace)),
        st.booleans(),
        st.integers(0, 1 << 62),
    ),
)
args = st.recursive(plain_args, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


@given(args)
def test_every_argument_comes_back(value):
    decoded = decode_value(as_text(encode_value(value)))
    assert decoded == value or decoded is value
    # types are kept, too: True, 1 and 1.0 are equal, -0.0 and 0.0 are written alike
    assert repr(decoded) == repr(value) or 0 in (value, *(value if type(value) is tuple else ()))


@given(any_dtype)
def test_every_type_comes_back_as_the_same_object(dtype):
    assert decode_dtype(as_text(encode_dtype(dtype))) is dtype


@st.composite
def graphs(draw):
    """Any graph of nodes, whether it means something or not."""
    nodes = []
    for _ in range(draw(st.integers(1, 12))):
        src = tuple(draw(st.lists(st.sampled_from(nodes), max_size=3))) if nodes else ()
        op, tag = draw(st.sampled_from(list(Ops))), draw(st.none() | args)
        nodes.append(UOp(op, draw(any_dtype), src, draw(args), tag))
    return UOp(Ops.SINK, dtypes.void, tuple(nodes))


@settings(deadline=None)
@given(st.data())
def test_every_graph_comes_back_as_the_same_object(data):
    with Context(SPEC=0):  # these graphs are not meant to be legal
        graph = data.draw(graphs())
        assert round_trip(graph) is graph


def test_constants_keep_their_kind_when_the_first_node_is_gone():
    for dtype, value in (
        (dtypes.float32, math.nan),
        (dtypes.float32, -0.0),
        (dtypes.float32, 0.0),
        (dtypes.float16, -math.inf),
        (dtypes.float64, 5e-324),
        (dtypes.bool, True),
        (dtypes.int64, -(1 << 63)),
        (dtypes.float32.vec(3), (0.0, -0.0, math.nan)),
        (dtypes.index, Invalid),
    ):
        node = UOp.const(dtype, value)
        data, written, key = encode_graph(node), repr(node.arg), node.key
        del node
        gc.collect()
        again = decode_graph(as_text(data))
        assert (repr(again.arg), again.key, type(again.arg)) == (
            written,
            key,
            type(UOp.const(dtype, value).arg),
        )


def test_nodes_that_are_shared_are_written_once():
    node = UOp.variable("n", 0, 3)
    for _ in range(100):
        node = node + node
    assert len(encode_graph(node)) == 101
    assert round_trip(node) is node


def test_a_long_chain_takes_linear_time():
    node = UOp.variable("n", 0, 1)
    for _ in range(100_000):
        node = UOp(Ops.NEG, dtypes.index, (node,))
    start = time.perf_counter()
    assert round_trip(node) is node
    assert time.perf_counter() - start < 20


# *** what has no form ***


def deep(depth):
    value = ()
    for _ in range(depth):
        value = (value,)
    return value


@pytest.mark.parametrize(
    "arg", [object(), len, b"bytes", frozenset(), 1 << 256, deep(100), 1j, UOp.const(dtypes.int, 1)]
)
def test_what_has_no_form_is_said(arg):
    with Context(SPEC=0), pytest.raises(NotEncodable):
        encode_graph(UOp(Ops.NOOP, dtypes.void, (), arg))


# *** junk ***

N = ["DEFINE_VAR", "index", [], ["tuple", "n", 1, 8]]


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


JUNK_GRAPHS = {
    "no list": {"a": 1},
    "nothing": None,
    "a number": 7,
    "empty": [],
    "a row that is no list": ["CONST"],
    "a short row": [["CONST", "index", []]],
    "a long row": [[*N, None, None]],
    "an unknown op": [["EVIL", "index", [], 1]],
    "a dunder op": [["__class__", "index", [], 1]],
    "an op that is a number": [[25, "index", [], 1]],
    "an op that is a list": [[["CONST"], "index", [], 1]],
    "an unknown type": [["CONST", "int33", [], 1]],
    "an attribute as type": [["CONST", "__class__", [], 1]],
    "a method as type": [["CONST", "from_name", [], 1]],
    "an alias as type": [["CONST", "half", [], 1]],
    "sources that are no list": [["CONST", "index", None, 1]],
    "itself as source": [["NEG", "index", [0], None]],
    "a later source": [["NEG", "index", [1], None], N],
    "a negative source": [N, ["NEG", "index", [-1], None]],
    "a bool as source": [N, N, ["NEG", "index", [True], None]],
    "a float as source": [N, ["NEG", "index", [0.0], None]],
    "two roots": [N, ["CONST", "index", [], 1]],
    "many lanes": [["CONST", ["float32", 1 << 40], [], 1]],
    "one lane": [["CONST", ["float32", 1], [], 1]],
    "a negative count of lanes": [["CONST", ["float32", -4], [], 1]],
    "a vector of a vector": [["CONST", [["float32", 4], 4], [], 1]],
    "an unknown address space": [["DEFINE_LOCAL", ["ptr", "int32", 4, "__init__"], [], 1]],
    "a bool as size": [["DEFINE_LOCAL", ["ptr", "int32", True, "LOCAL"], [], 1]],
    "a size that is too large": [["DEFINE_LOCAL", ["ptr", "int32", 1 << 300, "LOCAL"], [], 1]],
    "a large number": [["CONST", "index", [], 1 << 256]],
    "an infinite number": [["CONST", "float32", [], math.inf]],
    "a list as argument": [["CONST", "index", [], [1]]],
    "an empty list as argument": [["CONST", "index", [], []]],
    "an object as argument": [["CONST", "index", [], {"a": 1}]],
    "an unknown kind": [["CONST", "index", [], ["eval", "1"]]],
    "an unknown axis": [["RANGE", "index", [], ["tuple", 0, ["axis", "value"]]]],
    "an axis with more": [["RANGE", "index", [], ["axis", "LOOP", 1]]],
    "an axis that is a list": [["RANGE", "index", [], ["axis", ["LOOP"]]]],
    "an unknown float": [["CONST", "float32", [], ["float", "1e9"]]],
    "an invalid with more": [["CONST", "index", [], ["invalid", 1]]],
    "a wrong description": [["BUFFERIZE", "index", [], ["bufferize", 1, 2, 3, 4]]],
    "a short description": [["BUFFERIZE", "index", [], ["bufferize"]]],
    "deep tuples": [["CONST", "index", [], nested(200)]],
    "an argument of a tag": [[*N, ["eval"]]],
}


@pytest.mark.parametrize("name", JUNK_GRAPHS)
def test_junk_is_refused(name):
    with pytest.raises(ValueError, match=r"\w+ .*\w+"):
        decode_graph(JUNK_GRAPHS[name])


def test_deep_nesting_is_refused():
    data = 0
    for _ in range(500):
        data = ["tuple", data]
    with pytest.raises(ValueError, match="too deep"):
        decode_value(data)
    dtype = "float32"
    for _ in range(500):
        dtype = ["ptr", dtype, 1, "GLOBAL"]
    with pytest.raises(ValueError, match="not a data type"):
        decode_dtype(dtype)
    with pytest.raises(ValueError, match="too deep"):
        from_text("[" * 1_000_000 + "]" * 1_000_000)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "1" * 5000, "\0", b"\xff\xfe[]"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError):
        from_text(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["tuple", "ptr", "float32", "CONST", "op", "axis", "dtype", "bufferize"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=2),
)  # fmt: skip


@given(json_values, json_values, json_values)
def test_any_json_is_decoded_or_refused(dtype, arg, tag):
    for decode, data in (
        (decode_graph, arg),
        (decode_graph, [["NOOP", dtype, [], arg, tag]]),
        (decode_dtype, dtype),
        (decode_value, arg),
    ):
        with Context(SPEC=0), contextlib.suppress(ValueError):
            decode(data)
