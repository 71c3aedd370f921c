"""Training and loaders on a pretended GPU: one device, its generators, and no step that waits for it."""

from functools import partial

import pytest
import torch

from tests.faults.harness import assert_same, cell_of, setting, stopped_after
from tests.pretended_gpu import GPU, Refused, Stream, pretended_gpu
from tests.runners import small_run
from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import AugmentationSpec, DatasetSpec
from vitinit.runners.basics.setting import Execution, Stop
from vitinit.runners.loaders.base import FullSizeLoader, Loader, ResidentLoader
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training.train import Training, fingerprint, train

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE, CPU = 16, torch.device("cpu")


class FromDisk(Loader):
    """A loader whose images are in main memory, as FFCV's are."""

    name = "disk"

    def __init__(self, data, *arguments):
        super().__init__(data, *arguments)
        self._data = data

    def read(self, split, batches, epoch=None):
        return (getattr(self._data, split).images[numbers] for numbers in batches)


class InPlace(FromDisk):
    """Reads each batch into the same page-locked memory."""

    def read(self, split, batches, epoch=None):
        memory = torch.empty((8, 3, SIZE, SIZE), dtype=torch.uint8, pin_memory=True)
        return (memory[: len(images)].copy_(images) for images in super().read(split, batches, epoch))


def split(count, dense):
    draws = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, SIZE, SIZE), generator=draws, dtype=torch.uint8)
    labels = torch.randint(3, (count, SIZE, SIZE) if dense else (count,), generator=draws)
    return Split(images, labels.to(torch.uint8) if dense else labels)


def trained(
    device,
    recipe,
    model,
    kind=ResidentLoader,
    dense=False,
    change=lambda model: None,
    gpu=None,
    data=None,
    micro_batch=None,
    **how,
):
    """Train from seed 0; return what the weights and the losses became.

    On a GPU no step may wait for it, but the first two of an epoch.
    """
    data = data or Data(split(36, dense), split(12, dense), ("a", "b", "c"), (0.5,) * 3, (0.25,) * 3, "", SIZE)
    loader = kind(data, recipe, 0, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = build_model(model, len(data.classes), dense).to(device)
    training = Training(built, recipe, loader.steps, device, micro_batch=micro_batch)
    change(training.model)
    last = (0, 0)

    def between_steps():
        nonlocal last
        now = training.epoch, training.step
        if gpu and now == (last[0], last[1] + 1) and last[1]:
            gpu.check()
            assert not gpu.faults, gpu.faults
        last = now
        if gpu:
            gpu.faults.clear()

    train(training, loader, between_steps=between_steps, **how)
    return fingerprint(training.model), [row.train_loss for row in training.history]


recipe = partial(small_run.recipe, epochs=2)


def preset(name, **fields):
    return resolve_model({"preset": name, "image_size": SIZE, "patch_size": 4, "depth": 2, **fields})


VIT = preset("vit_micro")


def the_same_on_both(what, model, waits=False, **how):
    expected = trained(CPU, what, model, **how)
    with pretended_gpu() as gpu:
        assert trained(GPU, what, model, gpu=None if waits else gpu, **how) == expected
        assert gpu.here


@pytest.mark.parametrize(
    ("model", "fields", "how"),
    [
        (VIT, small_run.EVERYTHING["gpu"], {}),
        (VIT, small_run.EVERYTHING["gpu"], {"kind": FromDisk}),
        (preset("convit_micro", gpsa_layers=1), {}, {}),
        (preset("convmixer_micro"), {}, {}),
        (VIT, {"precision": "bf16", "clip_grad": 1.0}, {"micro_batch": 3}),
        (VIT, {"precision": "fp16", "clip_grad": 1.0}, {"micro_batch": 3}),
        (VIT, {"crop_padding": 2, "hflip": 0.5}, {"dense": True}),
    ],
)
def test_every_way_to_train(model, fields, how):
    the_same_on_both(recipe(**fields), model, **how)


@pytest.mark.parametrize("name", augmentations.REGISTRY.by_name())
def test_every_augmentation(name):
    image_by_image = name in ("three_augment", "trivial_augment")  # by Pillow and torchvision, on the CPU
    what = recipe(augment=[AugmentationSpec(name=name)], epochs=1)
    the_same_on_both(what, VIT, waits=image_by_image)


def test_images_decoded_in_full_size(photographs):
    """Crops are drawn and made on the CPU, in threads."""
    data = load(DatasetSpec(name="folder", path=str(photographs)), SIZE, photographs, cropped=True)
    what = recipe(crop_scale=(0.3, 1.0), hflip=0.5, epochs=1, batch_size=32)
    the_same_on_both(what, VIT, kind=FullSizeLoader, data=data)


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("add: all tensors must be on the same device", lambda x: x + torch.zeros(x.shape)),
        (
            "Expected a 'cuda' device type for generator",
            lambda x: x + torch.rand(x.shape, generator=torch._C.Generator(CPU), device=x.device),
        ),
        ("waits for the GPU: _local_scalar_dense", lambda x: x * float(x.detach().sum() > 0)),
        ("waits for the GPU: index", lambda x: x + 0 * x.detach()[x.detach() > 0].sum()),
        ("waits for the GPU: copy of .* to cpu", lambda x: x + x.detach().sum().cpu()),
        ("waits for the GPU: .* by numbers on the CPU", lambda x: x[torch.arange(len(x))]),
        ("is not page-locked", lambda x: x + torch.ones(48).to(x.device, non_blocking=True)),
    ],
)
def test_what_a_model_must_not_do_is_found(fault, wrong):
    def plant(model):
        model.head.register_forward_pre_hook(lambda _, inputs: (wrong(inputs[0]),))

    with pretended_gpu() as gpu, pytest.raises((AssertionError, Refused), match=fault):
        trained(GPU, recipe(epochs=1), VIT, change=plant, gpu=gpu)


