"""Random images, also in the file that FFCV reads."""

import torch

from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.image_files.beton import write_beton

FFCV_IMAGES = 10_000
CLASSES = 10


def random_data(count, size):
    """Noise, with labels."""
    generator = torch.Generator().manual_seed(0)

    def integers(limit, *shape):
        return torch.randint(limit, shape, generator=generator, dtype=torch.uint8)

    train_split = Split(integers(256, count, 3, size, size), integers(CLASSES, count).long())
    test_split = Split(train_split.images[:CLASSES], train_split.labels[:CLASSES])
    return Data(train_split, test_split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, "", size)


def beton(data, folder):
    """The same images, for FFCV; of the training images only some."""
    kept = data.train.images[:FFCV_IMAGES].permute(0, 2, 3, 1).contiguous().numpy()
    images = [*kept, *data.held_out.images.permute(0, 2, 3, 1).contiguous().numpy()]
    file = folder / "images.beton"
    write_beton(file, iter(images), len(images), kept.shape[1])
    train, held_out = Split(None, data.train.labels[: len(kept)]), Split(None, data.held_out.labels)
    return Data(train, held_out, data.classes, data.mean, data.std, data.checksum, kept.shape[1], file)
