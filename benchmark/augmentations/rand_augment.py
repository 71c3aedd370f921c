"""RandAugment (arXiv 1909.13719) as timm has it."""

import numpy as np

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.spec import RandAugmentConfig


@register("rand_augment")
class RandAugment(Augmentation):
    """Random operations one after the other: timm's draws and timm's pixels, bit for bit."""

    config: RandAugmentConfig = "rand-m9-mstd0.5-inc1"
    """timm's configuration string."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return for each image and layer the numbers that `apply_operations` takes: timm's, one image after the other.

        Raises:
            VitinitError: timm refuses the configuration.
        """
        from timm.data.auto_augment import rand_augment_transform

        from vitinit.benchmark.augmentations.operations.image_operations import NOTHING, recording
        from vitinit.initializers.streams import seeded_python

        timm = recording(rand_augment_transform, self.config, size)
        with seeded_python(seed):
            # the draws of timm's `choice` for all images, in one call
            chosen = np.random.randint(0, len(timm.ops), (images, timm.num_layers))  # noqa: NPY002
            return np.array([[timm.ops[number](NOTHING) for number in row] for row in chosen.tolist()])
