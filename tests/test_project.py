"""The project as a whole: its versions and its safety."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_timm_is_the_one_that_was_tried():
    """Augmentation and ConViT reach into it, so each of its versions may compute something else."""
    (floor,) = re.findall(r'"timm>=(.*)"', PYPROJECT)
    assert f"\ntimm=={floor} " in (ROOT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["analysis", "benchmark", "initializers", "runners", "slurm", "vitinit"])
def test_no_file_that_is_loaded_can_run_code(package):
    """The defaults of torch.load and np.load are safe; ruff watches pickle and the like."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / package).glob("**/*.py"))
    assert "import" in code
    assert not re.search("weights_only=False|allow_pickle=True", code)
