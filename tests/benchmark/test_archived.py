"""Datasets that are official archives: what is packed of them, what is refused, what is downloaded."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets as theirs
from small_archives import NOWHERE, SMALL, STL_PIXELS, Files, packed_up, picture, put, small

from vitinit.benchmark.datasets import downloaded, registry
from vitinit.benchmark.datasets.archives.archived import Archived
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.image_files.packed import PackedSplit
from vitinit.benchmark.image_files.packing import scratch_beside
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

NAMES = sorted(SMALL)
Make = Callable[..., Archived]


def test_every_dataset_of_archives_is_here_in_small() -> None:
    assert [name for name in sorted(registry.names()) if isinstance(registry.get(name), Archived)] == NAMES


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Put a small dataset's archives into the folder `place`; `changed` are files of the one with their folder."""

    def make(name: str, place: str = "data", changed: Files | None = None, address: str = NOWHERE) -> Archived:
        archives, new = {}, changed or {}
        for file, files in SMALL[name][0]().items():
            folder = next(iter(files)).split("/")[0]
            files |= {key: text for key, text in new.items() if key.split("/")[0] == folder}
            archives[file] = packed_up(file, {key: content for key, content in files.items() if content != GONE})
        put(tmp_path / place, archives)
        return small(name, archives, monkeypatch, address)

    return make


GONE = b"not in the archive"


def opened(dataset: Archived, folder: Path) -> FullSizeData:
    data = dataset.load(DatasetSpec(name=dataset.name), 32, folder)
    assert isinstance(data, FullSizeData)
    return data


PUBLISHED: dict[str, tuple[list[str], list[str]]] = {
    "food101": (
        [f"food-101/images/{name}.jpg" for name in ("apple_pie/11", "apple_pie/5", "waffles/11", "waffles/5")],
        [f"food-101/images/{name}.jpg" for name in ("apple_pie/7", "waffles/7")],
    ),
    "flowers": (
        [f"jpg/image_{number:05}.jpg" for number in (8, 4, 2, 1)],
        [f"jpg/image_{number:05}.jpg" for number in (3, 5, 6, 7)],
    ),
    "pets": (
        [
            f"images/{name}.jpg"
            for name in ("Abyssinian_1", "Abyssinian_2", "yorkshire_terrier_1", "yorkshire_terrier_33")
        ],
        [f"images/{name}.jpg" for name in ("Abyssinian_33", "yorkshire_terrier_2")],
    ),
}
"""Names in the archives of the images to train on and to test on, in the order of the lists that were published."""
CLASSES = {
    "food101": (("apple_pie", "waffles"), [0, 0, 1, 1], [0, 1]),
    "flowers": (("001", "002"), [0, 1, 0, 1], [0, 0, 1, 1]),
    "pets": (("Abyssinian", "yorkshire_terrier"), [0, 0, 1, 1], [0, 1]),
    "eurosat": (("Forest", "River"), [0] * 8 + [1] * 8, [0, 0, 1, 1]),
    "stl10": (("airplane", "bird"), [1, 0, 1, 0], [0, 1, 0]),
}


@pytest.mark.parametrize("name", NAMES)
def test_images_are_packed_unchanged_in_the_published_order_with_their_classes(name: str, made, tmp_path: Path) -> None:
    dataset = made(name)
    dataset.download(tmp_path / "data")
    data = opened(dataset, tmp_path / "data")
    assert (data.classes, *(split.labels.tolist() for split in (data.train, data.held_out))) == CLASSES[name]
    contents = {key: text for files in SMALL[name][0]().values() for key, text in files.items()}
    for split, files in zip((data.train, data.held_out), PUBLISHED.get(name, ()), strict=False):
        assert isinstance(split, PackedSplit)
        expected = [hashlib.sha256(contents[file]).digest() for file in files]
        assert [digest.tobytes() for digest in split.index["sha256"]] == expected


