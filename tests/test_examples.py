"""The examples of docs/use.md run as they stand there, and are short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("with_*.py"))


def test_there_are_four():
    assert [path.stem for path in EXAMPLES] == ["with_hugging_face", "with_lightning", "with_timm", "with_torchvision"]
    page = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
    assert all(f"examples/{path.name}" in page for path in EXAMPLES)
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 40 for path in EXAMPLES), "short"


def test_random_filters_miss_nothing_from_k_f_squared_channels_on():
    path = ROOT / "docs/examples/proposition.py"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    lines = re.findall(r"D = (\S+) k f\^2 = \d+: random (\S+), box (\S+)", done.stdout)
    assert {float(share): float(random) < 1e-9 for share, random, _ in lines} == {0.5: False, 1.0: True, 2.0: True}
    assert all(float(box) > 0.1 for _, _, box in lines), "one and the same filter is never enough"


@pytest.mark.examples
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_trains_a_few_steps(path, tmp_path):
    env = {
        "PYTHONPATH": str(ROOT),
        "PATH": "",
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run([sys.executable, path], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tensors changed" in done.stdout
    last = {"with_hugging_face": "train_runtime", "with_lightning": "5 steps"}.get(path.stem, "step 4: loss")
    assert last in done.stdout