@pytest.mark.parametrize(
    ("cls", "method", "fault"),
    [(torch.Tensor, "record_stream", "memory was freed"), (Stream, "wait_event", "does not wait for another stream")],
)
def test_streams_that_do_not_wait_for_each_other_are_found(cls, method, fault, monkeypatch):
    with pretended_gpu() as gpu, monkeypatch.context() as patch:
        patch.setattr(cls, method, lambda *_: None)
        with pytest.raises(AssertionError, match=fault):
            trained(GPU, recipe(epochs=1), VIT, gpu=gpu)


def test_a_batch_that_is_overwritten_while_it_is_sent_is_found():
    with pretended_gpu() as gpu, pytest.raises(AssertionError, match="page-locked memory was changed"):
        trained(GPU, recipe(epochs=1), VIT, InPlace, gpu=gpu)


def test_an_optimiser_that_torch_has_fused_reads_no_number_under_fp16():
    with pretended_gpu() as gpu:
        trained(GPU, recipe(precision="fp16", optimizer={"name": "sgd"}, epochs=1), VIT, gpu=gpu)


@pytest.mark.parametrize("row", ["dropout", "convit"])
def test_a_whole_run_goes_on_from_a_checkpoint_and_is_recorded(row, tmp_path):
    """With a method, probes, masks, dropout and weights; times and places aside, its record is a CPU's."""
    cell = cell_of(row, tmp_path)
    on_cpu, on_gpu = (
        setting(tmp_path / name, execution=Execution(device, 1, "inline"), code={"argv": []})
        for name, device in (("cpu", "cpu"), ("gpu", "cuda"))
    )
    assert carry_out(cell, on_cpu, Stop()).status == "done"
    with pretended_gpu():
        stopped_after(1, cell, on_gpu)
        record = carry_out(cell, on_gpu, Stop())
    assert record.status == "done", record
    assert len(record.sessions) == 2
    assert record.environment["gpu"] == "Pretended GPU"
    assert_same(on_cpu, on_gpu, cell, but=("execution", "environment"))
