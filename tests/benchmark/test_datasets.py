"""Digits, torchvision's sets and those that are drawn: what is read, refused, downloaded."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import scipy.io
import torch
from dataset_helpers import NOWHERE, counts, error_of, make_image, rows
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision import datasets as torchvision

from tests.records import REFERENCE
from vitinit.benchmark.datasets import registry, shapes
from vitinit.benchmark.datasets.digits import Digits
from vitinit.benchmark.datasets.registry import download, load, train_and_val, unavailable
from vitinit.benchmark.datasets.shapes import SIZE
from vitinit.benchmark.image_files import beton
from vitinit.benchmark.image_files.arrays import Split
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

DIGITS = DatasetSpec(name="digits")


# --- digits, and what holds for every dataset ---


class Halved(Digits):
    """Its test images are smaller than those that are trained on."""

    def read(self, data_dir):
        train, (images, labels), classes = super().read(data_dir)
        return train, (images[..., :4, :4], labels), classes


def test_digits_are_those_of_scikit_learn_with_statistics_of_the_whole_training_split():
    raw = load_digits()
    parts = train_test_split(raw.images, raw.target, test_size=360, stratify=raw.target, random_state=0)
    data, subset = (load(DatasetSpec(name="digits", train_size=size), 8, NOWHERE) for size in (None, 100))
    for split, images, labels in ((data.train, parts[0], parts[2]), (data.held_out, parts[1], parts[3])):
        assert split.labels.tolist() == labels.tolist()
        expected = np.repeat(images[:, None] * 255 / 16, 3, axis=1)
        np.testing.assert_allclose(split.images.numpy(), expected, rtol=0, atol=0.5)
    assert Halved(name="halved").open(DIGITS, NOWHERE).statistics == (data.mean, data.std)
    pixels = data.train.images.numpy() / 255
    assert data.mean == subset.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-12)
    assert data.std == subset.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-12)
    tensors = [subset.train.images, subset.train.labels, subset.held_out.images, subset.held_out.labels]
    assert subset.checksum == hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


def test_images_are_resized_as_pil_does():
    native, *others = (load(DIGITS, size, NOWHERE).held_out.images[:20].permute(0, 2, 3, 1) for size in (8, 12, 5))
    for resized in others:
        size = (resized.shape[1],) * 2
        expected = [Image.fromarray(image.numpy()).resize(size, Image.Resampling.BILINEAR) for image in native]
        np.testing.assert_allclose(np.stack(expected), resized, atol=1)


# --- torchvision's sets: files of their formats, made here; the real ones differ in size and md5 only ---


def fewer(monkeypatch, name, *images):
    monkeypatch.setitem(vars(registry.get(name)), "images", images)


def make_svhn(folder, monkeypatch, url="http://127.0.0.1:9"):
    """Files as published: X is 32 x 32 x 3 x N, y is N x 1 with 10 for the digit 0."""
    folder.mkdir(exist_ok=True)
    made = []
    for split, number in (("train", 40), ("test", 20)):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3, number), dtype=np.uint8)
        made.append({"X": pixels, "y": (np.arange(number, dtype=np.uint8) % 10 + 1)[:, None]})
        file = folder / f"{split}_32x32.mat"
        scipy.io.savemat(file, made[-1], do_compression=True)
        md5 = hashlib.md5(file.read_bytes()).hexdigest()
        monkeypatch.setitem(torchvision.SVHN.split_list, split, [f"{url}/{file.name}", file.name, md5])
    fewer(monkeypatch, "svhn", 40, 20)
    return made


def test_svhn_reads_the_mat_files(tmp_path, monkeypatch):
    made = make_svhn(tmp_path, monkeypatch)
    data = load(DatasetSpec(name="svhn"), 32, tmp_path)
    for split, content in zip((data.train, data.held_out), made, strict=True):
        assert np.array_equal(split.images.permute(2, 3, 1, 0).numpy(), content["X"])
        assert split.labels.tolist() == (content["y"][:, 0] % 10).tolist()
    assert data.mean == (0.4376821, 0.4437697, 0.47280442)
    assert data.classes == tuple("0123456789")


def photographs(folder, names):
    for number, name in enumerate(names):
        make_image(folder / name, number, (30 + number, 20))


def test_flowers_is_trained_on_two_published_splits_and_read_from_its_files(tmp_path, monkeypatch):
    folder = tmp_path / "flowers-102"
    photographs(folder / "jpg", [f"image_{number:05}.jpg" for number in range(1, 8)])
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": [[1, 2, 1, 2, 1, 2, 2]]})
    scipy.io.savemat(folder / "setid.mat", {"trnid": [[6, 1]], "valid": [[3, 7]], "tstid": [[2, 4, 5]]})
    monkeypatch.setattr(torchvision.Flowers102, "_check_integrity", lambda self: True)
    fewer(monkeypatch, "flowers", 4, 3)
    small, data = (load(DatasetSpec(name="flowers"), 16, tmp_path, cropped=cropped) for cropped in (False, True))
    assert (data.train.images, data.image_size) == (None, 16)
    assert (data.train.labels.tolist(), data.held_out.labels.tolist()) == ([1, 0, 0, 1], [1, 1, 0])
    for number, file in enumerate((6, 1, 3, 7)):
        assert np.array_equal(data.train.image(number), Image.open(folder / f"jpg/image_{file:05}.jpg"))
    assert small.train.images.shape == (4, 3, 16, 16)
    assert small.mean == data.mean == (0.485, 0.456, 0.406)
    (folder / "jpg/image_00002.jpg").write_bytes(b"half of it")
    assert "image_00002.jpg: it is no BMP" in error_of(DatasetSpec(name="flowers"), 16, tmp_path)


def test_eurosat_has_a_fifth_of_each_class_held_out_and_one_that_is_incomplete_is_refused(tmp_path, monkeypatch):
    photographs(tmp_path / "eurosat/2750", [f"{name}/{number}.jpg" for name in "ab" for number in range(10)])
    fewer(monkeypatch, "eurosat", 16, 4)
    data = load(DatasetSpec(name="eurosat"), 8, tmp_path)
    assert (counts(data), data.held_out.labels.tolist()) == ([8, 8], [0, 0, 1, 1])
    (tmp_path / "eurosat/2750/a/3.jpg").unlink()
    said = "has 15 training and 4 test images, and not 16 and 4; move away what is damaged of eurosat/2750"
    assert said in error_of(DatasetSpec(name="eurosat"), 8, tmp_path)


def test_what_is_prepared_keeps_its_folder_and_a_damaged_manifest_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(beton, "ffcv_missing", lambda: None)
    folder = beton.prepared_folder(DIGITS, 8, tmp_path)
    assert folder.name == "digits-8px-cc6b6bad31a0"
    folder.mkdir(parents=True)
    (folder / beton.MANIFEST).write_bytes(b"{")
    with pytest.raises(VitinitError, match="does not hold what was prepared: move .* and run 'vitinit data prepare"):
        beton.load_beton(DIGITS, 8, tmp_path)


# --- download ---


def test_download_puts_the_checked_files_in_place_and_a_wrong_one_leaves_nothing(tmp_path, server, monkeypatch):
    make_svhn(tmp_path / "served", monkeypatch, server)
    target = tmp_path / "new" / "data"
    download("svhn", target)
    assert sorted(path.name for path in target.iterdir()) == ["test_32x32.mat", "train_32x32.mat"]
    assert unavailable(DatasetSpec(name="svhn"), target) is None
    sound = (target / "train_32x32.mat").read_bytes()
    (target / "train_32x32.mat").write_bytes(b"damaged")
    assert "cannot read svhn in" in error_of(DatasetSpec(name="svhn"), 32, target), "reading downloads nothing"
    (target / "train_32x32.mat").write_bytes(sound)
    with (tmp_path / "served" / "train_32x32.mat").open("ab") as file:
        file.write(b"!")
    download("svhn", target)  # nothing is fetched again
    with pytest.raises(VitinitError, match=r"put train_32x32\.mat, test_32x32\.mat into"):
        download("svhn", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


# --- parts of the training split: nothing is chosen on the test split ---


LABELS = np.repeat(np.arange(4), (40, 30, 20, 10))[np.random.default_rng(0).permutation(100)]


def digits(**fields):
    return DatasetSpec.model_validate({"name": "digits", **fields})


def test_validation_images_are_never_trained_on_and_depend_on_their_number_alone():
    vals = set()
    for train_size, draw in ((None, "fixed"), (30, "fixed"), (9, "seed"), (80, "seed")):
        spec = digits(train_size=train_size, val_size=20, train_draw=draw)
        for number in (0, 1, 2**62):
            train, val = train_and_val(LABELS, spec, 4, number)
            assert not set(train) & set(val)
            assert (len(train), train.tolist()) == (train_size or 80, sorted(train))
            vals.add(tuple(val))
    (val,) = vals
    assert Counter(LABELS[list(val)]) == {0: 8, 1: 6, 2: 4, 3: 2}


def test_a_subset_is_stratified_and_contains_the_smaller_ones_and_a_redrawn_one_is_another_at_each_draw():
    def subset(size, draw, how="seed"):
        return set(train_and_val(LABELS, digits(train_size=size, train_draw=how), 4, draw)[0].tolist())

    subsets = [subset(40, draw) for draw in range(20)]
    assert len(set(map(frozenset, subsets))) == 20
    assert all(Counter(LABELS[list(drawn)]) == {0: 16, 1: 12, 2: 8, 3: 4} for drawn in subsets)
    assert len(set.union(*subsets)) == 100, "every image is drawn now and then"
    assert subset(40, 3, "fixed") == subset(40, 0, "fixed") == subset(40, 0)
    assert subset(4, 3) < subset(10, 3) < subset(40, 3) < subset(100, 3)
    assert Counter(LABELS[list(subset(4, 3))]) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_what_is_held_out_is_the_test_split_or_the_validation_part():
    """scikit-learn's digits hold no image twice, so pixels tell images apart."""
    whole, on_val, on_test = (
        load(digits(**fields), 8, NOWHERE)
        for fields in ({}, {"val_size": 200, "evaluate_on": "val"}, {"val_size": 200})
    )
    training, test, val = (rows(split.images) for split in (whole.train, whole.held_out, on_val.held_out))
    assert rows(on_test.held_out.images) == test
    assert rows(on_val.train.images) == rows(on_test.train.images) == training - val
    assert (len(on_val.held_out.labels), len(on_val.train.labels), val <= training) == (200, 1437 - 200, True)
    assert not val & test
    assert len({whole.checksum, on_val.checksum, on_test.checksum}) == 3
    assert on_val.mean == whole.mean


