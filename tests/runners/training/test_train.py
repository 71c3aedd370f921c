"""The training loop, by hand and by formulas; interruptions; evaluating less often."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console
from torch import nn

from tests.faults.harness import cell_of, cells, setting
from vitinit.benchmark.grids import parts
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.epoch import EpochRow
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store, weights_path
from vitinit.benchmark.spec import Recipe
from vitinit.initializers import registry
from vitinit.initializers.initialize import initialize
from vitinit.initializers.streams import stream
from vitinit.runners.basics.setting import Event
from vitinit.runners.basics.stop import Stop
from vitinit.runners.loaders import open_data
from vitinit.runners.loaders.resident import ResidentLoader
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.terminal.display import Display
from vitinit.runners.training.train import Diverged, Training, evaluate, fingerprint, optimize, train

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
MODEL = ViT(image_size=8, patch_size=2, width=16, depth=2, heads=2)
MIXER = resolve_model({"preset": "convmixer_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 2})
GATED = resolve_model({"preset": "convit_micro", "image_size": 8, "patch_size": 2, "width": 16})


def split(n: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (n,), generator=generator)
    images = torch.randint(0, 192, (n, 3, 8, 8), generator=generator) + 64 * labels[:, None, None, None]
    return Split(images.to(torch.uint8), labels)


@pytest.fixture
def data() -> Data:
    return Data(split(50, 0), split(703, 1), ("dark", "light"), (0.5,) * 3, (0.25,) * 3, "")


def recipe(**fields) -> Recipe:
    settings = {"name": "test", "epochs": 3, "batch_size": 8, "lr": 1e-3, "hflip": 0.5, "crop_padding": 1, **fields}
    return Recipe(**settings)


def timeless(history) -> list[dict]:
    return [row.model_dump(exclude={"seconds", "images_per_s"}) for row in history]


def initialised(seed=0, base="kaiming_uniform", method: str | None = None, model: ModelSpec = MODEL, **of):
    built = build_model(model, 2)
    chosen = registry.build(method, of) if method else None
    initialize(built, registry.build(base, {}), chosen, lambda name: stream(seed, name))
    return built


def fit(model, data: Data, settings: Recipe, seed: int = 0):
    loader = ResidentLoader(data, settings, seed, CPU)
    training = Training(model, settings, loader.steps, CPU)
    train(training, loader, seed)
    return training.history


def run(data: Data, settings: Recipe, seed: int = 0, **kwargs):
    model = initialised(seed, **kwargs)
    return model, fit(model, data, settings, seed)


class Recorder(nn.Module):
    """Stands in for a model: hashes what it is shown."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seen = model, []

    def forward(self, images):
        if self.training:
            self.seen.append(hashlib.sha256(images.numpy().tobytes()).hexdigest())
        return self.model(images)

    def no_weight_decay(self):
        return set()


