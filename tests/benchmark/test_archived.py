"""Datasets that are official archives: what is packed of them, what is refused, what is downloaded."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets as theirs
from PIL import Image
from small_archives import SMALL, STL_PIXELS, Files, lines, packed_up, picture, put, small

from vitinit.benchmark.datasets import registry
from vitinit.benchmark.datasets.archives.archived import Archived
from vitinit.benchmark.image_files import archives as reading
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.image_files.packing import scratch_beside
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

NAMES = sorted(SMALL)


def test_every_dataset_of_archives_is_here_in_small() -> None:
    assert [name for name in sorted(registry.names()) if isinstance(registry.get(name), Archived)] == NAMES


def made(
    name: str,
    tmp_path: Path,
    address: str = "http://127.0.0.1:9",
    place: str = "data",
    changed: Files | None = None,
) -> Archived:
    """The small dataset, its archives in the folder `place`; `changed` are files of the one with their folder."""
    archives, new = {}, changed or {}
    for file, files in SMALL[name][0]().items():
        folder = next(iter(files)).split("/")[0]
        files |= {key: text for key, text in new.items() if key.split("/")[0] == folder or key[0] == "/"}
        archives[file] = packed_up(file, {key: content for key, content in files.items() if content != GONE})
    put(tmp_path / place, archives)
    return small(name, archives, address)


GONE = b"not in the archive"


def opened(dataset: Archived, folder: Path) -> FullSizeData:
    data = dataset.load(DatasetSpec(name=dataset.name), 32, folder)
    assert isinstance(data, FullSizeData)
    return data


@pytest.mark.parametrize("name", NAMES)
def test_what_is_packed_are_the_images_of_torchvision_with_its_labels(name: str, tmp_path: Path, monkeypatch) -> None:
    dataset = made(name, tmp_path)
    dataset.download(tmp_path / "data")
    data = opened(dataset, tmp_path / "data")
    assert (len(data.train.labels), len(data.held_out.labels)) == dataset.images
    assert len(data.classes) == 2
    for split, labelled in zip(
        (data.train, data.held_out), torchvisions(name, tmp_path / "data", monkeypatch), strict=True
    ):
        ours = {
            (split.image(number).tobytes(), data.classes[split.labels[number]]) for number in range(len(split.labels))
        }
        assert len(ours) == len(split.labels)
        assert ours == {(image.convert("RGB").tobytes(), label) for image, label in labelled}


def torchvisions(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Image.Image, str]]]:
    """Training and test images with the names of their classes, as torchvision reads the unpacked archives."""
    unpacked = {"pets": "oxford-iiit-pet", "flowers": "flowers-102", "eurosat": "eurosat"}.get(name, ".")
    for file in SMALL[name][0]():
        path = folder / file
        if file.endswith((".zip", "gz")):
            theirs.utils.extract_archive(
                str(path), str(folder / unpacked) if name != "tiny-imagenet" else str(folder / "x")
            )
    if name == "food101":
        for split in ("train", "test"):
            named = (folder / f"food-101/meta/{split}.txt").read_text().split()
            dishes = {dish: [line for line in named if line.startswith(dish)] for dish in ("apple_pie", "waffles")}
            (folder / f"food-101/meta/{split}.json").write_text(str(dishes).replace("'", '"'))
            found = theirs.Food101(folder, split)
            yield [(image, found.classes[label]) for image, label in found]
    elif name == "flowers":
        monkeypatch.setattr(theirs.Flowers102, "_check_integrity", lambda self: True)
        train, val, test = (theirs.Flowers102(folder, split) for split in ("train", "val", "test"))
        yield [(image, f"{label + 1:03}") for part in (train, val) for image, label in part]
        yield [(image, f"{label + 1:03}") for image, label in test]
    elif name == "pets":
        for split in ("trainval", "test"):
            pets = theirs.OxfordIIITPet(folder, split)
            yield [(image, ("Abyssinian", "yorkshire_terrier")[label]) for image, label in pets]
    elif name == "stl10":
        monkeypatch.setattr(theirs.STL10, "_check_integrity", lambda self: True)
        for split in ("train", "test"):
            stl = theirs.STL10(folder, split)
            yield [(image, stl.classes[label]) for image, label in stl]
    elif name == "tiny-imagenet":
        root = folder / "x/tiny-imagenet-200"
        yield [(Image.open(path), path.parts[-3]) for path in root.glob("train/*/images/*.JPEG")]
        rows = [line.split("\t") for line in (root / "val/val_annotations.txt").read_text().splitlines()]
        yield [(Image.open(root / "val/images" / row[0]), row[1]) for row in rows]
    else:  # torchvision has no split; that of a folder of the same files
        data = registry.get("folder").load(
            DatasetSpec(name="folder", path=str(folder / "eurosat/2750")), 64, folder, cropped=True
        )
        assert isinstance(data, FullSizeData)
        for split in (data.train, data.held_out):
            yield [(split.image(number), data.classes[label]) for number, label in enumerate(split.labels.tolist())]


def test_stl10_keeps_the_pixels_and_not_those_without_labels(tmp_path: Path) -> None:
    dataset = made("stl10", tmp_path)
    dataset.download(tmp_path / "data")
    for number in range(4):
        image = np.asarray(opened(dataset, tmp_path / "data").train.image(number))
        assert all(
            (image[row, column] == STL_PIXELS[number, :, column, row]).all() for row, column in ((0, 0), (3, 90))
        )
    size = sum(path.stat().st_size for path in (tmp_path / "data/stl10").iterdir())
    assert size < 7.5 * 3 * 96 * 96


def test_numbers_of_images_and_classes_are_the_published_ones() -> None:
    expected = {
        "food101": (75_750, 25_250, 101),
        "flowers": (2_040, 6_149, 102),
        "pets": (3_680, 3_669, 37),
        "tiny-imagenet": (100_000, 10_000, 200),
        "eurosat": (21_600, 5_400, 10),
        "stl10": (5_000, 8_000, 10),
    }
    assert {name: (*registry.get(name).images, registry.get(name).classes) for name in NAMES} == expected


def test_addresses_and_md5_are_those_of_torchvision() -> None:
    flowers, pets, stl = theirs.Flowers102, theirs.OxfordIIITPet, theirs.STL10
    expected = {
        "food101": {(theirs.Food101._URL, theirs.Food101._MD5)},
        "flowers": {(flowers._download_url_prefix + file, md5) for file, md5 in flowers._file_dict.values()},
        "pets": set(pets._RESOURCES),
        "stl10": {(stl.url, stl.tgz_md5)},
    }
    found = {name: {each[:2] for each in registry.get(name).archives.values()} for name in NAMES}
    assert {name: found[name] for name in expected} == expected
    source = Path(theirs.eurosat.__file__).read_text()
    assert all(text in source for pair in found["eurosat"] for text in pair)


# --- what is refused ---


def refusal(dataset: Archived, folder: Path) -> str:
    """The one line that `vitinit data get` ends with; nothing is left."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(VitinitError) as info:
        dataset.download(folder)
    assert "\n" not in str(info.value)
    assert sorted(folder.rglob("*")) == before
    assert dataset.unavailable(DatasetSpec(name=dataset.name), folder)
    return str(info.value)


