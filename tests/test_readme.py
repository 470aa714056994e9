"""The example of the README runs and says what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_learns_what_the_readme_shows() -> None:
    code, shown = re.findall(
        r"```(?:python)?\n(from tgcore.*?|loss.*?)```", README.read_text(), re.S
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (loss, right) = re.fullmatch(r"loss (.*)\nright (.*)\n", run.stdout).groups()  # type: ignore[union-attr]
    assert re.fullmatch(r"loss 0\.\d\d\nright 1\.00\n", shown)
    assert float(loss) < 0.1 and float(right) > 0.98
