"""Images from the disk: timm's transforms, and nothing depends on threads, processes or the point of a resume."""

from __future__ import annotations

import random
import shutil
import threading

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from timm.data import create_transform
from timm.data.auto_augment import rand_augment_transform
from timm.data.transforms import RandomResizedCropAndInterpolation

from benchmark.datasets.load import load
from benchmark.grids import grid
from benchmark.records.store import Store
from benchmark.spec import DatasetSpec, Recipe
from initializers.errors import VitinitError
from runners.basics.setting import Execution, Interval, Setting
from runners.basics.shard import Shard
from runners.basics.stop import Stop, Stopped
from runners.basics.streams import derive
from runners.loaders import make_loader
from runners.loaders.packed import PackedLoader, random_resized_crop
from runners.one_run.carry_out import carry_out
from tests.faults.harness import assert_same

CPU = torch.device("cpu")
SIZE = 32
EVERYTHING = {
    "hflip": 0.5,
    "rand_augment": "rand-m9-mstd0.5-inc1",
    "mixup": 1.0,
    "cutmix": 0.8,
    "random_erasing": 0.25,
    "crop_scale": (0.08, 1.0),
    "crop_pct": 0.9,
}


def recipe(**fields) -> Recipe:
    return Recipe(**{"name": "test", "epochs": 1, "batch_size": 300, "lr": 1e-3, **fields})


@pytest.fixture
def data(imagenet_dir):
    return load(DatasetSpec(name="imagenet"), SIZE, imagenet_dir)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    assert decoding() == []


def decoding() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]


@pytest.mark.parametrize(("size", "crop_pct"), [(32, 0.9), (32, 1.0), (224, 0.875)])
def test_test_images_are_timms_but_for_the_last_bit_of_normalising(imagenet_source, imagenet_dir, size, crop_pct):
    data = load(DatasetSpec(name="imagenet"), size, imagenet_dir)
    evaluation = create_transform(
        (3, size, size),
        is_training=False,
        interpolation="bicubic",
        crop_pct=crop_pct,
        mean=data.mean,
        std=data.std,
    )
    images, labels = next(make_loader(data, recipe(crop_pct=crop_pct), 0, CPU).held_out())
    assert labels.tolist() == list(range(500))
    for path, ours in list(zip(sorted((imagenet_source / "val").glob("*/*")), images, strict=False))[:: size // 16]:
        with Image.open(path) as image:
            torch.testing.assert_close(ours, evaluation(image.convert("RGB")), rtol=0, atol=1e-6)


def test_the_whole_test_split_is_seen_in_order_by_one_and_by_several(data):
    alone = list(make_loader(data, recipe(), 0, CPU).held_out())
    assert torch.equal(torch.cat([labels for _, labels in alone]), data.held_out.labels)
    parts = [batch for rank in range(3) for batch in make_loader(data, recipe(), 0, CPU, Shard(rank, 3)).held_out()]
    for kind in (0, 1):
        assert torch.equal(torch.cat([batch[kind] for batch in alone]), torch.cat([batch[kind] for batch in parts]))


def test_random_resized_crop_is_timms_pixel_for_pixel(data):
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 300, 3), dtype=np.uint8))
    for scale, ratio in (((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.5, 0.6))):
        timm = RandomResizedCropAndInterpolation(SIZE, scale, ratio, interpolation="random")
        for seed, image in enumerate([data.train.image(number) for number in range(60)] + [wide, wide.rotate(90)] * 9):
            random.seed(seed)
            expected = timm(image)
            ours = random_resized_crop(image, SIZE, scale, ratio, random.Random(seed))
            assert np.array_equal(np.asarray(ours), np.asarray(expected))


