"""Which language and compiler a GPU's kernels are made with."""

from __future__ import annotations

import os
from typing import Final

from tg_nv.architecture import MOST_BLOCK, MOST_GRID, MOST_THREADS, Architecture
from tg_nv.interface import GPUFacts
from tg_nv.languages.cuda import CudaRenderer
from tg_nv.languages.llvm import NVPTXRenderer
from tg_nv.languages.matrix import HALF, INT8, TF32
from tg_nv.languages.nvjitlink import JitLinkCompiler
from tg_nv.languages.nvrtc import NVRTCCompiler
from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.errors import DeviceError
from tgcore.renderer.base import Compiler, Renderer

_Language = tuple[type[CudaRenderer | NVPTXRenderer], type[NVRTCCompiler | JitLinkCompiler], str]
_LANGUAGES: Final[dict[str, _Language]] = {
    "cuda": (CudaRenderer, NVRTCCompiler, "pip install nvidia-cuda-nvrtc"),
    "llvm": (NVPTXRenderer, JitLinkCompiler, "pip install 'tg-nv[llvm]'"),
}


def gpu_target(architecture: Architecture, sm: str, renderer: type[Renderer]) -> Target:
    """What a GPU can do, in the renderer's language."""
    native = {
        dtypes.bool, *dtypes.ints, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
    }  # fmt: skip
    return Target(
        device="NV",
        arch=sm,
        dtypes=frozenset(native),
        ops=renderer.supported_ops(),
        memory_widths=(2, 4, 8, 16),
        memory_bytes=16,
        index_bits=32,
        local=True,
        local_bytes=architecture.shared_bytes,
        local_max=MOST_BLOCK,
        local_items=MOST_THREADS,
        global_max=MOST_GRID,
        tensor_cores=(*HALF, *INT8, *TF32),
    )


def choose_language(facts: GPUFacts) -> tuple[Renderer, Compiler]:
    """The renderer and compiler that NV_RENDERER names (cuda is the default)."""
    wanted = os.environ.get("NV_RENDERER", "").lower() or "cuda"
    if wanted not in _LANGUAGES:
        why = f"NV_RENDERER={wanted!r} is none of {', '.join(_LANGUAGES)}"
        raise DeviceError("the GPU's renderer is not known", "", why, "unset NV_RENDERER")
    language, compiler_type, remedy = _LANGUAGES[wanted]
    compiler = compiler_type(facts.sm)
    if (reason := compiler.available()) is not None:
        what = f"kernels for {facts.name} cannot be compiled"
        raise DeviceError(what, "", reason, remedy)
    return language(gpu_target(facts.architecture, facts.sm, language)), compiler
