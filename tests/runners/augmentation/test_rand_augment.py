"""RandAugment in batches against timm's own, image by image with PIL: the same draws and the same pixels, bit for bit.

The mean absolute difference to timm's PIL version is 0 for every operation, on photographs, at every magnitude, for
both signs and both interpolations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment

from tests.photographs import pieces
from tests.runners.small_run import DEVICES
from vitinit.benchmark.augmentations import registry
from vitinit.benchmark.augmentations.operations.carry_out import KINDS, carry_out, fill_color
from vitinit.benchmark.augmentations.operations.timm_draws import rand_augment as draw
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive
from vitinit.runners.loaders import base, make_loader

CPU = torch.device("cpu")
MEAN = (0.5, 0.25, 0.125)
FILL = (128, 64, 32)
PAPERS = "rand-m9-mstd0.5-inc1"
EACH_ALONE = [
    f"rand-{magnitude}-n1-p1{increasing}"
    for magnitude in ("m0", "m4", "m9-mstd0.5", "m10-mstd101", "m14-mmax20")
    for increasing in ("", "-inc1")
]
"""Every operation on its own; magnitude 10 with mstd101 is anything from 0 to 10."""


@pytest.fixture(scope="module")
def photographs() -> torch.Tensor:
    return pieces(256)


def posterize(image: Image.Image, bits: int, **_) -> Image.Image:
    """timm's, but also at 0 bits, which Pillow refuses since 13."""
    kept = np.asarray(image) & (0xFF << max(0, 8 - bits) & 0xFF)
    return Image.fromarray(kept.astype(np.uint8)) if bits < 8 else image


def timms(config: str) -> auto_augment.RandAugment:
    transform = auto_augment.rand_augment_transform(config, {"img_mean": FILL})
    for op in transform.ops:
        if op.aug_fn is auto_augment.posterize:
            op.aug_fn = posterize
    return transform


def by_timm(config: str, images: torch.Tensor, seed: int) -> torch.Tensor:
    """Image by image, drawn from the global generators."""
    transform = timms(config)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    pictures = [transform(Image.fromarray(image)) for image in images.permute(0, 2, 3, 1).numpy()]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def ours(config: str, images: torch.Tensor, seed: int, device: str = "cpu") -> torch.Tensor:
    drawn = draw(config, images.shape[-1], len(images), seed)
    return carry_out(images.to(device), drawn, fill_color(MEAN).to(device)).cpu()


@pytest.mark.parametrize("device", DEVICES)
def test_every_operation_is_timms_on_photographs_bit_for_bit(photographs, device):
    differences: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed, config in enumerate(EACH_ALONE):
        images = photographs.roll(seed, 0)[:96]
        kinds = draw(config, 32, len(images), seed)[:, 0, 0].astype(int)
        difference = (ours(config, images, seed, device).int() - by_timm(config, images, seed).int()).abs()
        for kind, of_image in zip(kinds, difference.float().mean((1, 2, 3)).tolist(), strict=True):
            differences[KINDS[kind]].append(of_image)
    assert differences.pop("nothing") == []
    for kind in ("grey", "affine, nearest", "blur"):  # of other augmentations
        assert differences.pop(kind) == []
    for kind, of_images in differences.items():
        print(f"{kind}: mean absolute difference {np.mean(of_images)} over {len(of_images)} images")
        assert len(of_images) > 20, kind
        assert max(of_images) == 0, kind


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("size", "config"),
    [(32, PAPERS), (31, "rand-m9-n4-mstd1"), (2, "rand-m8-n3-mstd0.5-tweights"), (1, "rand-m9-n3-p0.8-mmax15")],
)
def test_operations_after_one_another_are_timms_at_any_size(photographs, config, size, device):
    images = photographs[:64, :, :size, :size]
    before = images.clone()
    expected = by_timm(config, images, 7)
    for layout in (torch.contiguous_format, torch.channels_last):
        assert torch.equal(ours(config, images.contiguous(memory_format=layout), 7, device), expected)
    assert torch.equal(images, before)


@pytest.mark.parametrize("device", DEVICES)
def test_images_without_contrast_are_timms(device):
    """One level, two levels, and noise, in each channel."""
    flat = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    two = torch.where(torch.rand(256, 1, 8, 8) < 0.5, flat, flat.flip(0))
    images = torch.cat([flat, two, torch.randint(0, 256, (256, 3, 8, 8), dtype=torch.uint8)])
    for seed, config in enumerate(["rand-m9-n1-p1-mstd1-inc1", "rand-m5-n2-p1-mstd101"]):
        assert torch.equal(ours(config, images, seed, device), by_timm(config, images, seed))


