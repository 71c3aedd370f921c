"""Shapes: which pixel belongs to a disc, a square, a triangle, or to none? Drawn here, from a fixed seed.

A task of masks. Objects of all classes have the same areas, and the same stripes, colours and noise as the background,
drawn alike for each: no pixel by itself tells its class, the outline does. Everything is integers, and the random
numbers are those that numpy promises never to change, so that the images are the same bits on every machine.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vitinit.benchmark.datasets.registry import Arrays, InMemory, Read

SIZE = 32
"""Side of the images in pixels."""
CLASSES = ("background", "disc", "square", "triangle")
UNIT = 8
"""Places and lengths are whole numbers, in eighths of a pixel."""
OBJECTS = (3, 5)
"""Fewest and most of them in an image. One drawn later covers those drawn before."""
RADIUS = (4 * UNIT, 8 * UNIT)
"""Least and largest radius of a disc; a square or a triangle has the area of a disc."""
DIRECTIONS = np.array([(5, 0), (0, 5), (-5, 0), (0, -5), *product((3, -3), (4, -4)), *product((4, -4), (3, -3))])
"""Rows and columns of twelve vectors of length 5: where a triangle points, how a square is turned, stripes too."""
STRIPE = (2 * UNIT, 4 * UNIT)
"""Width of a stripe, least and largest."""
CONTRAST, NOISE = 48, 32
"""Levels: by how much the two colours of a region differ, at most; and how far a pixel is from them, at most."""
BLOCK = 1000
"""Number of images that are drawn together."""


class Shapes(InMemory):
    """Drawn whenever it is used."""

    dense: ClassVar[bool] = True

    def read(self, data_dir: Path) -> Read:
        """Both splits, the training images drawn first, and the classes."""
        assert self.images
        train, _ = self.images
        images, masks = generate(sum(self.images))
        return (images[:train], masks[:train]), (images[train:], masks[train:]), CLASSES


SHAPES = Shapes(name="shapes", images=(5_000, 1_000), classes=len(CLASSES), origin="is drawn whenever it is used")


def generate(images: int) -> Arrays:
    """The first images.

    Returns:
        uint8, N x 3 x 32 x 32, and their masks, uint8, N x 32 x 32: an index into `CLASSES` for each pixel.
    """
    draw: Any = partial(np.random.RandomState(1).randint, dtype=np.int64)
    blocks = [_block(draw) for _ in range(-(-images // BLOCK))]
    pictures, masks = (np.concatenate(arrays)[:images] for arrays in zip(*blocks, strict=True))
    return pictures, masks


def _block(draw: Callable[..., np.ndarray]) -> Arrays:
    """The next images and masks. All that is drawn of an object is independent of its class.

    Shapes of the objects are B x M, an index into `CLASSES`, 0 where there is none; centres B x M x 2 (row, column), in
    eighths of a pixel, the middle of pixel (0, 0) at (4, 4); radii B x M, of the disc with the same area.
    """
    least, most = OBJECTS
    shapes = (np.arange(most) < draw(least, most + 1, (BLOCK, 1))) * draw(1, len(CLASSES), (BLOCK, most))
    centres = draw(0, SIZE * UNIT, (BLOCK, most, 2))
    radii = draw(RADIUS[0], RADIUS[1] + 1, (BLOCK, most))
    directions = DIRECTIONS[draw(0, len(DIRECTIONS), (BLOCK, most))]
    regions = np.zeros((BLOCK, SIZE, SIZE), np.int64)  # the object that a pixel shows, from 1; 0 is the background
    masks = np.zeros((BLOCK, SIZE, SIZE), np.uint8)
    for place in range(most):
        inside = _inside(shapes[:, place], centres[:, place], radii[:, place], directions[:, place])
        regions[inside] = place + 1
        np.copyto(masks, shapes[:, place, None, None].astype(np.uint8), where=inside)
    return _coloured(regions, draw), masks


def _inside(shape: np.ndarray, centre: np.ndarray, radius: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The pixels of one object in each image, bool, N x 32 x 32; none where its shape is 0.

    A square of the area of a disc has half a side of 0.8862 radii. An equilateral triangle reaches 1.5551 radii from
    its middle to a corner, half as far to a side; its slanting sides are at (reach - ahead) / sqrt(3) from the axis.
    """
    ahead, aside = _turned(centre, direction)
    length = 5 * radius[:, None, None]
    disc = ahead**2 + aside**2 <= length**2
    square = 10_000 * np.maximum(np.abs(ahead), np.abs(aside)) <= 8_862 * length
    reach = 15_551 * length
    triangle = (20_000 * ahead >= -reach) & (17_321 * np.abs(aside) <= reach - 10_000 * ahead)
    which = shape[:, None, None]
    return np.asarray(((which == 1) & disc) | ((which == 2) & square) | ((which == 3) & triangle))


def _turned(centre: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place of every pixel along a direction and across it, in 40ths of a pixel from a centre, each N x 32 x 32."""
    middles = UNIT * np.arange(SIZE) + UNIT // 2
    rows = middles[:, None] - centre[:, 0, None, None]
    columns = middles - centre[:, 1, None, None]
    down, right = direction[:, 0, None, None], direction[:, 1, None, None]
    return down * rows + right * columns, right * rows - down * columns


def _coloured(regions: np.ndarray, draw: Callable[..., np.ndarray]) -> np.ndarray:
    """Every region, the background too, in stripes of two colours of its own, under noise: N x 3 x 32 x 32."""
    count, most = len(regions), OBJECTS[1] + 1
    colours = draw(0, 256, (count, most, 3))
    second = draw(-CONTRAST, CONTRAST + 1, (count, most, 3))
    widths = draw(STRIPE[0], STRIPE[1] + 1, (count, most))
    directions = DIRECTIONS[draw(0, len(DIRECTIONS), (count, most))]
    levels = draw(-NOISE, NOISE + 1, (count, 3, SIZE, SIZE))
    for region in range(most):
        across, _ = _turned(np.zeros((count, 2), np.int64), directions[:, region])
        odd = across // (5 * widths[:, region, None, None]) % 2
        filled = colours[:, region, :, None, None] + second[:, region, :, None, None] * odd[:, None]
        levels += filled * (regions == region)[:, None]
    return levels.clip(0, 255).astype(np.uint8)