def test_every_initialiser_sees_the_same_images_in_the_same_order_with_the_same_augmentation(data):
    seen = []
    settings = recipe(rand_augment="rand-m9-mstd0.5-inc1")
    for kwargs in ({"base": "trunc_normal"}, {"method": "mimetic"}, {"method": "impulse"}):
        model = Recorder(initialised(0, **kwargs))
        fit(model, data, settings)
        seen.append(model.seen)
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == len(seen[0]) == 3 * (50 // 8)
    other = Recorder(initialised(1))
    fit(other, data, settings, 1)
    assert not set(other.seen) & set(seen[0])


def test_the_same_spec_gives_the_same_bits_whatever_the_global_generators_hold(data):
    dropping = MODEL.model_copy(update={"drop_path_rate": 0.3, "drop_rate": 0.2})
    torch.manual_seed(1)
    first, history = run(data, recipe(), model=dropping)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second, again = run(data, recipe(), model=dropping)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert timeless(history) == timeless(again)
    other, _ = run(data, recipe(), seed=1, model=dropping)
    assert not torch.equal(first.head.weight, other.head.weight)


def test_evaluation_counts_every_test_image_once(data):
    model = initialised()
    loader = ResidentLoader(data, recipe(), 0, CPU)
    found = evaluate(model, loader, recipe()).metrics
    loss, top1 = found["loss"], found["top1"]
    with torch.inference_mode():
        logits = torch.stack([model(image[None])[0] for image in loader.normalise(data.held_out.images)]).double()
    expected = -logits.log_softmax(-1)[torch.arange(703), data.held_out.labels].mean()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert top1 == pytest.approx(100 * (logits.argmax(-1) == data.held_out.labels).double().mean().item())


def test_a_row_holds_the_learning_rate_of_its_last_step(data):
    """One value per epoch, or the last of its steps; `test_schedules.py` has every value of every schedule."""
    (_, by_epoch), (_, by_step) = (
        run(data, recipe(schedule_per=per, warmup_epochs=1, warmup_lr=1e-5, min_lr=1e-5)) for per in ("epoch", "step")
    )
    assert [row.lr for row in by_epoch] == pytest.approx([1e-5, *(cosine(epoch / 3) for epoch in (1, 2))])
    assert by_step[-1].lr == pytest.approx(cosine(17 / 18))
    _, last_layers = run(
        data, recipe(schedule_per="epoch", warmup_epochs=1, warmup_lr=1e-5, min_lr=1e-5, layer_decay=0.5)
    )
    assert [row.lr for row in last_layers] == pytest.approx([row.lr for row in by_epoch])


def cosine(share: float) -> float:
    return 1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + math.cos(math.pi * share))


def test_the_papers_recipe():
    """paper-facts 1.6: lr 1e-3, warm-up 10 epochs from 1e-5, cosine to 1e-6 over 200 epochs, one value per epoch."""
    paper = parts.resolve_recipe({"name": "structured2404"})
    assert (paper.lr, paper.warmup_epochs, paper.warmup_lr, paper.min_lr) == (1e-3, 10, 1e-5, 1e-6)
    assert (paper.epochs, paper.schedule.name, paper.schedule_per) == (200, "cosine", "epoch")


LEARNED = MODEL.model_copy(update={"position": "learned", "pool": "token"})


@pytest.mark.parametrize("model", [MODEL, LEARNED, GATED], ids=["sincos", "learned", "convit"])
def test_two_steps_are_adamw_by_hand(data, model):
    """Against the formula in plain tensors: matrices decay, positions and class token do not; the norm is clipped."""
    fields = {"batch_size": 50, "weight_decay": 0.1, "clip_grad": 0.5, "eps": 1e-3, "label_smoothing": 0.1, "hflip": 0}
    settings = recipe(epochs=2, betas=(0.8, 0.95), min_lr=1e-3, **fields)
    trained, by_hand = initialised(model=model), initialised(model=model).train()
    loader = ResidentLoader(data, settings, 0, CPU)
    parameters = dict(by_hand.named_parameters())
    first, second = ({name: torch.zeros_like(p) for name, p in parameters.items()} for _ in range(2))
    for step in (1, 2):
        ((images, labels),) = loader.train(step - 1)
        logits = by_hand(images)
        smooth = torch.full_like(logits, 0.05).scatter_(1, labels[:, None], 0.95)
        gradients = torch.autograd.grad(-(smooth * logits.log_softmax(-1)).sum(-1).mean(), list(parameters.values()))
        norm = torch.stack([g.norm() for g in gradients]).norm()
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            g = gradient * min(1.0, 0.5 / (norm.item() + 1e-6))
            decay = 0.1 if parameter.ndim > 1 and name not in ("pos_embed", "cls_token") else 0.0
            first[name] = 0.8 * first[name] + 0.2 * g
            second[name] = 0.95 * second[name] + 0.05 * g**2
            moved = (first[name] / (1 - 0.8**step)) / ((second[name] / (1 - 0.95**step)).sqrt() + 1e-3)
            parameter.data.mul_(1 - 1e-3 * decay).sub_(1e-3 * moved)
    fit(trained, data, settings)
    for name, after in trained.named_parameters():
        assert torch.allclose(after, parameters[name], atol=2e-7), name


