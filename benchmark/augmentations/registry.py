"""Augmentations by name, their parameters, and those of a recipe in order. Imports no torch.

Each is a class under `@register` in a file of this folder.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from vitinit.benchmark.fields import Frozen, parsed
from vitinit.benchmark.spec import AugmentationSpec, Recipe
from vitinit.initializers.plugins import Registry, concrete

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


class Augmentation(Frozen):
    """An augmentation as a value. Its fields, typed and with defaults, are the parameters that a recipe can give.

    Slow imports, torch among them, stand inside its methods: planning imports the file.
    """

    @abstractmethod
    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return random numbers, the first dimension over images. Only this is random.

        Args:
            images: how many.
            size: pixels a side.
            seed: of generators made here. The same seed gives the same numbers; no global generator is left changed.
        """

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return new images, each from itself and its own numbers alone: here, by `image_operations.apply_operations`.

        Args:
            images_BCHW: uint8, B x 3 x S x S, on any device; not changed.
            drawn: numbers of these images, from `draw`.
            fill_C11: mean colour of the dataset, uint8, on the same device.
        """
        from vitinit.benchmark.augmentations.operations.image_operations import apply_operations

        return apply_operations(images_BCHW, drawn, fill_C11)


class OnPil(Augmentation):
    """Changes images one by one, in main memory, with Pillow or torchvision: what is rarely used."""

    @abstractmethod
    def change(self, image: Image, drawn: np.ndarray) -> Image:
        """Return an image changed by its own numbers."""

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the images, on their device; what comes from outside is black."""
        import torch
        from PIL import Image

        pixels_BHWC = images_BCHW.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        pairs = zip(map(Image.fromarray, pixels_BHWC), drawn, strict=True)
        changed_BHWC = torch.from_numpy(np.stack([np.asarray(self.change(image, numbers)) for image, numbers in pairs]))
        return changed_BHWC.permute(0, 3, 1, 2).contiguous().to(images_BCHW.device)


REGISTRY: Registry[type[Augmentation]] = Registry(
    "augmentation", (__package__,), wanted="an Augmentation class", accepts=concrete(Augmentation)
)
register = REGISTRY.named


def make(spec: AugmentationSpec) -> Augmentation:
    """The augmentation that a recipe names.

    Raises:
        VitinitError: there is no such augmentation, or a parameter is not valid.
    """
    return parsed(REGISTRY.get(spec.name), spec.params, f"augmentation {spec.name!r}")


def resolve(spec: AugmentationSpec) -> AugmentationSpec:
    """Return an augmentation with its defaults filled in, so that the run's identity does not depend on them.

    Raises:
        VitinitError: as `make`.
    """
    return AugmentationSpec(name=spec.name, params=make(spec).model_dump(mode="json"))


def of_recipe(recipe: Recipe) -> list[tuple[str, Augmentation]]:
    """Augmentations between flip and mixing, in order, each with the name of its random stream.

    Raises:
        VitinitError: as `make`.
    """
    named = [(f"augment {place}", spec) for place, spec in enumerate(recipe.augment)]
    if recipe.rand_augment is not None:
        named.insert(0, ("randaugment", AugmentationSpec(name="rand_augment", params={"config": recipe.rand_augment})))
    return [(stream, make(spec)) for stream, spec in named]
