"""Context variables, colours."""

from __future__ import annotations

import pytest

from tgcore.helpers import DEBUG, Context, ansilen, ansistrip, colored, getenv, prod


def test_a_context_sets_and_restores() -> None:
    before = DEBUG.value
    with Context(DEBUG=3):
        assert DEBUG >= 2 and DEBUG == 3
    assert DEBUG.value == before


def test_a_context_restores_after_an_error() -> None:
    before = DEBUG.value
    with pytest.raises(RuntimeError), Context(DEBUG=before + 1):
        raise RuntimeError
    assert DEBUG.value == before


def test_an_unknown_setting_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no context variable DEBGU; there are: .*DEBUG"):
        Context(DEBGU=1)


def test_a_setting_that_is_no_number_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_LEVEL", "high")
    with pytest.raises(ValueError, match="SOME_LEVEL must be an integer, not 'high'"):
        getenv("SOME_LEVEL", 0)


def test_colours_take_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colored("abc", "red") != "abc"
    assert ansilen(colored("abc", "GREEN")) == 3 and ansistrip(colored("abc", "blue")) == "abc"


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored("abc", "red") == "abc"


def test_the_product_of_nothing_is_one() -> None:
    assert prod([]) == 1 and prod([2, 3, 4]) == 24
