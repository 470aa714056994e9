"""The plugin loads, describes itself, and opens its device once."""

from __future__ import annotations

import pytest

from tgcore.errors import CompileError
from tgcore.plugin import discovery
from tgcore.plugin.contract import flaws_of
from tgcore.plugin.discovery import Backend
from tgcore.renderer.base import Compiler, Renderer
from tgcore.runtime.compiled import CompiledDevice
from tgcore.runtime.device import Device


def test_description(backend: Backend) -> None:
    assert flaws_of(backend.description, backend.entry.name) == []


def test_probe_is_repeatable(backend: Backend) -> None:
    assert discovery.probe(backend) == discovery.probe(backend)


def test_opened_once(name: str, device: CompiledDevice) -> None:
    assert Device[name] is device is Device[name.lower()]
    assert device.name == name


def test_parts(device: CompiledDevice) -> None:
    assert isinstance(device.renderer, Renderer)
    assert isinstance(device.compiler, Compiler)
    assert device.compiler.available() is None
    assert device.compiler.cache_key == device.compiler.cache_key != ""
    assert device.renderer.target.device


def test_bad_source_is_a_compile_error(device: CompiledDevice) -> None:
    with pytest.raises(CompileError) as caught:
        device.compiler.compile("this is no program ¤\n")
    assert "this is no program" in str(caught.value)