def test_eurosat_is_split_as_a_folder_of_its_images_is(made, tmp_path: Path) -> None:
    dataset = made("eurosat")
    dataset.download(tmp_path / "data")
    ours = opened(dataset, tmp_path / "data")
    for file, content in SMALL["eurosat"][0]()["EuroSAT.zip"].items():
        if content:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(content)
    spec = DatasetSpec(name="folder", path=str(tmp_path / "2750"))
    theirs = registry.get("folder").load(spec, 32, tmp_path, cropped=True)
    assert isinstance(theirs, FullSizeData)
    for split, same in zip((ours.train, ours.held_out), (theirs.train, theirs.held_out), strict=True):
        assert all(split.image(number).tobytes() == same.image(number).tobytes() for number in range(len(same.labels)))


def test_stl10_keeps_the_pixels_and_not_those_without_labels(made, tmp_path: Path) -> None:
    dataset = made("stl10")
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
        "eurosat": (21_600, 5_400, 10),
        "stl10": (5_000, 8_000, 10),
    }
    assert {name: (*registry.get(name).images, registry.get(name).classes) for name in NAMES} == expected


def test_md5_are_those_of_torchvision() -> None:
    expected = {
        "food101": {theirs.Food101._MD5},
        "flowers": {md5 for _, md5 in theirs.Flowers102._file_dict.values()},
        "pets": {md5 for _, md5 in theirs.OxfordIIITPet._RESOURCES},
        "stl10": {theirs.STL10.tgz_md5},
    }
    found = {name: set(registry.get(name).files.values()) for name in NAMES}
    assert {name: found[name] for name in expected} == expected
    source, eurosat = Path(theirs.eurosat.__file__).read_text(), registry.get("eurosat")
    assert all(text in source for text in (eurosat.url, *eurosat.files.values()))


# --- what is refused ---