def test_compiling_is_done_where_it_is_asked_for_and_nowhere_else(data, monkeypatch):
    compiled = []

    def count(model, **options):
        compiled.append(options)
        return model

    monkeypatch.setattr(torch, "compile", count)
    settings = recipe(epochs=1)
    for asked in (False, True):
        loader = ResidentLoader(data, settings, 0, CPU)
        train(Training(initialised(), settings, loader.steps, CPU), loader, 0, compiled=asked)
        assert compiled == [{"dynamic": False}] * asked


def test_an_epoch_says_how_many_images_a_second_were_trained_on(data, monkeypatch):
    """By a clock that goes on by a second whenever it is read; time without an evaluation is all of training."""
    clock = map(float, itertools.count())
    monkeypatch.setattr("vitinit.runners.training.train.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    _, history = run(data, recipe(evaluate_every=2))
    assert [row.test_top1 is None for row in history] == [True, False, False]
    for row in history:  # six steps, each reads it once; then training, and then the epoch, is over
        assert (row.images_per_s, row.seconds) == (48 / 7, 8)


def test_the_time_of_an_epoch_goes_on_after_a_stop(data, monkeypatch):
    """By the same clock, which is not read between the two sessions."""
    clock = map(float, itertools.count())
    monkeypatch.setattr("vitinit.runners.training.train.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    settings = recipe(epochs=1)
    loader = ResidentLoader(data, settings, 0, CPU)
    first, second = (Training(initialised(), settings, loader.steps, CPU) for _ in range(2))

    def interrupt():
        if first.step == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(first, loader, 0, between_steps=interrupt)
    second.load_state_dict(first.state_dict())
    train(second, loader, 0)
    assert (second.history[0].images_per_s, second.history[0].seconds) == (48 / 7, 8)


def test_a_loss_that_is_no_number_is_an_error(data):
    with pytest.raises(Diverged, match="epoch 1"):
        run(data, recipe(lr=1e20, eps=1e-30))
    settings = recipe(ema=0.9)
    loader = ResidentLoader(data, settings, 0, CPU)
    training = Training(initialised(), settings, loader.steps, CPU)
    with pytest.raises(Diverged, match="epoch 1: test loss of the averaged weights nan"):
        train(training, loader, 0, between_steps=lambda: training.ema.module.head.bias.data.fill_(math.nan))


@pytest.mark.parametrize("method", ["conv_filters", None])
def test_frozen_filters_stay_and_all_else_is_trained(data, method):
    """Weight decay and all; where nothing is frozen, the filters are trained too."""
    before = initialised(method=method, model=MIXER).state_dict()
    model, _ = run(data, recipe(epochs=1, weight_decay=0.5), method=method, model=MIXER)
    same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    spatial = {f"blocks.{block}.0.fn.0.{part}" for block in (0, 1) for part in ("weight", "bias")}
    assert same == (spatial if method else set())


NO_GATING = {"train_gating": False, "gate": 0.0}


@pytest.mark.parametrize(
    ("switches", "frozen"),
    [
        ({}, r"(?!)"),
        ({"train_gating": False}, r"blocks\.[01]\.attn\.gating_param"),
        ({**NO_GATING, "train_gpsa": False, "conv_init": False}, r"blocks\.[01]\.attn\..*"),
    ],
)
def test_frozen_gates_and_gpsa_layers_stay_and_all_else_is_trained(data, switches, frozen):
    """A ConViT of two GPSA layers and one of self-attention: bit for bit, after 18 steps with weight decay."""
    options = {"base": "trunc_normal", "method": "convit_gpsa", "model": GATED, **switches}
    before = initialised(**options).state_dict()
    model, _ = run(data, recipe(weight_decay=0.1), **options)
    stayed = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    expected = {name for name in before if re.fullmatch(frozen, name)}
    # softmax takes away what is added to every key of a query, and with it the gradient
    without_effect = {f"blocks.{layer}.attn.pos_proj.bias" for layer in (0, 1)}
    assert expected <= stayed <= expected | without_effect
    if not switches.get("train_gating", True):
        gates = torch.stack([block.attn.gating_param for block in model.blocks[:2]]).sigmoid()
        assert gates.flatten().tolist() == pytest.approx([0.5 if "gate" in switches else 0.7310586] * 8)


def test_batch_norm_evaluates_with_its_running_statistics(data):
    """So what a test image gives does not depend on the images beside it."""
    model, history = run(data, recipe(epochs=1), model=MIXER)
    loader = ResidentLoader(data, recipe(), 0, CPU)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    whole, in_parts = (evaluate(model, loader, recipe(), micro_batch=size) for size in (None, 7))
    assert whole.metrics == pytest.approx(in_parts.metrics, rel=1e-5)
    assert whole.correct == in_parts.correct
    last = history[-1]
    assert whole.metrics == {"loss": last.test_loss, "top1": last.test_top1, **last.metrics}
    assert last.metrics.keys() >= {"calibration_error", "class_accuracy_0", "class_accuracy_1"}
    assert all("class_accuracy_0" not in row.metrics and "calibration_error" in row.metrics for row in history[:-1])
    assert int(model.stem[2].num_batches_tracked) == 50 // 8
    assert all(torch.equal(value, buffers[name]) for name, value in model.named_buffers())


def test_reduced_precision_trains_close_to_fp32(data):
    _, full = run(data, recipe(epochs=2))
    for precision in ("bf16", "fp16"):
        _, reduced = run(data, recipe(epochs=2, precision=precision))
        assert reduced[-1].train_loss == pytest.approx(full[-1].train_loss, abs=0.02)
        assert reduced[-1].train_loss != full[-1].train_loss


def test_gradients_are_clipped_at_the_size_that_they_have_without_the_scale_of_fp16(data):
    """A step of plain SGD is as long as its rate times the bound."""
    plain = {"name": "sgd", "params": {"momentum": 0.0, "nesterov": False}}
    settings = recipe(precision="fp16", clip_grad=0.01, optimizer=plain, weight_decay=0.0, lr=1.0)
    model, loader = initialised(), ResidentLoader(data, settings, 0, CPU)
    before = [value.detach().clone() for value in model.parameters()]
    optimize(Training(model, settings, 6, CPU), model.train(), [next(loader.train(0))], [0], 1)
    moved = [(value.detach() - old).norm() for value, old in zip(model.parameters(), before, strict=True)]
    assert float(torch.stack(moved).norm()) == pytest.approx(0.01, rel=1e-3)


class Interrupted(Exception):
    pass


def interrupted_everywhere(begin: Callable[[int], Training], loader, file: Path) -> tuple[Training, int]:
    """Train with interruptions wherever one may be; each time another training, with other weights, takes it up."""
    training, taken_up = begin(0), 0
    longest = 4 if training.ema else 3  # an evaluation begins anew, and must come to its end now and then
    while training.epoch < training.recipe.epochs:
        calls = itertools.count()

        def interrupt():
            if next(calls) > taken_up % longest:  # noqa: B023
                torch.save(training.state_dict(), file)  # noqa: B023
                raise Interrupted

        try:
            train(training, loader, 0, between_steps=interrupt)
        except Interrupted:
            training = begin(7)
            training.load_state_dict(torch.load(file, weights_only=True))
            taken_up += 1
    return training, taken_up


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"rand_augment": "rand-m9-mstd0.5-inc1"}, {"drop_path_rate": 0.3, "drop_rate": 0.2}),
        ({"schedule_per": "step", "warmup_epochs": 1, "weight_decay": 0.05, "precision": "fp16", "clip_grad": 1.0}, {}),
        ({"ema": 0.9}, {"drop_rate": 0.2}),
    ],
)
def test_interrupted_anywhere_and_taken_up_from_a_file_it_ends_with_the_same_bits(data, tmp_path, settings, model):
    """Interrupted at every place where it may be: each step of each epoch, each batch of each evaluation."""
    spec, what = MODEL.model_copy(update=model), recipe(**settings)
    loader = ResidentLoader(data, what, 0, CPU)
    whole = Training(initialised(model=spec), what, loader.steps, CPU)
    places = []
    train(whole, loader, 0, between_steps=lambda: places.append(None))
    evaluations = math.ceil(703 / 500) * (2 if what.ema else 1)
    assert len(places) == 3 * (50 // 8 + evaluations + 1)

    training, taken_up = interrupted_everywhere(
        lambda seed: Training(initialised(seed, model=spec), what, loader.steps, CPU), loader, tmp_path / "state"
    )
    assert taken_up >= 8
    for (name, expected), found in zip(
        whole.model.state_dict().items(), training.model.state_dict().values(), strict=True
    ):
        assert torch.equal(expected, found), name
    assert fingerprint(whole.model) == fingerprint(training.model)
    if whole.ema:
        assert fingerprint(whole.ema.module) == fingerprint(training.ema.module) != fingerprint(whole.model)
    assert timeless(whole.history) == timeless(training.history)
    assert whole.correct == training.correct


def test_the_average_is_that_of_the_weights_after_each_step_and_has_a_score_of_its_own(data):
    settings = recipe(ema=0.7, epochs=2)
    loader = ResidentLoader(data, settings, 0, CPU)
    training, expected = Training(initialised(), settings, loader.steps, CPU), {}

    def after_a_step():
        if training.step and training.total_steps > seen[0]:
            seen[0] = training.total_steps
            for name, value in training.model.state_dict().items():
                expected[name] = 0.7 * expected[name] + 0.3 * value.double() if name in expected else value.double()

    seen = [0]
    train(training, loader, 0, between_steps=after_a_step)
    for name, value in training.ema.module.state_dict().items():
        torch.testing.assert_close(value.double(), expected[name], rtol=0, atol=1e-6)
    scores = evaluate(training.ema.module, loader, settings).metrics
    assert (training.history[-1].ema_loss, training.history[-1].ema_score) == (scores["loss"], scores["top1"])
    assert scores["loss"] != training.history[-1].test_loss
    plain = run(data, recipe(epochs=2))[1]
    assert [row.test_loss for row in plain] == [row.test_loss for row in training.history]
    assert "ema_loss" not in plain[0].model_dump()


def test_the_gradient_scale_is_part_of_the_state():
    settings = recipe(precision="fp16")
    first, second = (Training(initialised(), settings, 6, CPU) for _ in range(2))
    state = first.state_dict()
    state["scaler"] |= {"scale": 1024.0, "_growth_tracker": 7}
    second.load_state_dict(state)
    assert second.scaler.get_scale() == 1024.0
    assert second.state_dict()["scaler"] == state["scaler"]


def test_a_fingerprint_sees_every_bit():
    model = nn.BatchNorm1d(3)
    seen = {fingerprint(model)}
    for tensor in (model.weight, model.bias, model.running_mean, model.running_var, model.num_batches_tracked):
        with torch.no_grad():
            flat = tensor.view(-1)
            bits = flat.view(torch.int32) if tensor.is_floating_point() else flat
            bits[-1] ^= 1
        seen.add(fingerprint(model))
    assert len(seen) == 6


# Evaluating less often: the same training, and the same numbers where there are some.


EPOCHS = 5


def every(cell: Cell, epochs: int) -> Cell:
    recipe = cell.spec.recipe.model_copy(update={"evaluate_every": epochs})
    return replace(cell, spec=cell.spec.model_copy(update={"recipe": recipe}))


@pytest.mark.long
def test_fewer_evaluations_are_some_of_all_and_change_nothing_else(tmp_path):
    often = cell_of("dropout", tmp_path, EPOCHS)
    seldom = every(often, 2)
    assert seldom.run_id != often.run_id, "the best epoch depends on how many there are to choose from"
    whole = setting(tmp_path)
    for cell in (often, seldom):
        carry_out(cell, whole, Stop())

    done = Store(whole.root).read("faults").done
    all_rows, some_rows = done[often.run_id].history, done[seldom.run_id].history
    assert [row.train_loss for row in all_rows] == [row.train_loss for row in some_rows]
    assert done[often.run_id].weights == done[seldom.run_id].weights
    assert [row.epoch for row in some_rows if row.test_top1 is not None] == [2, 4, 5]
    for epoch in (2, 4, 5):
        first, second = all_rows[epoch - 1], some_rows[epoch - 1]
        assert (first.test_loss, first.test_top1) == (second.test_loss, second.test_top1)
    assert [probe.epoch for probe in done[seldom.run_id].probes] == [0, 2, 4, 5]
    before = {probe.epoch: probe.nonlocality for probe in done[often.run_id].probes}
    assert all(probe.nonlocality == before[probe.epoch] for probe in done[seldom.run_id].probes)
    best, top1 = done[seldom.run_id].best
    assert top1 == max(all_rows[epoch - 1].test_top1 for epoch in (2, 4, 5))
    assert best in (2, 4, 5)
    refuses_other_epochs(done[seldom.run_id])


def test_a_record_holds_which_test_images_are_correct(tmp_path):
    """Against the weights that were kept, evaluated one image at a time from the pixels on."""
    cell, where = cell_of("dropout", tmp_path), setting(tmp_path)
    carry_out(cell, where, Stop())
    record = Store(tmp_path).read("faults").done[cell.run_id]
    opened = open_data(cell.spec.dataset, 8, tmp_path, "resident")
    held_out = opened.held_out
    model = build_model(cell.spec.model, 10).eval()
    model.load_state_dict(torch.load(weights_path(tmp_path, "faults", cell.run_id), weights_only=True))
    mean, std = (torch.tensor(each)[:, None, None] for each in (opened.mean, opened.std))
    expected = []
    with torch.inference_mode():
        for image, label in zip(held_out.images, held_out.labels, strict=True):
            expected.append(int(model(((image / 255 - mean) / std)[None]).argmax()) == int(label))
    assert record.correct_images == expected
    assert 100 * sum(expected) / 360 == record.score
    assert 0 < sum(expected) < 360
    assert len(record.correct) == 60  # 45 bytes


def refuses_other_epochs(record: RunRecord) -> None:
    for epoch, name, value in ((1, "test_top1", 50.0), (4, "test_loss", None), (5, "test_top1", None)):
        content = json.loads(record.model_dump_json())
        content["history"][epoch - 1][name] = value
        with pytest.raises(ValidationError, match=f"does not hold {name} of the epochs that are evaluated"):
            RunRecord.model_validate(content)


def test_progress_shows_the_latest_accuracy(tmp_path):
    cell = cells(tmp_path, EPOCHS)[0]
    texts = []
    with Display(Console(file=StringIO(), width=160)) as display:
        display.begin([cell], {cell.run_id: 1.0})
        display.start(cell)
        for epoch, top1 in ((1, None), (2, 41.25), (3, None)):
            loss = None if top1 is None else 1.0
            row = EpochRow(
                epoch=epoch, lr=0.1, train_loss=1.0, test_loss=loss, test_top1=top1, seconds=1, images_per_s=900
            )
            display.event(Event(cell.run_id, epoch=row))
            texts.append(display._progress.tasks[-1].fields["text"])
    assert texts == [
        "epoch 1/5, 900 images/s",
        "epoch 2/5, top-1 41.2%, 900 images/s",
        "epoch 3/5, top-1 41.2%, 900 images/s",
    ]
