"""The examples of docs/ run as they stand there: what they train learns, and Proposition 1 holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs/examples"


def printed(path, cwd):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, path], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_random_filters_miss_nothing_from_k_f_squared_channels_on(tmp_path):
    lines = re.findall(
        r"D = (\S+) k f\^2 = \d+: random (\S+), box (\S+)", printed(EXAMPLES / "proposition.py", tmp_path)
    )
    assert {float(share): float(random) < 1e-9 for share, random, _ in lines} == {0.5: False, 1.0: True, 2.0: True}
    assert all(float(box) > 0.1 for _, _, box in lines), "one and the same filter is never enough"


@pytest.mark.examples
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("with_*.py")), ids=lambda path: path.stem)
def test_the_loss_of_an_example_falls(path, tmp_path):
    text = printed(path, tmp_path)
    losses = [float(loss) for loss in re.findall(r"\bloss'?:? '?([\d.]+)", text)]
    assert "tensors changed" in text
    assert losses[-1] < 0.8 * losses[0]