def refusal(dataset: Archived, folder: Path) -> str:
    """The one line that `vitinit data get` ends with; nothing is left."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(VitinitError) as info:
        dataset.download(folder)
    assert sorted(folder.rglob("*")) == before
    assert dataset.unavailable(DatasetSpec(name=dataset.name), folder)
    return str(info.value)


def test_an_archive_that_is_cut_short_is_refused_and_not_unpacked(made, tmp_path: Path) -> None:
    whole, folder = made("pets"), tmp_path / "data"
    first = next(iter(whole.files))
    (folder / first).write_bytes((folder / first).read_bytes()[:-10])
    assert f"{folder / first} is damaged: md5 " in refusal(whole, folder)


WAFFLE = "food-101/images/waffles/5.jpg"
BAD: list[tuple[str, Files, str]] = [
    ("food101", {WAFFLE: GONE}, f"cannot use the image .*{WAFFLE}: .* No such file"),
    ("food101", {WAFFLE: b"text"}, f"cannot use the image .*{WAFFLE}"),
    ("pets", {"annotations/test.txt": GONE}, "cannot read the archives of pets in .*annotations/test.txt"),
    (
        "eurosat",
        {f"2750/River/River_{number}.jpg": picture(9) for number in range(90, 92)},
        "found 18 images of 2 classes in the archives, EuroSAT has 16 of 2",
    ),
]


def test_an_archive_with_other_contents_is_one_line(made, tmp_path: Path) -> None:
    for number, (name, changed, says) in enumerate(BAD):
        dataset = made(name, str(number), changed)
        assert re.search(says, refusal(dataset, tmp_path / str(number)))


def test_a_disk_without_room_is_noticed_first(made, tmp_path: Path, monkeypatch) -> None:
    full = shutil._ntuple_diskusage(10**9, 10**9, 1000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert "GB are free" in refusal(made("pets"), tmp_path / "data")


def test_one_process_at_a_time_gets_it_and_what_a_killed_one_has_left_is_removed(made, tmp_path: Path) -> None:
    """Of half an unpacked archive torchvision would take what is there for all of it."""
    dataset, folder = made("food101"), tmp_path / "data"
    with scratch_beside(folder / "food101"), pytest.raises(VitinitError, match="another process is preparing"):
        dataset.download(folder)
    assert not (folder / ".food101.preparing").exists()
    (folder / ".food101.preparing").mkdir()
    (folder / ".food101.preparing/train.images").write_bytes(b"half of it")
    for part in ("meta", "images/waffles"):
        (folder / "food101.downloads/food-101" / part).mkdir(parents=True)
    dataset.download(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["food-101.tar.gz", "food101"]
    assert len(opened(dataset, folder).train.labels) == 4


def test_what_was_made_is_renamed_and_nothing_else_is_left(tmp_path: Path) -> None:
    with scratch_beside(tmp_path / "unused") as scratch:
        (scratch / "train.images").write_bytes(b"")
    assert list(tmp_path.iterdir()) == []
    with scratch_beside(tmp_path / "made") as scratch:
        scratch.rename(tmp_path / "made")
        scratch.mkdir()  # by the next process
    assert sorted(path.name for path in tmp_path.iterdir()) == [".made.preparing", "made"]


def test_the_command_line_gets_it_from_what_lies_in_the_data_folder(here, made, tmp_path: Path, monkeypatch) -> None:
    dataset = made("flowers")
    monkeypatch.setitem(registry.REGISTRY.known, "flowers", dataset)
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


# --- what is downloaded, from a web server of the test's own ---


@pytest.mark.parametrize("name", ["pets", "stl10"])
def test_what_is_downloaded_is_packed_and_not_kept(name: str, made, tmp_path: Path, server: str) -> None:
    dataset, folder = made(name, "served", address=server), tmp_path / "new/data"
    first = next(iter(dataset.files))
    assert "vitinit data get" in str(dataset.unavailable(DatasetSpec(name=name), folder))
    told: list[tuple[int, int]] = []
    dataset.download(folder, lambda done, total: told.append((done, total)))
    assert told[-1] == (sum(dataset.images), sum(dataset.images))
    assert dataset.unavailable(DatasetSpec(name=name), folder) is None
    assert not (folder / first).exists()
    alone = tmp_path / "alone"
    put(alone, {file: (tmp_path / "served" / file).read_bytes() for file in dataset.files})
    dataset.download(alone)
    assert (alone / first).is_file(), "it was put there by somebody else"
    assert opened(dataset, alone).checksum == opened(dataset, folder).checksum
    (tmp_path / "served" / first).unlink()
    dataset.download(folder)  # nothing is fetched again


def test_a_damaged_archive_that_is_there_is_found_before_anything_is_downloaded(
    made, tmp_path: Path, server: str
) -> None:
    dataset, folder = made("pets", "served", address=server), tmp_path / "data"
    (folder / "oxford-iiit-pet").mkdir(parents=True)
    (folder / "oxford-iiit-pet/annotations.tar.gz").write_bytes(b"half")
    assert "annotations.tar.gz is damaged: md5" in refusal(dataset, folder)
    assert sorted(file.name for file in folder.rglob("*") if file.is_file()) == ["annotations.tar.gz"]


def test_what_was_downloaded_before_an_error_is_taken_and_removed_later(made, tmp_path: Path, server: str) -> None:
    dataset, folder = made("pets", "served", address=server), tmp_path / "data"
    last = list(dataset.files)[-1]
    served = tmp_path / "served" / last
    kept = served.read_bytes()
    served.unlink()
    with pytest.raises(VitinitError, match="cannot download pets"):
        dataset.download(folder)
    first = next(iter(dataset.files))
    (tmp_path / "served" / first).unlink()
    served.write_bytes(kept)
    dataset.download(folder)
    assert [path.name for path in folder.iterdir() if path.name != ".pets.lock"] == ["pets"]


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_that_is_silent_or_not_there_is_one_line(answers: bool, made, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloaded, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if not answers:
            silent.close()
        dataset = made("flowers", "elsewhere", address=address)
        with pytest.raises(VitinitError) as info:
            dataset.download(tmp_path / "data")
    assert str(info.value).startswith("cannot download flowers (")
    assert "put flowers-102/ with 102flowers.tgz, imagelabels.mat, setid.mat into" in str(info.value)
    assert socket.getdefaulttimeout() is None
