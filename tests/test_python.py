"""A study from Python is the grid that is written out; from its records back: trained models, tables, figures."""

from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
import yaml

import vitinit
from tests.benchmark.dataset_helpers import make_folder
from tests.faults.harness import setting
from tests.runners.small_run import spec
from vitinit.benchmark.files.yaml_text import mapping, to_yaml
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import kept_path
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Stop
from vitinit.runners.launching.work import Tally
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.options import LaunchOptions
from vitinit.studies import RunOptions

MODEL = yaml.safe_load(
    "{timm: vit_tiny_patch16_224, img_size: 8, patch_size: 4, embed_dim: 24, depth: 1, num_heads: 3}"
)
RUNS = [spec(), spec(model=resolve_model(MODEL), seed=1, recipe=spec().recipe.model_copy(update={"ema": 0.9}))]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two runs of one study, with weights."""
    root, threads = tmp_path_factory.mktemp("results"), torch.get_num_threads()
    for run in RUNS:
        assert carry_out(Cell("Kaiming uniform", run), setting(root, 1.0, study="tiny"), Stop()).status == "done"
    torch.set_num_threads(threads)
    return root


@pytest.mark.parametrize(("spec", "ema"), [(RUNS[0], False), (RUNS[1], False), (RUNS[1], True)], ids=str)
def test_a_loaded_model_scores_on_its_held_out_images_what_its_record_says(spec, ema, root):
    run = vitinit.load(spec.run_id, root, ema=ema)
    with torch.no_grad():
        right = run.model(run.images).argmax(-1) == run.labels
    score = run.record.last.ema_score if ema else run.record.score
    assert 100 * right.double().mean().item() == pytest.approx(score)
    assert run.record.last.ema_score != run.record.score, "the averaged weights are others"
    assert run.spec == spec
    assert len(run.classes) == 10
    assert torch.equal(run.batch(torch.tensor([3])), run.images[3:4])


def test_weights_that_are_not_there_or_not_the_runs_are_refused(root, tmp_path):
    first, second = (kept_path(root, "tiny", run.run_id, "weights") for run in RUNS)
    content = first.read_bytes()
    other = torch.load(first, weights_only=True)
    try:
        torch.save({name: value + 1 for name, value in other.items()}, first)
        with pytest.raises(VitinitError, match="fingerprint"):
            vitinit.load(spec().run_id, root)
        first.write_bytes(second.read_bytes())
        with pytest.raises(VitinitError, match="cannot be read"):
            vitinit.load(spec().run_id, root)
        first.unlink()
        with pytest.raises(VitinitError, match="--keep-weights"):
            vitinit.load(spec().run_id, root)
    finally:
        first.write_bytes(content)
    with pytest.raises(VitinitError, match="its recipe has no ema"):
        vitinit.load(spec().run_id, root, ema=True)
    run = vitinit.load(spec().run_id, root)
    digest = run.record.dataset.checksum
    run.record.dataset.__dict__["checksum"] = "other images"
    with pytest.raises(VitinitError, match=f"are not those of the run: checksum {digest[:12]}, not other images$"):
        _ = run.images


def test_tables_have_a_row_a_run_and_a_row_an_epoch(root):
    runs, epochs = vitinit.records("tiny", root), vitinit.epochs(results=root)
    assert set(runs["run_id"]) == {run.run_id for run in RUNS}
    assert runs.set_index("run_id")["ema_score"].notna().to_dict() == {RUNS[0].run_id: False, RUNS[1].run_id: True}
    assert runs.set_index("run_id").loc[spec().run_id, "model.width"] == 48
    assert epochs.groupby("run_id").size().tolist() == [2, 2]


# --- studies ---


ASKED = yaml.safe_load("""
rows:
  Trunc normal: {base: trunc_normal}
  Mimetic: {base: trunc_normal, method: mimetic}
