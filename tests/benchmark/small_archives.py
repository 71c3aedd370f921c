"""The official archives in small: their layout and their odd files, with images of our own."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torchvision.datasets as theirs
from PIL import Image

from vitinit.benchmark.datasets import registry
from vitinit.benchmark.datasets.archives.archived import Archived

NOWHERE = "http://127.0.0.1:9"
Files = dict[str, bytes]
"""Contents by name, in order."""


def picture(number: int, size: tuple[int, int] = (40, 30), kind: str = "JPEG") -> bytes:
    """An image file of its own."""
    noise = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, kind)
    return buffer.getvalue()


def packed_up(file: str, files: Files) -> bytes:
    """An archive of the kind that its name says; a file on its own is what it is."""
    buffer = io.BytesIO()
    if file.endswith(".zip"):
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    elif file.endswith((".tar.gz", ".tgz")):
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    else:
        (content,) = files.values()
        return content
    return buffer.getvalue()


def lines(*found: str) -> bytes:
    return "".join(f"{line}\n" for line in found).encode()


def food101() -> dict[str, Files]:
    """Labels come after the images."""
    names = [f"{dish}/{number}" for dish in ("apple_pie", "waffles") for number in (11, 5, 7)]
    files = {f"food-101/images/{name}.jpg": picture(number) for number, name in enumerate(names)}
    files["food-101/meta/train.txt"] = lines(names[0], names[1], names[3], names[4])
    files["food-101/meta/test.txt"] = lines(names[2], names[5])
    for split in ("train", "test"):  # which names its classes in an order of its own
        named = files[f"food-101/meta/{split}.txt"].decode().split()
        dishes = {dish: [name for name in named if name.startswith(dish)] for dish in ("waffles", "apple_pie")}
        files[f"food-101/meta/{split}.json"] = json.dumps(dishes).encode()
    return {"food-101.tar.gz": files}


def flowers() -> dict[str, Files]:
    def matlab(**arrays: list[int]) -> bytes:
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, {name: np.array([array], np.uint16) for name, array in arrays.items()})
        return buffer.getvalue()

    return {
        "flowers-102/102flowers.tgz": {f"jpg/image_{number:05}.jpg": picture(number) for number in range(1, 9)},
        "flowers-102/imagelabels.mat": {"imagelabels.mat": matlab(labels=[2, 1, 1, 2, 1, 2, 2, 1])},
        "flowers-102/setid.mat": {"setid.mat": matlab(trnid=[8, 4], valid=[2, 1], tstid=[3, 5, 6, 7])},
    }


def pets() -> dict[str, Files]:
    """One image is a GIF with a JPEG's name; `annotations` has more than is read."""
    names = [f"{breed}_{number}" for breed in ("Abyssinian", "yorkshire_terrier") for number in (1, 2, 33)]
    images = {f"images/{name}.jpg": picture(number) for number, name in enumerate(names)}
    images["images/Abyssinian_2.jpg"] = picture(50, kind="GIF")
    images["images/Abyssinian_2.mat"] = b"something else"
    rows = [f"{name} {1 + number // 3} 1 1" for number, name in enumerate(names)]
    annotations = {
        "annotations/README": b"read me",
        "annotations/trimaps/._Abyssinian_1.png": b"something else",
        "annotations/list.txt": lines("#Image CLASS-ID SPECIES BREED ID", *rows),
        "annotations/trainval.txt": lines(*(rows[number] for number in (0, 1, 3, 5))),
        "annotations/test.txt": lines(rows[2], rows[4]),
    }
    return {"oxford-iiit-pet/images.tar.gz": images, "oxford-iiit-pet/annotations.tar.gz": annotations}


def eurosat() -> dict[str, Files]:
    files = {"2750/": b""}
    for label, name in enumerate(("River", "Forest")):
        files |= {f"2750/{name}/{name}_{number}.jpg": picture(20 * label + number, (64, 64)) for number in range(1, 11)}
    return {"EuroSAT.zip": files}


STL_PIXELS = np.random.default_rng(0).integers(0, 256, (7, 3, 96, 96), dtype=np.uint8)


def stl10() -> dict[str, Files]:
    """Four images to train on, three to test on, and some without labels."""
    files = {
        "test_X.bin": STL_PIXELS[4:].tobytes(),
        "test_y.bin": bytes([1, 2, 1]),
        "train_X.bin": STL_PIXELS[:4].tobytes(),
        "train_y.bin": bytes([2, 1, 2, 1]),
        "unlabeled_X.bin": STL_PIXELS.tobytes(),
        "class_names.txt": lines("airplane", "bird"),
        "fold_indices.txt": lines("0 1"),
    }
    return {"stl10_binary.tar.gz": {f"stl10_binary/{name}": content for name, content in files.items()}}


SMALL: dict[str, tuple[Callable[[], dict[str, Files]], tuple[int, int]]] = {
    "food101": (food101, (4, 2)),
    "flowers": (flowers, (4, 4)),
    "pets": (pets, (4, 2)),
    "eurosat": (eurosat, (16, 4)),
    "stl10": (stl10, (4, 3)),
}
"""What makes the archives of each, and its numbers of images; all have two classes."""


KEYS = ("image", "label", "setid")


def small(name: str, archives: dict[str, bytes], patch: pytest.MonkeyPatch, address: str = NOWHERE) -> Archived:
    """The dataset of this name, as if these were its archives and the server at this address had them."""
    dataset = registry.get(name)
    assert isinstance(dataset, Archived)
    files = {file: hashlib.md5(content).hexdigest() for file, content in archives.items()}
    first = next(iter(files.items()))
    if name == "food101":
        patch.setattr(theirs.Food101, "_URL", f"{address}/{first[0]}")
        patch.setattr(theirs.Food101, "_MD5", first[1])
    elif name == "flowers":
        named = {key: (Path(file).name, md5) for key, (file, md5) in zip(KEYS, files.items(), strict=True)}
        patch.setattr(theirs.Flowers102, "_file_dict", named)
        patch.setattr(theirs.Flowers102, "_download_url_prefix", f"{address}/flowers-102/")
    elif name == "pets":
        patch.setattr(theirs.OxfordIIITPet, "_RESOURCES", [(f"{address}/{file}", md5) for file, md5 in files.items()])
    elif name == "stl10":
        patch.setattr(theirs.STL10, "url", f"{address}/{first[0]}")
        patch.setattr(theirs.STL10, "tgz_md5", first[1])
        contents = {Path(file).name: hashlib.md5(content).hexdigest() for file, content in stl10()[first[0]].items()}
        for splits in ("train_list", "test_list"):
            patch.setattr(theirs.STL10, splits, [[file, contents[file]] for file, _ in getattr(theirs.STL10, splits)])
    else:
        dataset = replace(dataset, url=f"{address}/{first[0]}")
    return replace(dataset, images=SMALL[name][1], classes=2, files=files)


def put(folder: Path, archives: dict[str, bytes]) -> None:
    """Where they belong in a data folder."""
    for file, content in archives.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