def test_posterizing_to_0_bits_is_black(photographs):
    """timm asks for it where magnitude noise reaches 10, and raises with Pillow 13."""
    drawn = draw("rand-m10-n1-p1-inc1", 32, 200, 0)
    black = np.flatnonzero((drawn[:, 0, 0] == KINDS.index("posterize")) & (drawn[:, 0, 1] == 0))
    assert len(black) > 3
    result = carry_out(photographs[torch.arange(200)], drawn, fill_color(MEAN))
    assert not result[torch.from_numpy(black)].any()


def test_what_happens_to_an_image_does_not_depend_on_the_others(photographs):
    drawn = draw(PAPERS, 32, len(photographs), 0)
    together = carry_out(photographs, drawn, fill_color(MEAN))
    for number in range(0, len(photographs), 17):
        one = slice(number, number + 1)
        assert torch.equal(carry_out(photographs[one], drawn[one], fill_color(MEAN)), together[one])


@pytest.fixture
def data(photographs) -> Data:
    images = photographs[:144].contiguous()
    split = Split(images, torch.arange(144) % 5)
    return Data(split, split, tuple("abcde"), MEAN, (0.25,) * 3, "")


EVERYTHING = {"hflip": 0.5, "crop_padding": 2, "rand_augment": PAPERS, "mixup": 1.0, "cutmix": 0.8, "mix_images": 12}


def recipe(**fields) -> Recipe:
    return Recipe(**{"name": "test", "epochs": 1, "batch_size": 48, "lr": 1e-3, **fields})


@pytest.mark.parametrize("device", DEVICES)
def test_a_loader_shows_what_timm_makes_of_a_batch_wherever_it_begins(data, device):
    shown = list(make_loader(data, recipe(rand_augment=PAPERS), 3, torch.device(device)).train(1, first_step=1))
    order = make_loader(data, recipe(), 3, CPU).order(1)
    assert len(shown) == 2
    for step, (images, labels) in enumerate(shown, 1):
        numbers = order[48 * step : 48 * (step + 1)]
        expected = by_timm(PAPERS, data.train.images[numbers], derive(3, "randaugment", 1, step))
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, data.std))
        assert torch.equal(labels.cpu(), data.train.labels[numbers])
        torch.testing.assert_close(images.cpu(), (expected.float() / 255 - mean) / std, rtol=0, atol=1e-6)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_batches_are_the_same_however_many_go_through_at_once(data, monkeypatch, threads):
    loader, sizes, shown = make_loader(data, recipe(**EVERYTHING, batch_size=12), 7, CPU), [], {}

    def counted(augmentation, images, *drawn):
        sizes.append(len(images))
        return carry_out(images, *drawn)

    monkeypatch.setattr(registry.REGISTRY.get("rand_augment"), "apply", counted)
    for at_once in (1, 2, 3):
        monkeypatch.setitem(base.TOGETHER_BYTES, "cpu", at_once * 4 * 12 * 3 * 32**2)
        shown[at_once] = [*loader.train(1), *loader.train(1, first_step=1)]
        assert max(sizes) == 12 * at_once
        assert len(shown[at_once]) == 12 + 11
        for ours, alone in zip(shown[at_once], shown[1], strict=True):
            assert all(map(torch.equal, ours, alone))
        assert torch.equal(shown[at_once][1][0], shown[at_once][12][0])


def test_an_epoch_of_few_steps_keeps_every_thread_busy(data, monkeypatch, threads):
    loader, sizes = make_loader(data, recipe(rand_augment=PAPERS, batch_size=12), 7, CPU), []
    cls = registry.REGISTRY.get("rand_augment")
    monkeypatch.setattr(cls, "apply", lambda self, images, *drawn: (sizes.append(len(images)), images)[1])
    assert len(list(loader.train(0))) == 12
    assert sizes == [36] * 4


def test_batches_that_are_kept_stay_as_they_are_and_so_does_the_dataset_which_is_held_once(data):
    before, loader = data.train.images.clone(), make_loader(data, recipe(**EVERYTHING), 0, CPU)
    kept = [(images, images.clone()) for images, _ in loader.train(0)]
    assert all(torch.equal(images, copy) for images, copy in kept)
    assert torch.equal(data.train.images, before)
    for name, split in (("train", data.train), ("held_out", data.held_out)):
        assert loader._images[name].data_ptr() == split.images.data_ptr()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here")
def test_batches_on_a_gpu_are_made_without_waiting_for_it(data):
    loader = make_loader(data, recipe(**EVERYTHING, random_erasing=0.5), 0, torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        batches = list(loader.train(0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(batches) == 3


def test_what_cannot_be_done_is_refused():
    for config, says in (
        ("rand-m9-x3", "timm refuses 'rand-m9-x3'"),
        ("rand-m9-t3a", "'rand-m9-t3a' asks for timm's desaturate, which is not among: posterize, "),
    ):
        with pytest.raises(VitinitError, match=f"augmentation: .*{says}"):
            draw(config, 32, 1, 0)
