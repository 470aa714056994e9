"""Puts a fake driver in the place of the device files, and lets it run what the compiler makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tg_nv import plugin
from tg_nv.languages.nvjitlink import JitLinkCompiler
from tg_nv.languages.nvrtc import NVRTCCompiler

from tests.emulators.nv.profiles import Profile
from tests.emulators.nv.system import FakeSystem
from tgcore.helpers import Context
from tgcore.runtime.device import Device

_compiled: dict[bytes, str] = {}  # programs of this process, which it may keep in memory


def watch_compiler(patch: pytest.MonkeyPatch, system: FakeSystem) -> None:
    """The fake GPU gets each program as PTX as well, which it can run."""
    compile_program = NVRTCCompiler.compile
    link_program = JitLinkCompiler.link

    def compile_both(self: NVRTCCompiler, source: str) -> bytes:
        binary = compile_program(self, source)
        _compiled[binary] = self.compile_to_ptx(source)
        system.register_cubin(binary, _compiled[binary])
        return binary

    def link(self: JitLinkCompiler, ptx: str) -> bytes:
        binary = link_program(self, ptx)
        _compiled[binary] = ptx
        system.register_cubin(binary, ptx)
        return binary

    for binary, ptx in _compiled.items():
        system.register_cubin(binary, ptx)
    patch.setattr(NVRTCCompiler, "compile", compile_both)
    patch.setattr(JitLinkCompiler, "link", link)


@contextmanager
def installed(*gpus: Profile, **options: Any) -> Iterator[FakeSystem]:
    """A fake driver with these GPUs; all devices are closed at the end.

    AssertionError at the end if the fake had to complain of something, or if something is left.
    """
    system = FakeSystem(list(gpus), **options)
    with pytest.MonkeyPatch.context() as patch, Context(CACHELEVEL=0):
        patch.setattr(plugin, "FILES", system)
        watch_compiler(patch, system)
        Device.reset()
        try:
            yield system
        finally:
            Device.reset()
    assert not system.complaints, "\n".join(system.complaints)
    assert not system.objects(), system.objects()