def test_rand_augment_is_timms_on_the_cropped_images_with_draws_of_each_image(data):
    config = "rand-m5-mstd0.5-inc1"  # at magnitude 5 posterize never reaches 0 bits, where timm raises with Pillow 13
    cropped, _ = next(make_loader(data, recipe(hflip=0.5, crop_scale=(0.08, 1.0)), 3, CPU).train(1))
    loader = make_loader(data, recipe(hflip=0.5, crop_scale=(0.08, 1.0), rand_augment=config), 3, CPU)
    changed, _ = next(loader.train(1))
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.mean, data.std))
    timm = rand_augment_transform(config, {"img_mean": tuple(round(255 * channel) for channel in data.mean)})
    pixels = ((cropped * std + mean) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    for number, image, ours in zip(loader.order(1).tolist(), pixels[:100], changed, strict=False):
        seed = derive(3, "randaugment", 1, number)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        expected = torch.from_numpy(np.array(timm(Image.fromarray(image)))).permute(2, 0, 1)
        torch.testing.assert_close(ours, (expected.float() / 255 - mean) / std, rtol=0, atol=1e-6)


def test_an_epoch_shows_every_image_once_but_the_ragged_rest(data):
    loader = make_loader(data, recipe(batch_size=400), 0, CPU)
    labels = torch.cat([labels for _, labels in loader.train(0)])
    assert loader.steps == 3
    assert len(labels) == 1200
    assert (torch.bincount(labels, minlength=1000) <= torch.bincount(data.train.labels)).all()
    images, _ = next(loader.train(0))
    assert torch.equal(images[:20], loader.plain(loader.order(0)[:20]))


def test_threads_processes_and_the_point_of_a_resume_change_nothing(data):
    settings = recipe(batch_size=200, mix_images=50, **EVERYTHING)
    torch.set_num_threads(1)
    alone = list(make_loader(data, settings, 7, CPU).train(2))
    torch.set_num_threads(3)
    assert len(alone) == 6
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    for size in (1, 2, 3):
        parts = [list(make_loader(data, settings, 7, CPU, Shard(rank, size)).train(2, 4)) for rank in range(size)]
        for step, (images, targets) in enumerate(alone[4:]):
            assert torch.equal(images, torch.cat([part[step][0] for part in parts]))
            assert torch.equal(targets, torch.cat([part[step][1] for part in parts]))
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    for other in (make_loader(data, settings, 8, CPU).train(2), make_loader(data, settings, 7, CPU).train(3)):
        assert not torch.equal(next(other)[0], alone[0][0])


def test_each_part_of_the_augmentation_does_something(data):
    def first(**fields):
        return next(make_loader(data, recipe(batch_size=100, **fields), 0, CPU).train(0))[0]

    shown = [first(), *(first(**{name: EVERYTHING[name]}) for name in EVERYTHING)]
    for number, images in enumerate(shown):
        assert not any(torch.equal(images, other) for other in shown[:number])


def test_flips_come_at_their_rate(data):
    plain, _ = next(make_loader(data, recipe(), 0, CPU).train(0))
    flipped, _ = next(make_loader(data, recipe(hflip=0.3), 0, CPU).train(0))
    mirrored = (flipped == plain.flip(-1)).flatten(1).all(1)
    assert (mirrored | (flipped == plain).flatten(1).all(1)).all()
    assert abs(mirrored.float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / 300) ** 0.5


def test_an_iterator_that_is_closed_early_leaves_no_threads(data):
    batches = make_loader(data, recipe(batch_size=100, **EVERYTHING), 0, CPU).train(0)
    next(batches)
    assert decoding()
    batches.close()
    assert decoding() == []
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("batch")]


def test_an_error_in_a_thread_ends_the_iteration_with_it(data, imagenet_dir, tmp_path):
    shutil.copytree(imagenet_dir, tmp_path / "data")
    number = int(make_loader(data, recipe(batch_size=100), 0, CPU).order(0)[150])
    with (tmp_path / "data/imagenet/train.images").open("r+b") as file:
        file.seek(int(data.train.index[number]["offset"]))
        file.write(b"damage")
    loader = make_loader(load(DatasetSpec(name="imagenet"), SIZE, tmp_path / "data"), recipe(batch_size=100), 0, CPU)
    batches = loader.train(0)
    next(batches)
    with pytest.raises(VitinitError, match=rf"image {number} of .* is damaged"):
        next(batches)
    assert list(batches) == []


