"""FFCV against the resident loader: the same images, batches and records; and no error or hang goes unsaid."""

import itertools
import shutil
import threading
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from tests.processes import until
from tests.runners import small_run
from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.image_files.beton import load_beton, prepare_beton
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.loaders.base import make_loader, open_data
from vitinit.runners.training.distributed import World

pytestmark = pytest.mark.ffcv

CPU = torch.device("cpu")
SIZE = 20
PER_CLASS = {"train": 130, "test": 30}


recipe = partial(small_run.recipe, batch_size=100)


def prepare(spec, image_size, data_dir):
    return prepare_beton(spec, image_size, data_dir, lambda done, total: None)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Three classes of noise in several sizes, of which one of three has its own brightness."""
    root, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for split, count in PER_CLASS.items():
        for label, name in enumerate(("dark", "light", "middle")):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                height, width = random.integers(SIZE, 2 * SIZE, 2)
                pixels = random.integers(60 * label, 60 * label + 120, (height, width, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")
    return DatasetSpec(name="folder", path=str(root))


@pytest.fixture(scope="module")
def data_dir(images, tmp_path_factory):
    """A data folder where those images are prepared. Not to be changed."""
    folder = tmp_path_factory.mktemp("data")
    prepare(images, SIZE, folder)
    return folder


@pytest.fixture(autouse=True)
def _threads_as_before():
    import numba

    torch.set_num_threads(2)
    before = torch.get_num_threads(), numba.get_num_threads()
    yield
    assert (torch.get_num_threads(), numba.get_num_threads()) == before
    kinds = ("Reading", "PageReader")
    until(lambda: not [each for each in threading.enumerate() if type(each).__name__ in kinds])


def assert_equal(expected, found):
    expected, found = list(expected), list(found)
    assert len(expected) == len(found) > 0
    for first, second in zip(expected, found, strict=True):
        assert torch.equal(first[0], second[0])
        assert torch.equal(first[1], second[1])


def test_pixels_and_labels_are_those_of_the_resident_loader(images, data_dir):
    decoded, prepared = load(images, SIZE, data_dir), load_beton(images, SIZE, data_dir)
    for name in ("classes", "mean", "std", "checksum", "image_size"):
        assert getattr(prepared, name) == getattr(decoded, name), name
    resident, ffcv = (make_loader(data, recipe(), 3, CPU) for data in (decoded, prepared))
    assert (ffcv.name, resident.name, ffcv.steps) == ("ffcv", "resident", 3)
    assert_equal(resident.train(1), ffcv.train(1))
    assert_equal(resident.held_out(), ffcv.held_out())
    numbers = torch.tensor([389, 0, 7, 200])
    assert torch.equal(resident.plain(numbers), ffcv.plain(numbers))
    kept = [(images.clone(), images) for images, _ in ffcv.train(0)]
    assert all(torch.equal(*pair) for pair in kept), "FFCV's memory is used again"


def test_batches_for_a_gpu_are_not_written_into_again(images, data_dir, monkeypatch):
    """There FFCV's memory is page-locked, so that torch's `pin_memory` gives the same memory."""
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda tensor, pin_memory=False: empty_like(tensor))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    loader = make_loader(load_beton(images, SIZE, data_dir), recipe(), 3, CPU)
    loader.pins = True
    kept = [(batch.clone(), batch) for batch in loader.read("train", torch.arange(390).split(30))]
    assert all(torch.equal(*pair) for pair in kept)


def test_augmented_batches_are_the_same_for_several_processes_and_from_any_step_on(images, data_dir):
    everything = recipe(batch_size=50, **small_run.EVERYTHING["ffcv"])
    expected = list(make_loader(load(images, SIZE, data_dir), everything, 3, CPU).train(2))
    opened = load_beton(images, SIZE, data_dir)
    alone = make_loader(opened, everything, 3, CPU)
    assert_equal(expected, alone.train(2))
    assert_equal(expected[5:], alone.train(2, 5))
    assert list(alone.train(2, alone.steps)) == []
    half = make_loader(opened, everything, 3, CPU, World(1, 2)).train(2, 6)
    assert_equal([(images[25:], targets[25:]) for images, targets in expected[6:]], half)


def test_jpegs_are_cropped_within_the_recipe_by_seed_epoch_and_number_alone(tmp_path):
    """Red is the column and green the row of a pixel, so the corners of a crop say where it was."""
    width, height, side, scale, ratio = 200, 150, 32, (0.2, 0.8), (0.75, 4 / 3)
    columns, rows = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    picture = Image.fromarray(np.stack([columns, rows, 0 * rows], -1).astype(np.uint8))
    for split, label in itertools.product(("train", "test"), "ab"):
        (tmp_path / split / label).mkdir(parents=True)
        for number in range(40):
            picture.save(tmp_path / split / label / f"{number}.jpg", quality=95)
    dataset = DatasetSpec(name="folder", path=str(tmp_path))
    with pytest.raises(VitinitError, match=r"none is resident: --loader auto or ffcv"):
        open_data(dataset, side, tmp_path, "resident", cropped=True)
    prepare(dataset, None, tmp_path)
    opened = open_data(dataset, side, tmp_path, cropped=True)
    cropped = recipe(batch_size=20, crop_scale=scale, crop_ratio=ratio)
    alone = make_loader(opened, cropped, 3, CPU)
    expected = list(alone.train(2))
    assert_equal(expected[1:], alone.train(2, 1))
    assert not torch.equal(expected[0][0], next(alone.train(3))[0])

    images = torch.cat([images for images, _ in expected])
    pixels = images * torch.tensor(opened.std)[:, None, None] + torch.tensor(opened.mean)[:, None, None]
    widths = (pixels[:, 0, :, -1] - pixels[:, 0, :, 0]).mean(1) * side / (side - 1)
    heights = (pixels[:, 1, -1] - pixels[:, 1, 0]).mean(1) * side / (side - 1)
    areas, shapes = widths * heights, widths * width / (heights * height)
    assert scale[0] - 0.02 < areas.min() < 0.3
    assert 0.7 < areas.max() < scale[1] + 0.02
    assert ratio[0] - 0.03 < shapes.min() < 0.85
    assert 1.15 < shapes.max() < ratio[1] + 0.04


def test_damaged_and_outdated_files_are_refused_in_one_line(images, data_dir, tmp_path):
    def error_of(change):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        shutil.copytree(data_dir, tmp_path / "data")
        (folder,) = (tmp_path / "data/ffcv").iterdir()
        change(folder)
        with pytest.raises(VitinitError) as error:
            load_beton(images, SIZE, tmp_path / "data")
        return str(error.value)

    assert "bytes instead of" in error_of(lambda folder: (folder / "images.beton").write_bytes(b"short"))
    assert "is not prepared for FFCV" in error_of(lambda folder: folder.rename(folder.with_name(".preparing")))
    shutil.copytree(images.path, tmp_path / "images")
    moved = DatasetSpec(name="folder", path=str(tmp_path / "images"))
    prepare(moved, SIZE, tmp_path)
    with pytest.raises(VitinitError, match="is prepared already in"):
        prepare(moved, SIZE, tmp_path)
    (tmp_path / "images/train/dark/7.png").unlink()
    with pytest.raises(VitinitError, match="has other files than when it was prepared"):
        load_beton(moved, SIZE, tmp_path)