def test_an_archive_that_is_cut_short_is_refused_by_its_md5_and_else_by_its_form(tmp_path: Path) -> None:
    for name in NAMES:
        whole, folder = made(name, tmp_path, place=name), tmp_path / name
        contents = {file: (folder / file).read_bytes() for file in whole.archives}
        first, content = next(iter(contents.items()))
        (folder / first).write_bytes(content[:-10])
        said = refusal(whole, folder)
        assert f"{folder / first} is damaged: md5 " in said
        assert f"({len(content) - 10:,} of {len(content):,} bytes)" in said
        for kept in (content[: len(content) // 2], b""):
            put(folder, {first: kept})
            said = refusal(small(name, {**contents, first: kept}), folder)
            assert first in said
            assert "cannot be read as an archive" in said or "no stl10_binary/class_names.txt" in said


WAFFLE, TINY, STL = "food-101/images/waffles/5.jpg", "tiny-imagenet-200", "stl10_binary"
BAD: list[tuple[str, Files, str]] = [
    ("food101", {WAFFLE: GONE}, f"no {WAFFLE}"),
    ("pets", {"annotations/test.txt": GONE}, "no annotations/test.txt"),
    ("food101", {WAFFLE: b"text"}, "cannot use the image food-101/im"),
    (
        "tiny-imagenet",
        {f"{TINY}/val/images/val_1.JPEG": picture(1, (64, 64))[:700]},
        f"cannot use the image {TINY}/val/images/val_1.JPEG",
    ),
    (
        "eurosat",
        {f"2750/River/River_{number}.jpg": picture(9) for number in range(90, 92)},
        "found 18 training images, EuroSAT has 16",
    ),
    ("eurosat", {"2750/Lake/Lake_1.jpg": picture(9)}, "cannot be read"),
    (
        "eurosat",
        {f"2750/Lake/Lake_{number}.jpg": picture(9) for number in range(5)},
        "found 3 classes, EuroSAT has 2",
    ),
    (
        "tiny-imagenet",
        {f"{TINY}/val/val_annotations.txt": lines(*("val_0.JPEG\tn09",) * 4)},
        "the labels cannot be read: 'n09'",
    ),
    (
        "tiny-imagenet",
        {f"{TINY}/val/val_annotations.txt": lines(*("val_0.JPEG\tn01",) * 4)},
        "not every class has test images",
    ),
    ("food101", {"food-101/meta/test.txt": lines("apple_pie/11", "waffles/7")}, "name an image twice"),
    ("flowers", {"setid.mat": b"text"}, "the labels cannot be read"),
    (
        "stl10",
        {f"{STL}/train_X.bin": STL_PIXELS[:5].tobytes()},
        f"'{STL}/train_X.bin#4' is there twice, or without a label",
    ),
    ("stl10", {f"{STL}/train_X.bin": STL_PIXELS[:4].tobytes()[:-5]}, f"{STL}/train_X.bin cannot be read"),
    ("stl10", {f"{STL}/train_y.bin": bytes([0, 1, 2, 1])}, "another class"),
    ("food101", {"food-101/../../evil.txt": b"!"}, "a name that leads out of it"),
    ("eurosat", {"/tmp/evil.txt": b"!"}, "a name that leads out of it"),
]


def test_an_archive_with_other_contents_is_one_line(tmp_path: Path) -> None:
    for number, (name, changed, says) in enumerate(BAD):
        dataset = made(name, tmp_path, place=str(number), changed=changed)
        assert says in refusal(dataset, tmp_path / str(number))


def test_a_link_in_an_archive_is_never_followed(tmp_path: Path) -> None:
    """In place of an image: it leads to one outside, which is not packed."""
    outside = tmp_path / "outside.jpg"
    outside.write_bytes(picture(3))
    dataset = made("food101", tmp_path)
    path = tmp_path / "data/food-101.tar.gz"
    buffer = io.BytesIO()
    with tarfile.open(path) as whole, tarfile.open(fileobj=buffer, mode="w:gz") as linked:
        for entry in whole:
            if entry.name == "food-101/images/waffles/5.jpg":
                entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, str(outside), 0
            linked.addfile(entry, whole.extractfile(entry) if entry.isreg() else None)
    path.write_bytes(buffer.getvalue())
    dataset = small("food101", {"food-101.tar.gz": buffer.getvalue()})
    assert "no food-101/images/waffles/5.jpg, which the labels name" in refusal(dataset, tmp_path / "data")


def test_an_image_bomb_and_a_file_that_is_too_long_are_refused(tmp_path: Path, monkeypatch) -> None:
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    dataset = made("food101", tmp_path, changed={WAFFLE: bomb.getvalue()})
    assert "decompression bomb" in refusal(dataset, tmp_path / "data")
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    assert "more than is read" in refusal(made("food101", tmp_path), tmp_path / "data")


def test_a_disk_without_room_is_noticed_first(tmp_path: Path, monkeypatch) -> None:
    full = shutil._ntuple_diskusage(10**9, 10**9, 1000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert "GB are free" in refusal(made("pets", tmp_path), tmp_path / "data")


def test_one_process_at_a_time_gets_it_and_what_a_killed_one_has_left_is_removed(tmp_path: Path) -> None:
    dataset, folder = made("eurosat", tmp_path), tmp_path / "data"
    with scratch_beside(folder / "eurosat"), pytest.raises(VitinitError, match="another process is preparing"):
        dataset.download(folder)
    assert not (folder / ".eurosat.preparing").exists()
    (folder / ".eurosat.preparing").mkdir()
    (folder / ".eurosat.preparing/EuroSAT.zip").write_bytes(b"half of it")
    dataset.download(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["EuroSAT.zip", "eurosat"]
    assert not (folder / "eurosat/EuroSAT.zip").exists()


def test_what_was_made_is_renamed_and_nothing_else_is_left(tmp_path: Path) -> None:
    with scratch_beside(tmp_path / "unused") as scratch:
        (scratch / "train.images").write_bytes(b"")
    assert list(tmp_path.iterdir()) == []
    with scratch_beside(tmp_path / "made") as scratch:
        scratch.rename(tmp_path / "made")
        scratch.mkdir()  # by the next process
    assert sorted(path.name for path in tmp_path.iterdir()) == [".made.preparing", "made"]


def test_the_command_line_gets_it_from_what_lies_in_the_data_folder(here, tmp_path: Path, monkeypatch) -> None:
    dataset = made("flowers", tmp_path)
    found = registry._found()
    monkeypatch.setitem(found, "flowers", found["flowers"]._replace(dataset=dataset))
    monkeypatch.setenv("VITINIT_DATA", str(tmp_path / "data"))
    assert "not here: run 'vitinit data get flowers'" in here("list", "datasets", "flowers")[1]
    status, output = here("data", "get", "flowers")
    assert status == 0, output
    assert "flowers is in" in output
    assert here("list", "datasets", "flowers")[1].split()[-1] == "available"
    digest = hashlib.sha256((tmp_path / "data/flowers/train.images").read_bytes()).hexdigest()
    assert here("data", "get", "flowers")[0] == 0
    assert hashlib.sha256((tmp_path / "data/flowers/train.images").read_bytes()).hexdigest() == digest
    assert here("data", "prepare", "flowers")[0] == 2
