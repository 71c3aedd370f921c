"""Colour jitter as torchvision has it, without hue."""

import numpy as np

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.fields import NotNegative


@register("color_jitter")
class ColorJitter(Augmentation):
    """Change brightness, contrast and saturation in a random order: draws and pixels of torchvision's on PIL."""

    brightness: NotNegative = 0.3
    """Factors are from 1 minus this, at least 0, to 1 plus this; 0 leaves it out. DeiT III has 0.3 for all three."""
    contrast: NotNegative = 0.3
    saturation: NotNegative = 0.3

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return three operations of each image and their factors."""
        import torch

        from vitinit.benchmark.augmentations.operations.image_operations import numbers

        generator = torch.Generator().manual_seed(seed)
        ranges = {"brightness": self.brightness, "contrast": self.contrast, "color": self.saturation}
        drawn = []
        for _ in range(images):
            order = torch.randperm(4, generator=generator).tolist()  # torchvision's fourth is hue
            steps = []
            for operation, by in ranges.items():
                factor = [float(torch.empty(1).uniform_(max(0.0, 1 - by), 1 + by, generator=generator))] if by else []
                steps.append(numbers(operation if by else "nothing", *factor))
            drawn.append([steps[place] for place in order if place < 3])
        return np.array(drawn)
