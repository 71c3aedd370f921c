"""`vitinit rank` of a file: what lies beside it, and what its import does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from initializers.errors import VitinitError
from runners.launching import rank
from tests.runners.launching.test_rank import MINE, ROOT


def test_files_beside_a_method_are_not_taken_for_ours_nor_for_a_librarys(tmp_path: Path) -> None:
    """In the processes that are started, in the folder itself; and a method may not be called like a library."""
    (tmp_path / "my_method.py").write_text(MINE)
    for name in ("analysis", "benchmark", "initializers", "runners", "timm", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken for the real one')")
    code = f"""
import sys
sys.path[0] = {str(ROOT)!r}  # as of the command vitinit, which does not look into the working folder
from pathlib import Path
from runners.launching import rank
rank.TIERS["quick"] = "smoke"
grid = rank.prepare("my_method.py:Mine", "quick", None, None, Path("results"), Path("data")).grid
assert rank.call("runners.cli", ["plan", str(grid)]) == 0
assert rank.call("analysis.standing", ["--help"]) == 0
try:
    rank.prepare("timm.py:Mine", "quick", None, None, Path("results"), Path("data"))
except rank.VitinitError as error:
    print(error)
"""
    (tmp_path / "timm.py").write_text(f"raise SystemExit('taken for the real one')\n{MINE}")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mine, placebo" in done.stdout
    assert "usage: python -m analysis.standing" in done.stdout
    assert re.search(r"timm\.py: 'timm' is another module \(.*\); give the file another name", done.stdout)


def test_a_method_that_ends_python_as_it_is_imported_is_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    (tmp_path / "my_exit.py").write_text("import sys\nsys.exit(3)\nclass Mine: ...\n")
    with pytest.raises(VitinitError, match="cannot be loaded: SystemExit: 3"):
        rank.prepare(f"{tmp_path}/my_exit.py:Mine", "quick", None, None, tmp_path, tmp_path)