datasets: [{name: digits, train_size: 100}]
recipe: {epochs: 1, batch_size: 50}
model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
""")
ASKED["seeds"], ROWS = range(2), ASKED["rows"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("of") / "many" / "results"
    return vitinit.run(**ASKED, results=root, device="cpu", executor="inline")


@pytest.mark.long
def test_it_has_a_run_for_each_row_and_seed_and_the_same_call_runs_nothing_twice(study):
    runs = vitinit.records(study.name, study.results)
    assert {*zip(runs["row"], runs["seed"], strict=True)} == {(row, seed) for row in ROWS for seed in range(2)}
    assert set(runs["recipe.batch_size"]) == {50}
    again = vitinit.run(**ASKED, results=study.results, device="cpu")
    assert again == study == vitinit.study(study.name, study.results)
    assert list(vitinit.records(study.name, study.results)["seconds"]) == list(runs["seconds"])


def test_it_shows_its_table_and_figures(study):
    mean = vitinit.records(study.name, study.results).query("row == 'Mimetic'")["top1"].mean()
    html = study.table()._repr_html_()
    assert "Mimetic" in html
    assert f"{mean:.1f}" in html
    assert f"{mean:.1f}" in str(study.table())
    assert study._repr_html_() == html
    figure = study.plot()
    assert figure.axes["digits (100 images)"] in figure.figure.axes
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(VitinitError, match="did you mean 'accuracy'"):
        study.plot("accuracies")


def test_a_refused_study_leaves_no_grid_and_one_that_is_there_is_not_overwritten(tmp_path):
    asked, mine = {**ASKED, "results": tmp_path, "device": "cpu"}, tmp_path / "mine.yaml"
    with pytest.raises(VitinitError, match="did you mean 'trunc_normal'"):
        vitinit.run(**{**asked, "rows": {"A": {"base": "trunc_norml"}}})
    assert not list(tmp_path.rglob("*.*"))
    mine.write_text("title: mine\n")
    with pytest.raises(VitinitError, match="mine.yaml is another grid: give another name, or remove it"):
        vitinit.run(**asked, name="mine")
    assert mine.read_text() == "title: mine\n"


def test_what_a_person_leaves_out_is_as_usual(tmp_path, monkeypatch):
    grids = []
    monkeypatch.setattr("vitinit.runners.launching.launch.launch", lambda grid, *_: grids.append(grid) or Tally())
    monkeypatch.chdir(tmp_path)
    make_folder(Path("images"), {"a": 5, "b": 5})
    whole = {"preset": "vit_tiny", "image_size": 32, "patch_size": 4}
    short = {"contrasts": ("Mimetic", "Trunc normal"), "sweep": {"recipe.lr": 0.1}, "only": "row=Mimetic"}
    vitinit.run(ROWS, "folder:images", seeds=np.int64(2), model="vit_tiny", results="results", **short)
    long = {"contrasts": [("Mimetic", "Trunc normal")], "sweep": {"recipe.lr": [0.1]}, "only": ["row=Mimetic"]}
    long |= {"datasets": [f"folder:{tmp_path}/images"], "seeds": np.arange(2), "model": whole, "results": "results"}
    for rows in (ROWS, dict(reversed(ROWS.items()))):
        vitinit.run(rows, **long)
    first, second = ([(cell.row, cell.spec.model, cell.spec.seed) for cell in grid.cells] for grid in grids[:2])
    assert first == second
    assert grids[0].registered.contrasts == grids[1].registered.contrasts
    assert (grids[2].name, grids[2].layout.rows) == (grids[1].name, grids[1].layout.rows[::-1])
    assert {cell.spec.dataset.root for grid in grids for cell in grid.cells} == {tmp_path / "images"}


def test_what_it_writes_is_read_as_the_same_words():
    words = {word: word for word in ("1e3", "-1.5E-3", "010", "1:30", "on")}
    assert mapping(to_yaml(words), Path("grid.yaml")) == words


def test_its_options_are_those_of_the_command():
    ours, theirs = get_type_hints(RunOptions), get_type_hints(LaunchOptions)
    assert ours.keys() == theirs.keys() - {"results", "asked"}
    for name, option in ours.items():
        assert {*get_args(theirs[name])} - {NoneType, list[str]} <= {*get_args(option)}, name
