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

from tests.miniature import linked_copy
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.grids import grid
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive
from vitinit.runners.basics.shard import Shard
from vitinit.runners.loaders import make_loader
from vitinit.runners.loaders.full_size import random_resized_crop

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


def opened(name, size, imagenet_dir, photographs) -> FullSizeData:
    """ImageNet, a folder, or pixels in memory."""
    spec = DatasetSpec(name=name, path=str(photographs) if name == "folder" else None)
    return load(spec, size, imagenet_dir, cropped=True)


def decoding() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]


@pytest.mark.parametrize(
    ("name", "size", "crop_pct"),
    [
        ("imagenet", 32, 0.9),
        ("imagenet", 224, 1.0),
        ("folder", 128, 0.875),
        ("digits", 16, 0.875),
    ],
)
def test_test_images_are_timms_but_for_the_last_bit_of_normalising(
    imagenet_source, imagenet_dir, photographs, name, size, crop_pct
):
    data = opened(name, size, imagenet_dir, photographs)
    fields = {"interpolation": "bicubic", "crop_pct": crop_pct, "mean": data.mean, "std": data.std}
    evaluation = create_transform((3, size, size), is_training=False, **fields)
    images, labels = next(make_loader(data, recipe(crop_pct=crop_pct, batch_size=100), 0, CPU).held_out())
    assert torch.equal(labels, data.held_out.labels[:500])
    if name == "digits":
        pixels = load(DatasetSpec(name="digits"), 8, imagenet_dir).held_out.images.permute(0, 2, 3, 1).numpy()
        originals = [Image.fromarray(array) for array in pixels]
    else:
        files = {"imagenet": imagenet_source / "val", "folder": photographs / "test"}[name].glob("*/*")
        originals = [Image.open(path).convert("RGB") for path in sorted(files)[: 50 if name == "folder" else 500 : 9]]
        images = images[::9]
    for image, ours in list(zip(originals, images, strict=False))[:: 1 if size < 200 else 10]:
        torch.testing.assert_close(ours, evaluation(image), rtol=0, atol=1e-6)


def test_random_resized_crop_is_timms_pixel_for_pixel(data):
    wide = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 300, 3), dtype=np.uint8))
    for scale, ratio in (((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.5, 0.6))):
        timm = RandomResizedCropAndInterpolation(SIZE, scale, ratio, interpolation="random")
        for seed, image in enumerate([data.train.image(number) for number in range(60)] + [wide, wide.rotate(90)] * 9):
            random.seed(seed)
            expected = timm(image)
            ours = random_resized_crop(image, SIZE, scale, ratio, random.Random(seed))
            assert np.array_equal(np.asarray(ours), np.asarray(expected))


@pytest.mark.parametrize("name", ["imagenet", "folder", "digits"])
def test_training_images_are_cropped_at_random_as_timm_crops_them(imagenet_dir, photographs, name):
    data = opened(name, SIZE, imagenet_dir, photographs)
    settings = recipe(crop_scale=(0.2, 1.0), batch_size=100)
    loader = make_loader(data, settings, 5, CPU)
    images, targets = next(loader.train(1))
    fields = {"interpolation": "random", "color_jitter": None, "mean": data.mean, "std": data.std}
    timm = create_transform((3, SIZE, SIZE), is_training=True, scale=(0.2, 1.0), hflip=0.0, **fields)
    for number, target, ours in zip(loader.order(1).tolist(), targets.tolist(), images, strict=False):
        random.seed(derive(5, "augment", 1, number))
        torch.testing.assert_close(ours, timm(data.train.image(number)), rtol=0, atol=1e-6)
        assert target == data.train.labels[number]


