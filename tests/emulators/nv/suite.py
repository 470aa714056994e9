"""Runs tests on fake GPUs: `NV_FAKE=GH100,GH100 DEV=NV pytest -p tests.emulators.nv.suite ...`.

With NV_COMPILE_FOR=sm_80,sm_100 each kernel in CUDA C is compiled for those, too: a test whose
kernel one of them rejects fails. The number of kernels is said at the end.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tg_nv.languages.nvrtc import NVRTCCompiler

from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES

OTHERS = tuple(filter(None, os.environ.get("NV_COMPILE_FOR", "").split(",")))
_sources: set[str] = set()  # digests of what was compiled for the others
_sources_key = "nv_compiled_sources"


@pytest.fixture(scope="session", autouse=True)
def fake_gpus() -> Iterator[None]:
    """The GPUs that NV_FAKE names."""
    names = os.environ.get("NV_FAKE", "GH100").split(",")
    with installed(*(PROFILES[name] for name in names)), pytest.MonkeyPatch.context() as patch:
        if OTHERS:
            compile_for_others(patch)
        yield


def compile_for_others(patch: pytest.MonkeyPatch) -> None:
    """Each source is compiled for all of NV_COMPILE_FOR as well, once."""
    compile_program = NVRTCCompiler.compile
    others = [NVRTCCompiler(architecture) for architecture in OTHERS]

    def compile_all(self: NVRTCCompiler, source: str) -> bytes:
        digest = hashlib.sha256(source.encode()).hexdigest()
        if digest not in _sources:
            binary = compile_program(self, source)  # what is wrong everywhere is no news
            for compiler in others:
                compiler._run(source, compiler.architecture, "CUBIN")
            _sources.add(digest)
            return binary
        return compile_program(self, source)

    patch.setattr(NVRTCCompiler, "compile", compile_all)


# *** the count, from all processes of pytest-xdist ***


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells which sources it has compiled."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_sources_key] = sorted(_sources)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker has told."""
    _sources.update(getattr(node, "workeroutput", {}).get(_sources_key, ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many kernels were compiled."""
    if OTHERS:
        count = len(_sources)
        terminalreporter.write_line(f"{count} kernels compile for {', '.join(OTHERS)}")
