"""The real CIFAR-10, where VITINIT_DATA (with TESTS_KEEP) or shared/ has it: files and statistics as expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.spec import DatasetSpec

SPEC = DatasetSpec(name="cifar10")
UNPACK = Path(__file__).parents[3] / "shared" / "data" / "unpack.py"


@pytest.mark.long
def test_statistics_of_cifar10_are_those_of_its_pixels(tmp_path: Path) -> None:
    folder = Path(os.environ.get("VITINIT_DATA", tmp_path))
    if folder == tmp_path and UNPACK.is_file():
        subprocess.run([sys.executable, str(UNPACK), "--dest", str(folder), "cifar-10"], check=True)
    if unavailable(SPEC, folder):
        pytest.skip("no cifar10: TESTS_KEEP=VITINIT_DATA make test-long")
    data = load(SPEC, 32, folder)
    assert (len(data.train.labels), len(data.held_out.labels)) == (50_000, 10_000)
    theirs = CIFAR10(folder)
    assert np.array_equal(data.train.images[0].permute(1, 2, 0), theirs.data[0])
    assert data.train.labels.tolist() == theirs.targets
    pixels = data.train.images / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=1e-4)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx(data.std, abs=1e-4)
