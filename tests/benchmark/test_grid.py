"""Grids: rows, sweeps and `--set` become runs, counted by hand; classes in files beside them; the identity of a run."""

import json
from contextlib import suppress
from copy import deepcopy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from stored_records import REFERENCE

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.grids import grid
from vitinit.benchmark.identity import TABLE
from vitinit.benchmark.records.record import from_bytes, to_bytes
from vitinit.benchmark.settings import named_fields
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.initializers import plugins, registry
from vitinit.initializers.errors import VitinitError
from vitinit.runners.launching.selection import fixed_values, matches

GRID = """
title: swept
rows:
  Base: {base: trunc_normal, recipe: {lr: 0.5}}
  Mimetic: {base: trunc_normal, method: mimetic}
blocks:
  - datasets: [{name: digits, train_size: 100}]
    model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
    recipe: {name: small, epochs: 1, batch_size: 8}
    seeds: 0-1
    sweep: {}
"""


def load(folder, *changes, **fixed):
    text = GRID
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "swept.yaml").write_text(text)
    return grid.load(
        str(folder / "swept.yaml"), fixed={name.replace("__", "."): value for name, value in fixed.items()}
    )


def cells(folder, sweep="{}", **fixed):
    return load(folder, ("sweep: {}", f"sweep: {sweep}"), **fixed).cells


def test_runs_are_in_table_order_and_fully_resolved(tmp_path):
    runs = load(tmp_path, ("100}]", "100}, cifar10]"), ("seeds: 0-1", "seeds: [3, 0]")).cells
    assert [(cell.row, cell.spec.dataset.label, cell.spec.seed) for cell in runs] == [
        (row, dataset, seed) for dataset, row, seed in product(("digits[100]", "cifar10"), ("Base", "Mimetic"), (3, 0))
    ]
    assert all(cell.spec.method is None or "noise" in cell.spec.method.params for cell in runs), "with its defaults"


def test_fields_are_crossed_and_win_over_those_of_rows(tmp_path):
    runs = cells(tmp_path, "{recipe.lr: [3e-4, 1e-3], model.width: [48, 96], dataset.train_size: [50, 100]}")
    settings = {(c.row, c.spec.recipe.lr, c.spec.model.width, c.spec.dataset.train_size, c.spec.seed) for c in runs}
    assert settings == set(product(("Base", "Mimetic"), (3e-4, 1e-3), (48, 96), (50, 100), (0, 1)))
    assert len({cell.run_id for cell in runs}) == len(runs) == 32
    assert len({cell.place for cell in runs}) == 16, "every combination has a cell of its own in tables"
    assert {c.spec.recipe.lr for c in runs if matches(c, "lr=3e-4")} == {3e-4}
    assert all(matches(c, "train_size=*0") and matches(c, "recipe.batch_size=8") for c in runs)


def test_a_field_that_is_set_takes_the_place_of_a_sweep_and_is_the_run_that_is_written_out(tmp_path):
    fixed = fixed_values(["recipe.lr=1e-3", "recipe.schedule={name: wsd, cooldown: 0.3}"])
    assert fixed == {"recipe.lr": 0.001, "recipe.schedule": {"name": "wsd", "cooldown": 0.3}}
    swept = cells(tmp_path, "{recipe.lr: [0.1, 0.2], model.width: [48, 96]}", recipe__epochs=10, **fixed)
    written = [
        ("lr: 0.5", "lr: 0.001"),
        ("epochs: 1", "epochs: 10, lr: 0.001, schedule: {name: wsd, cooldown: 0.3}"),
    ]
    by_hand = [
        run for width in (48, 96) for run in load(tmp_path, *written, ("depth: 1", f"depth: 1, width: {width}")).cells
    ]
    assert {c.run_id for c in swept} == {c.run_id for c in by_hand}


def test_names_of_fields_that_two_parts_have_stand_for_neither(tmp_path):
    swept = cells(tmp_path, "{recipe.augment: [[trivial_augment], [color_jitter, trivial_augment]]}")
    assert sum(matches(c, "augment=color_jitter*, trivial_augment*") for c in swept) == len(swept) / 2
    lion = cells(tmp_path, "{recipe.optimizer.momentum: [0.5, 0.6]}", recipe__optimizer="sgd")
    assert {key: sum(matches(c, f"{key}=0.5") for c in lion) for key in ("optimizer.momentum", "momentum")} == {
        "optimizer.momentum": 4,
        "momentum": 0,
    }
    assert {c.column for c in lion} == {"digits[100] (optimizer.momentum 0.5)", "digits[100] (optimizer.momentum 0.6)"}
    assert {c.column for c in swept} == {
        "digits[100] (augment trivial_augment bins 31)",
        "digits[100] (augment color_jitter brightness 0.3 contrast 0.3 saturation 0.3, trivial_augment bins 31)",
    }
    names = named_fields(swept[0].spec.model_copy(update={"method": InitializerSpec(name="mine", params={"std": 0.5})}))
    assert (names["base.std"], names["method.std"], names.get("std")) == ("0.02", "0.5", None)