def test_validation_that_would_take_a_class_away_is_refused():
    labels = np.array([0] * 10 + [3])
    for train_size in (None, 5):
        spec = digits(train_size=train_size, val_size=4)
        with pytest.raises(
            VitinitError, match="^val_size 4 takes all images with label 3, and leaves none to train on"
        ):
            train_and_val(labels, spec, 4, 0)
        train, _ = train_and_val(np.append(labels, 3), spec, 4, 0)
        assert set(np.append(labels, 3)[train]) == {0, 3}, "a class that was never there is not missed"


# --- sets that are drawn ---


def test_fewer_shapes_are_the_first_ones():
    for few, many in zip(shapes.generate.__wrapped__(1200), shapes.generate(6000), strict=True):
        assert np.array_equal(few, many[:1200])


def test_a_mask_is_loaded_at_its_size_and_at_others_the_nearest_pixels_class():
    data = load(DatasetSpec(name="shapes", train_size=20, val_size=10, evaluate_on="val"), SIZE, NOWHERE)
    assert data.train.labels.shape == (20, SIZE, SIZE)
    assert data.held_out.labels.shape == (10, SIZE, SIZE)
    assert data.train.labels.dtype == torch.uint8
    images, masks = (torch.from_numpy(tensors[:4]) for tensors in shapes.generate(6000))
    for side in (16, 48, 64):
        source = Split(images, masks)
        places = ((torch.arange(side) + 0.5) * SIZE / side).long()
        assert torch.equal(source.masks(side), masks[:, places][:, :, places])
        assert source.sized(side).shape == (4, 3, side, side)


@pytest.mark.parametrize(
    "study", ["small", "segmentation-small", pytest.param("long-range-small", marks=pytest.mark.long)]
)
def test_images_are_those_of_committed_records_whatever_the_global_generator(study):
    done = Store(REFERENCE).read(study).done.values()
    record = next(run for run in done if run.spec.dataset.name != "cifar10" and not run.spec.dataset.train_size)
    before = np.random.get_state()[1].copy()
    assert load(record.spec.dataset, record.spec.model.image_size, NOWHERE).checksum == record.dataset.checksum
    assert np.array_equal(before, np.random.get_state()[1])
