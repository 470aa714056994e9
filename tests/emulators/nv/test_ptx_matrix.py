"""Matrix instructions against numpy, with the fragment layouts as the PTX manual draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulators.nv import ptx
from tests.emulators.nv.ptx_kernels import Array, kernel_of, launch

Place = Callable[[int, int, int], tuple[int, int]]  # group, thread in group, element -> row, column

# "Matrix Fragments for mma.m16n8k8 / k16 / k32", element by element
A_PLACES: dict[str, Place] = {
    "f16 k16": lambda g, t, i: (g + (8 if i in (2, 3, 6, 7) else 0),
                                t * 2 + (i & 1) + (8 if i >= 4 else 0)),
    "f16 k8": lambda g, t, i: (g + (8 if i >= 2 else 0), t * 2 + (i & 1)),
    "tf32 k8": lambda g, t, i: (g + (8 if i in (1, 3) else 0), t + (4 if i >= 2 else 0)),
    "tf32 k4": lambda g, t, i: (g + (8 if i == 1 else 0), t),
    "byte k32": lambda g, t, i: (g + (8 if i // 4 in (1, 3) else 0),
                                 t * 4 + (i & 3) + (16 if i >= 8 else 0)),
    "byte k16": lambda g, t, i: (g + (8 if i >= 4 else 0), t * 4 + (i & 3)),
}  # fmt: skip
B_PLACES: dict[str, Place] = {
    "f16 k16": lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    "f16 k8": lambda g, t, i: (t * 2 + i, g),
    "tf32 k8": lambda g, t, i: (t + 4 * i, g),
    "tf32 k4": lambda g, t, i: (t, g),
    "byte k32": lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    "byte k16": lambda g, t, i: (t * 4 + i, g),
}  # fmt: skip


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g + (8 if i >= 2 else 0), t * 2 + (i & 1)


def fragments(matrix: Array, place: Place, count: int) -> Array:
    """(32 lanes, elements)"""
    found = np.empty((32, count), matrix.dtype)
    for lane in range(32):
        for i in range(count):
            found[lane, i] = matrix[place(lane // 4, lane % 4, i)]
    return found


def from_fragments(fragment: Array) -> Array:
    matrix = np.empty((16, 8), fragment.dtype)
    for lane in range(32):
        for i in range(4):
            matrix[c_place(lane // 4, lane % 4, i)] = fragment[lane, i]
    return matrix


CASES = [
    # shape, type of d and c, type of a and b, layout, numpy type
    ("m16n8k16", "f32", "f16", "f16 k16", np.float16),
    ("m16n8k16", "f16", "f16", "f16 k16", np.float16),
    ("m16n8k16", "f32", "bf16", "f16 k16", ml_dtypes.bfloat16),
    ("m16n8k8", "f32", "f16", "f16 k8", np.float16),
    ("m16n8k8", "f32", "bf16", "f16 k8", ml_dtypes.bfloat16),
    ("m16n8k8", "f32", "tf32", "tf32 k8", np.float32),
    ("m16n8k4", "f32", "tf32", "tf32 k4", np.float32),
    ("m16n8k32", "s32", "s8", "byte k32", np.int8),
    ("m16n8k16", "s32", "u8", "byte k16", np.uint8),
    ("m16n8k32", "f32", "e4m3", "byte k32", ml_dtypes.float8_e4m3fn),
    ("m16n8k32", "f32", "e5m2", "byte k32", ml_dtypes.float8_e5m2),
]


def registers(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{k}" for k in range(count)) + "}"


def loads(prefix: str, count: int, pointer: int) -> str:
    text = f"mad.wide.u32 %at, %t, {count * 4}, %p{pointer};"
    return text + "".join(f"ld.global.b32 %{prefix}{k}, [%at+{4 * k}];" for k in range(count))


@pytest.mark.parametrize("shape, kind_d, kind_a, layout, dtype", CASES)
def test_products(shape: str, kind_d: str, kind_a: str, layout: str, dtype: Any) -> None:
    k = int(shape.split("k")[1])
    generator = np.random.default_rng(k)
    low = 0 if dtype is np.uint8 else -8
    a, b = (generator.integers(low, 8, s).astype(dtype) for s in ((2, 16, k), (2, k, 8)))
    dtype_c = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[kind_d]
    c = generator.integers(-9, 9, (2, 16, 8)).astype(dtype_c)
    # two warps with matrices of their own
    fa = np.concatenate([fragments(x, A_PLACES[layout], 16 * k // 32) for x in a]).view("u4")
    fb = np.concatenate([fragments(x, B_PLACES[layout], 8 * k // 32) for x in b]).view("u4")
    fc = np.concatenate([fragments(x, c_place, 4) for x in c]).view("u4")
    na, nb, nc = fa.shape[1], fb.shape[1], fc.shape[1]
    body = (
        ".reg .b64 %at; .reg .b32 %a<4>, %b<2>, %c<4>, %d<4>;"
        + loads("a", na, 0) + loads("b", nb, 1) + loads("c", nc, 2)
        + f"mma.sync.aligned.{shape}.row.col.{kind_d}.{kind_a}.{kind_a}.{kind_d} "
        + f"{registers('d', nc)}, {registers('a', na)}, {registers('b', nb)}, {registers('c', nc)};"
        + f"mad.wide.u32 %at, %t, {nc * 4}, %p3;"
        + "".join(f"st.global.b32 [%at+{4 * k}], %d{k};" for k in range(nc))
    )  # fmt: skip
    out = np.zeros_like(fc)
    launch(kernel_of(body, 4), [fa, fb, fc, out], block=(64,))
    for warp in range(2):
        found = from_fragments(out[warp * 32 : warp * 32 + 32].view(dtype_c))
        expected = a[warp].astype("f8") @ b[warp].astype("f8") + c[warp]
        np.testing.assert_array_equal(found.astype("f8"), expected)


def test_products_of_doubles() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((8, 4)), generator.standard_normal((4, 8))
    out = np.zeros((32, 2))
    # lane 4g + t holds A[g, t] and B[t, g]
    body = """
        .reg .b64 %at; .reg .f64 %a, %b, %c, %d<2>;
        mad.wide.u32 %at, %t, 8, %p0; ld.global.f64 %a, [%at]; mov.f64 %c, 0d3FF0000000000000;
        mad.wide.u32 %at, %t, 8, %p1; ld.global.f64 %b, [%at];
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0, %d1}, {%a}, {%b}, {%c, %c};
        mad.wide.u32 %at, %t, 16, %p2; st.global.v2.f64 [%at], {%d0, %d1};
    """
    launch(kernel_of(body, 3), [a.ravel(), np.ascontiguousarray(b.T).ravel(), out])
    np.testing.assert_allclose(out.reshape(8, 8), a @ b + 1, rtol=1e-15)


def test_saturated_integer_products() -> None:
    body = """
        .reg .b64 %at; .reg .b32 %a, %c, %d<4>; mov.b32 %a, 0x7F7F7F7F; mov.b32 %c, 0x7FFFFFFF;
        mma.sync.aligned.m16n8k16.row.col{}.s32.s8.s8.s32
            {{%d0, %d1, %d2, %d3}}, {{%a, %a}}, {{%a}}, {{%c, %c, %c, %c}};
        mad.wide.u32 %at, %t, 4, %p0; st.global.u32 [%at], %d3;
    """
    for saturated in (False, True):
        out = np.zeros(32, "i4")
        launch(kernel_of(body.format(".satfinite" if saturated else "")), [out])
        wrapped = 2**31 - 1 + 16 * 127 * 127 - 2**32
        assert out.tolist() == [2**31 - 1 if saturated else wrapped] * 32


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_from_and_to_shared_memory(count: int, transposed: bool) -> None:
    source = np.arange(32 * 8, dtype="u2")
    out, back = np.zeros((32, count), "u4"), np.zeros(32 * 8, "u2")
    trans = ".trans" if transposed else ""
    names = registers("x", count)
    body = f"""
        .shared .align 16 .b8 tile[512]; .reg .b64 %at; .reg .b32 %s, %x<4>, %y<4>;
        mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s; mad.wide.u32 %at, %t, 16, %p0;
        ld.global.v4.b32 {{%y0, %y1, %y2, %y3}}, [%at];
        st.shared.v4.b32 [%s], {{%y0, %y1, %y2, %y3}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names}, [%s]; bar.sync 0;
        st.shared.v4.b32 [%s], {{0, 0, 0, 0}}; bar.sync 0;
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%s], {names}; bar.sync 0;
        ld.shared.v4.b32 {{%y0, %y1, %y2, %y3}}, [%s]; mad.wide.u32 %at, %t, 16, %p2;
        st.global.v4.b32 [%at], {{%y0, %y1, %y2, %y3}}; mad.wide.u32 %at, %t, {4 * count}, %p1;
    """ + "".join(f"st.global.b32 [%at+{4 * k}], %x{k};" for k in range(count))
    launch(kernel_of(body, 3), [source, out, back])
    matrices = source.reshape(4, 8, 8)
    for m in range(count):
        matrix = matrices[m].T if transposed else matrices[m]
        for lane in range(32):
            low, high = matrix[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2].tolist()
            assert out[lane, m] == low | high << 16
    assert (back[: count * 64] == source[: count * 64]).all()
    assert (back[count * 64 :] == 0).all()


def test_shapes_that_are_not_known() -> None:
    body = ".reg .b32 %x<4>; mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 "
    body += "{%x0,%x1,%x2,%x3}, {%x0,%x1,%x2,%x3}, {%x0,%x1}, {%x0,%x1,%x2,%x3};"
    with pytest.raises(ptx.PtxError, match="not known"):
        kernel_of(body).check()
