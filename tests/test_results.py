"""From records back to Python: a trained model gives its recorded score; tables of runs and epochs."""

import pytest
import torch

import vitinit
from tests.faults.harness import setting
from tests.runners.small_run import spec
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import kept_path
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run.carry_out import carry_out

MODEL = {"timm": "vit_tiny_patch16_224", "img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}
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