RECIPE = {"name": "small", "epochs": 2, "batch_size": 200, "label_smoothing": 0.1, **EVERYTHING, "mix_images": 100}


@pytest.fixture
def study(tmp_path):
    """A tiny run with everything, as a grid's file."""
    block = {
        "datasets": [{"name": "imagenet", "train_size": 1100}],
        "model": {"preset": "vit_micro", "image_size": 16, "patch_size": 4, "width": 16, "depth": 1},
        "recipe": {key: list(value) if isinstance(value, tuple) else value for key, value in RECIPE.items()},
        "seeds": [0],
    }
    path = tmp_path / "faults.yaml"
    path.write_text(yaml.safe_dump({"title": "mine", "rows": {"Mine": {"base": "trunc_normal"}}, "blocks": [block]}))
    return path


def test_the_command_line_plans_and_trains_it(study, here, imagenet_dir, monkeypatch):
    plan = here("plan", str(study))[1]
    assert "skip imagenet[1100]: imagenet is not prepared in nothing" in plan
    monkeypatch.setenv("VITINIT_DATA", str(imagenet_dir))
    assert "1 runs: 1 to do" in here("plan", str(study))[1]
    status, output = here("run", str(study), "--executor", "inline", "--device", "cpu")
    assert status == 0, output
    (record,) = Store("results/local").read("faults").done.values()
    assert (record.dataset.train, record.dataset.test, record.dataset.classes) == (1100, 1000, 1000)
    assert record.dataset.checksum == load(record.spec.dataset, 16, imagenet_dir).checksum
    assert record.spec.recipe.mixup == 1.0
    assert record.init.images == 64


def test_stopped_within_an_epoch_and_resumed_it_ends_with_the_same_bits(study, tmp_path, imagenet_dir, monkeypatch):
    (cell,) = grid.load(str(study)).cells
    execution = Execution(device="cpu", threads=1, executor="inline", deterministic=True)

    def setting(name: str) -> Setting:
        return Setting(tmp_path / name, "faults", imagenet_dir, execution, {}, Interval(), keep_weights=True)

    carry_out(cell, setting("whole"), Stop())
    resumed = setting("resumed")
    batches = PackedLoader.train
    for epoch, step in ((0, 2), (0, 3), (1, 0)):
        stop = Stop()

        def stopped_at(self, epoch, first_step=0, at=(epoch, step), stop=stop):
            for number, batch in enumerate(batches(self, epoch, first_step), first_step):
                if (epoch, number) == at:
                    stop.request("a test")
                yield batch

        monkeypatch.setattr(PackedLoader, "train", stopped_at)
        with pytest.raises(Stopped):
            carry_out(cell, resumed, stop)
        assert decoding() == []
    carry_out(cell, resumed, Stop())
    torch.use_deterministic_algorithms(False)
    assert_same(setting("whole"), resumed, cell)
    sessions = Store(resumed.root).read("faults").done[cell.spec.run_id].sessions
    assert [session.from_step for session in sessions] == [0, 3, 4, 6], "five steps an epoch"


@pytest.mark.parametrize(
    ("dataset", "fields", "says"),
    [
        ("imagenet", {"crop_padding": 2}, "recipe 'small': imagenet has no crop_padding, it has crop_scale"),
        ("digits", {"crop_scale": [0.1, 1.0]}, "crop_scale and crop_pct are for imagenet only"),
        ("digits", {"crop_pct": 0.9}, "crop_scale and crop_pct are for imagenet only"),
    ],
)
def test_a_crop_that_the_data_does_not_have_is_refused_with_its_row(tmp_path, dataset, fields, says):
    block = {
        "datasets": [dataset],
        "model": {"preset": "vit_micro", "image_size": 16, "patch_size": 4},
        "recipe": {"name": "small", **fields},
        "seeds": [0],
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"title": "mine", "rows": {"Mine": {"base": "trunc_normal"}}, "blocks": [block]}))
    with pytest.raises(VitinitError, match=says) as info:
        grid.load(str(path))
    assert "row 'Mine'" in str(info.value)