def test_merged_anchors_may_be_merged_again(tmp_path):
    rows = "Base: {base: trunc_normal, method: &b {<<: &a {name: impulse, kernel_size: 3}, kernel_size: 5}}\n"
    rows += "  More: {base: trunc_normal, method: {<<: *b, weight_norm: 2.0}}"
    merged = load(tmp_path, ("Base: {base: trunc_normal, recipe: {lr: 0.5}}", rows), ("depth: 1", "depth: 2"))
    assert {c.spec.method.params["kernel_size"] for c in merged.cells if c.row in ("Base", "More")} == {5}


@pytest.mark.parametrize("name", ["r²", "½", "①", "a b", "..", "a/b"])
def test_a_name_that_a_record_would_refuse_is_none_of_a_folder(name):
    """Two engines read the pattern, `re` and pydantic's own: a run would be trained and then not be recorded."""
    assert not is_folder_name(name)
    assert is_folder_name("größe-1.2_x")


# --- identity: it never changes silently, as it decides what counts as recorded already ---


def owners(run):
    """Return the fields of a run, as JSON, by what has them in the table."""
    initializers = [initializer for initializer in (run["base"], run["method"]) if initializer]
    return {"dataset": run["dataset"], "recipe": run["recipe"], f"model.{run['model']['arch']}": run["model"]} | {
        f"initializer.{initializer['name']}": initializer["params"] for initializer in initializers
    }


def test_a_record_of_before_a_field_came_or_after_it_went_has_its_id_and_is_unchanged_by_reading():
    for path in REFERENCE:
        record = from_bytes(path.read_bytes())
        assert from_bytes(to_bytes(record)) == record
        content = json.loads(path.read_bytes())["spec"]
        old, whole = deepcopy(content), deepcopy(content)
        for owner, fields in owners(old).items():
            for name in {**TABLE["came"].get(owner, {}), **TABLE["gone"].get(owner, {})}:
                fields.pop(name, None)
        for owner, fields in owners(whole).items():
            fields.update({**TABLE["came"].get(owner, {}), **TABLE["gone"].get(owner, {}), **fields})
        assert {RunSpec.model_validate(spec).run_id for spec in (content, old, whole)} == {record.run_id} == {path.stem}


def test_a_parameter_that_came_later_is_none_inside_a_placebo_either():
    of = {"name": "mimetic", "alpha_qk": 0.5}
    old, new, other = (
        reference_run(method={"name": "placebo", "params": {"keep": "norm", "of": of | later}})
        for later in ({}, {"parts": "both", "mlp_mean": 0.0}, {"parts": "qk"})
    )
    assert (old, old.run_id) == (new, new.run_id)
    assert other.run_id != old.run_id


KINDS = {"dataset": DatasetSpec, "base": InitializerSpec, "method": InitializerSpec, "recipe": Recipe}
FIELDS = yaml.safe_load(Path(__file__).with_name("field_values.yaml").read_bytes())


def reference_run(**parts):
    return RunSpec.model_validate(json.loads(REFERENCE[0].read_bytes())["spec"] | parts)


@pytest.mark.parametrize("owner", KINDS)
def test_every_field_counts(owner):
    """Each value of a field is another run."""
    content = json.loads(REFERENCE[0].read_bytes())["spec"][owner]
    for field in KINDS[owner].model_fields.keys() - {"home"}:  # where a path begins, which is no identity
        base = {**content, **FIELDS["together"].get(f"{owner}.{field}", {})}
        runs = [reference_run(**{owner: base})]
        for value in FIELDS["values"]:
            with suppress(ValidationError, VitinitError):
                runs.append(reference_run(**{owner: {**base, field: value}}))
        values = {repr(getattr(getattr(run, owner), field)) for run in runs}
        assert len(values) > 1, f"{field}: give it another value in field_values.yaml"
        assert len({run.run_id for run in runs}) == len(values), field


# --- classes in files beside a grid: relative to it, and identified by their content ---


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
OWN = """
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
    monkeypatch.setenv(plugins.FOLDERS, "")
    return written(tmp_path / "first")


def written(folder):
    (folder / "parts").mkdir(parents=True)
    for name, text in {"parts/own_method.py": METHOD, "own_model.py": MODEL, "own_data.py": DATA}.items():
        (folder / name).write_text(text)
    (folder / "own.yaml").write_text(OWN)
    return folder


def specs(folder):
    return {(cell.row, cell.spec.model.arch): cell.spec for cell in grid.load(str(folder / "own.yaml")).cells}


def test_the_folder_changes_no_run_and_the_content_of_a_file_those_that_use_it(folder, tmp_path):
    first, again = specs(folder), specs(written(tmp_path / "second"))
    assert {place: spec.run_id for place, spec in first.items()} == {key: spec.run_id for key, spec in again.items()}
    (folder / "parts" / "own_method.py").write_text(METHOD.replace("0.5", "0.75"))
    edited = specs(folder)
    assert {row for row, arch in first if first[row, arch].run_id != edited[row, arch].run_id} == {"Mine", "Placebo"}
    params = [specs_by_row["Placebo", "vit"].method.params["of"] for specs_by_row in (first, edited)]
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
    with pytest.raises(VitinitError, match=f"{plugins.FOLDERS}=FOLDER says where it is"):
        plugins.load(name)
    (folder / "own_model.py").write_text(mine)
    assert plugins.load(name).__name__ == "tiny"