def test_images_are_normalised_with_imagenets_statistics_where_the_recipe_says_so(photographs, imagenet_dir):
    data = opened("folder", SIZE, imagenet_dir, photographs)
    own, theirs = (
        make_loader(data, recipe(batch_size=100, statistics=name), 0, CPU) for name in ("dataset", "imagenet")
    )
    with Image.open(sorted((photographs / "train").glob("*/*"))[7]) as image:
        transform = create_transform((3, SIZE, SIZE), interpolation="bicubic", crop_pct=1.0)  # ImageNet's by default
        expected = transform(image.convert("RGB"))
    found = theirs.plain(torch.tensor([7]))[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert not torch.equal(found, own.plain(torch.tensor([7]))[0])


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


@pytest.mark.long
def test_an_epoch_shows_every_image_once_but_the_ragged_rest_and_the_test_split_is_seen_in_order(data):
    loader = make_loader(data, recipe(batch_size=400), 0, CPU)
    labels = torch.cat([labels for _, labels in loader.train(0)])
    assert (loader.steps, len(labels)) == (3, 1200)
    assert (torch.bincount(labels, minlength=1000) <= torch.bincount(data.train.labels)).all()
    images, _ = next(loader.train(0))
    assert torch.equal(images[:20], loader.plain(loader.order(0)[:20]))
    alone = list(loader.held_out())
    assert torch.equal(torch.cat([labels for _, labels in alone]), data.held_out.labels)
    parts = [batch for rank in range(3) for batch in make_loader(data, recipe(), 0, CPU, Shard(rank, 3)).held_out()]
    for kind in (0, 1):
        assert torch.equal(torch.cat([batch[kind] for batch in alone]), torch.cat([batch[kind] for batch in parts]))


@pytest.mark.long
@pytest.mark.parametrize(("name", "batch_size"), [("imagenet", 120), ("folder", 24)])
def test_threads_processes_and_the_point_of_a_resume_change_nothing(imagenet_dir, photographs, name, batch_size):
    data = opened(name, SIZE, imagenet_dir, photographs)
    settings = recipe(batch_size=batch_size, mix_images=batch_size // 4, **EVERYTHING)
    torch.set_num_threads(1)
    alone = list(make_loader(data, settings, 7, CPU).train(2))
    torch.set_num_threads(3)
    assert len(alone) == len(data.train.labels) // batch_size
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    for size in (1, 3):
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


def test_an_early_end_leaves_no_threads_and_an_error_in_one_ends_the_iteration(data, imagenet_source, tmp_path):
    number = int(make_loader(data, recipe(batch_size=100), 0, CPU).order(0)[150])
    source = linked_copy(imagenet_source, tmp_path / "imagenet")
    bad = sorted((source / "train").glob("*/*"))[number]
    bad.unlink()
    bad.write_bytes(b"damage")
    loader = make_loader(load(DatasetSpec(name="imagenet"), SIZE, tmp_path), recipe(batch_size=100), 0, CPU)
    batches = loader.train(0)
    next(batches)
    assert decoding()
    batches.close()
    assert decoding() == []
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("batch")]
    batches = loader.train(0)
    next(batches)
    with pytest.raises(VitinitError, match=f"cannot use the image {bad}: it is no "):
        next(batches)
    assert list(batches) == []


RECIPE = {"name": "small", "epochs": 2, "label_smoothing": 0.1, **EVERYTHING}


def write_study(path, **dataset):
    """A tiny run with everything, five steps an epoch, as a grid's file."""
    block = {
        "datasets": [dataset],
        "model": {"preset": "vit_micro", "image_size": 16, "patch_size": 4, "width": 16, "depth": 1},
        "recipe": {
            **{key: list(value) if isinstance(value, tuple) else value for key, value in RECIPE.items()},
            "batch_size": dataset["train_size"] // 11 * 2,
            "mix_images": dataset["train_size"] // 11,
        },
        "seeds": [0],
    }
    path.write_text(yaml.safe_dump({"title": "mine", "rows": {"Mine": {"base": "trunc_normal"}}, "blocks": [block]}))
    return path


@pytest.mark.long
def test_the_command_line_trains_on_the_files_of_a_folder_and_reproduces_it(tmp_path, here, photographs):
    study = write_study(tmp_path / "faults.yaml", name=f"folder:{photographs}", train_size=110)
    assert "1 run: 1 to do" in here("plan", str(study))[1]
    status, output = here("run", str(study), "--executor", "inline", "--device", "cpu")
    assert status == 0, output
    (record,) = Store("results/local").read("faults").done.values()
    assert (record.dataset.train, record.dataset.test, record.dataset.classes) == (110, 40, 10)
    assert record.dataset.checksum == load(record.spec.dataset, 16, tmp_path, cropped=True).checksum
    assert record.execution["loader"] == "full-size"
    status, output = here("reproduce", record.run_id)
    assert status == 0, output


# Recipes that crop images in their own size.


def test_a_folder_is_what_its_files_are_and_its_statistics_are_those_of_the_decoded_folder(photographs, tmp_path):
    spec = DatasetSpec(name="folder", path=str(photographs), train_size=100)
    plain, data = (load(spec, 48, tmp_path, cropped=cropped) for cropped in (False, True))
    assert (data.mean, data.std, data.classes) == (plain.mean, plain.std, plain.classes)
    assert data.train.labels.tolist() == plain.train.labels.tolist()
    listed = sorted((photographs / "test").glob("*/*"))
    for number, path in enumerate(listed):
        with Image.open(path) as image:
            assert data.held_out.image(number).tobytes() == image.convert("RGB").tobytes()
    copy = shutil.copytree(photographs, tmp_path / "copy")
    Image.new("RGB", (64, 64)).save(sorted((copy / "test").glob("*/*"))[3])
    changed = load(spec.model_copy(update={"path": str(copy)}), 48, tmp_path, cropped=True)
    assert (changed.mean, changed.checksum == data.checksum) == (data.mean, False)


def test_a_file_that_cannot_be_decoded_stops_a_run_before_it_begins(photographs, tmp_path):
    for split in ("train", "test"):
        copy = shutil.copytree(photographs, tmp_path / split)
        bad = sorted((copy / split).glob("*/*"))[3]
        bad.write_bytes(bad.read_bytes()[:-200])
        with pytest.raises(VitinitError, match=f"cannot use the image {bad}: "):
            load(DatasetSpec(name="folder", path=str(copy)), 48, tmp_path, cropped=True)


@pytest.mark.parametrize(
    ("dataset", "fields", "says"),
    [
        ("imagenet", {"crop_padding": 2}, "recipe 'small': imagenet has no crop_padding, it has crop_scale"),
        ("digits", {"crop_pct": 0.9, "crop_padding": 2}, "crop_padding does not go with crop_scale or crop_pct"),
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
