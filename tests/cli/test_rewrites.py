"""`tgcore rewrites`: what rewriting does while a program runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tgcore.cli.main import cli

PROGRAM = """
import sys
from tgcore.uop import UOp
from tgcore.uop.symbolic import simplify
i = UOp.variable("i", 0, 7)
print(simplify((i + 0) * 4 // 2), sys.argv[1:])
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["rewrites", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_each_rewrite_is_a_line_with_nodes_matches_and_time(program: Path) -> None:
    assert re.search(r"simplify: \d+ -> 3 nodes, \d+ matches, \d+\.\d\d ms", run(program))


def test_matches_show_the_rule_and_both_sides(program: Path) -> None:
    text = run("--matches", program)
    assert re.search(r"tgcore.uop.symbolic\.py:\d+\n  - result = UOp.variable\('i'", text)
    assert "  + result = UOp.variable('i', 0, 7)" in text


def test_the_profile_has_passes_and_rules_by_time(program: Path) -> None:
    text = run("--profile", program)
    passes, rules = text.split("\n\n")
    assert "pass" in passes and re.search(r"simplify +\d+\.\d\d +\d+\.\d\d +1 +\d+", passes)
    times = [float(t) for t in re.findall(r"\.py:\d+ +(\d+\.\d\d)", rules)]
    assert times and times == sorted(times, reverse=True)


def test_tables_can_be_cut(program: Path) -> None:
    text = run("--profile", "--most", 1, program)
    assert re.search(r"\.\.\. and \d+ more \(--most\)", text)


def test_the_program_gets_its_arguments_and_leaves_sys_as_it_was(program: Path) -> None:
    before = list(sys.argv), list(sys.path)
    assert "['--profile', 'x']" in run(program, "--profile", "x")
    assert (list(sys.argv), list(sys.path)) == before


def test_only_passes_of_one_name(program: Path) -> None:
    assert "no graph was rewritten" in run("--name", "nonsense", program)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["rewrites", str(tmp_path / "missing.py")])
    assert result.exit_code == 2 and "does not exist" in result.output
