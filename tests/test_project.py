"""The safety of the project as a whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", ["analysis", "benchmark", "initializers", "runners", "slurm", "vitinit"])
def test_no_file_that_is_loaded_can_run_code(package):
    """The defaults of torch.load and np.load are safe; ruff watches pickle and the like."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / package).glob("**/*.py"))
    assert "import" in code
    assert not re.search("weights_only=False|allow_pickle=True", code)
