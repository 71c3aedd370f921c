"""Classes in files beside a grid: relative to it, and identified by their content."""

from pathlib import Path

import numpy as np
import pytest

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids import grid
from vitinit.initializers import plugins, registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import FOLDERS

METHOD = '''
"""A method."""
import torch
from vitinit.initializers.registry import Initializer, register


@register
class Smaller(Initializer):
    """Divides W_q."""
    name = "smaller_query"
    touches = ()
    sets = ("query",)
    factor: float = 0.5

    @torch.no_grad()
    def apply(self, model, generator, progress):
        for layer in self.attention_of(model):
            layer.query_HdD.mul_(self.factor)
'''
MODEL = """
from torch import nn


def tiny(num_classes: int, img_size: int):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * img_size**2, num_classes))
"""
DATA = '''
import numpy as np
from vitinit.benchmark.datasets.registry import InMemory


class Grey(InMemory):
    """Light and dark images."""
    def read(self, data_dir):
        def split(count):
            labels = np.arange(count) % 2
            return np.broadcast_to((labels * 200)[:, None, None, None], (count, 3, 8, 8)).astype(np.uint8), labels
        return split(64), split(32), ("dark", "light")


GREY = Grey(name="grey")
'''
GRID = """
title: own
rows:
  Base: {base: trunc_normal}
  Mine: {base: trunc_normal, method: {name: "parts/own_method.py:Smaller", factor: 0.25}}
  Placebo: {base: trunc_normal, method: {name: placebo, of: "parts/own_method.py:Smaller", keep: spectrum}}
blocks:
  - &block
    datasets: [{python: "own_data.py:GREY"}]
    model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
    recipe: {name: small, epochs: 1, batch_size: 16}
    seeds: [0]
  - {<<: *block, model: {python: "own_model.py:tiny", image_size: 8}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDERS, "")
    return written(tmp_path / "first")


def written(folder):
    (folder / "parts").mkdir(parents=True)
    for name, text in {"parts/own_method.py": METHOD, "own_model.py": MODEL, "own_data.py": DATA}.items():
        (folder / name).write_text(text)
    (folder / "own.yaml").write_text(GRID)
    return folder


def specs(folder):
    return {(cell.row, cell.spec.model.arch): cell.spec for cell in grid.load(str(folder / "own.yaml")).cells}


def test_the_folder_changes_no_run_and_the_content_of_a_file_those_that_use_it(folder, tmp_path):
    first, again = specs(folder), specs(written(tmp_path / "second"))
    assert {place: spec.run_id for place, spec in first.items()} == {key: each.run_id for key, each in again.items()}
    (folder / "parts" / "own_method.py").write_text(METHOD.replace("0.5", "0.75"))
    edited = specs(folder)
    changed = {row for row, arch in first if first[row, arch].run_id != edited[row, arch].run_id}
    assert changed == {"Mine", "Placebo"}
    params = [each["Placebo", "vit"].method.params["of"] for each in (first, edited)]
    classes = [registry.get(of if isinstance(of, str) else of["name"]) for of in params]
    assert [cls.model_fields["factor"].default for cls in classes] == [0.5, 0.75]


def test_a_dataset_of_a_file_is_opened_and_its_label_tells_contents_apart(folder):
    spec = specs(folder)["Base", "vit"].dataset
    (images, labels), _, classes = datasets.get(spec.name).read(Path())
    assert classes == ("dark", "light")
    assert np.array_equal(images[:, 0, 0, 0] == 200, labels == 1)
    assert spec.label == spec.name
    (folder / "own_data.py").write_text(DATA.replace("200", "100"))
    assert specs(folder)["Base", "vit"].dataset.label != spec.label
    (folder / "own_data.py").write_text(DATA.replace('name="grey"', 'name="grey", metric="calibration_error"'))
    assert datasets.get(specs(folder)["Base", "vit"].dataset.name).main_metric == "calibration_error"


def test_a_file_that_has_changed_since_is_asked_for_by_its_content(folder):
    mine = MODEL + "# imported by no other test\n"
    (folder / "own_model.py").write_text(mine)
    name = plugins.pinned("own_model.py:tiny", folder)
    assert plugins.pinned(name, folder) == name
    (folder / "own_model.py").write_text(MODEL + "\n")
    with pytest.raises(VitinitError, match="has another content now"):
        plugins.pinned(name, folder)
    with pytest.raises(VitinitError, match=f"{FOLDERS}=FOLDER says where it is"):
        plugins.load(name)
    (folder / "own_model.py").write_text(mine)
    assert plugins.load(name).__name__ == "tiny"
