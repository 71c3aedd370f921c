"""Pathfinder: are two dots the ends of one dashed path? Drawn here, from a fixed seed; no patch tells, tracing does.

After the idea of Linsley et al. (arXiv 1805.08315) and the 32-pixel task of the Long Range Arena (arXiv 2011.04006);
the drawing is our own. Everything is integers, and the random numbers are those that numpy promises never to change,
so that the images are the same bits on every machine.
"""

from itertools import product
from pathlib import Path

import numpy as np

from vitinit.benchmark.datasets.registry import Arrays, InMemory, Read

SIZE = 32
"""Side of the images in pixels."""
CLASSES = ("two paths", "one path")
"""Class names: the two dots lie at the ends of different paths, or of one."""
PATH, DOT = 128, 255
"""Levels of the pixels of a dash and of a dot; all else is 0."""
MARGIN = 4
"""Pixels of different paths are at least so far apart, in rows or in columns; those of one path too, but for neighbours
along it. Across a gap between dashes it is 2, from a dot to another path 3."""
APART = 13
"""Centres of two dots are at least so far apart, in rows or in columns: of tokens of 4 x 4 pixels, three at least."""
DASH = 3
"""Every so many pixels along a path, one is left out."""
UNIT = 8
"""Places are whole numbers, in eighths of a pixel."""
CELL = 6
"""Side of the cells that tell places of a pair of dots from one another (`_balanced`), in half pixels."""
SCENES, POOL, ROUNDS = 16000, 65536, 20
"""Scenes drawn together, paths they choose from, and rounds, in each of which a scene tries eight paths."""

LENGTH = 17
"""Pixels of a path, gaps included. 2 more than a multiple of `DASH`: two pixels at both ends, so that dots hide as many
wherever they are."""
BEND = 1
"""Largest turn of a path per pixel, in 64ths of a full turn. It is drawn anew for each dash."""
PATHS = 3
"""Number of paths in an image."""


class Pathfinder(InMemory):
    """Drawn whenever it is used: grey images, in three equal channels."""

    def read(self, data_dir: Path) -> Read:
        """Both splits, the training images drawn first, and the classes."""
        assert self.images
        train, test = self.images
        grey, labels = generate(train + test)
        rgb = np.repeat(grey[:, None], 3, axis=1)
        return (rgb[:train], labels[:train]), (rgb[train:], labels[train:]), CLASSES


EASY = Pathfinder(
    name="pathfinder-easy", images=(10_000, 2_000), classes=len(CLASSES), origin="is drawn whenever it is used"
)


def generate(images: int) -> Arrays:
    """The first images.

    Each drawing of paths makes two images, one of each class, that differ only in where the dots are. So the paths
    alone say nothing about the class; and the dots alone next to nothing, see `_dots` and `_balanced`.

    Args:
        images: How many; even.

    Returns:
        uint8, N x 32 x 32, and their labels, int64, N: an index into `CLASSES`.
    """
    random = np.random.RandomState(1)
    blocks: list[np.ndarray] = []
    while 2 * sum(map(len, blocks)) < images:
        paths, dots = _dots(_scenes(random), random)
        kept = _balanced(dots)
        blocks.append(_drawn(paths[kept], dots[kept]))
    return np.concatenate(blocks).reshape(-1, SIZE, SIZE)[:images], np.arange(images) % 2


def _scenes(random: np.random.RandomState) -> np.ndarray:
    """Paths that keep their distance: pixels, scenes x paths x length x 2 (row, column)."""
    walks = _walks(random)
    whole = (walks.min((1, 2)) >= 1) & (walks.max((1, 2)) < SIZE - 1)  # in the image, dots included
    for lag in range(2 * MARGIN, LENGTH):  # and not near itself
        whole &= (np.abs(walks[:, lag:] - walks[:, :-lag]).max(2) >= MARGIN).all(1)
    walks = walks[whole]
    chosen = np.zeros((SCENES, PATHS), np.int64)
    placed = np.zeros(SCENES, np.int64)
    taken = np.zeros((SCENES, SIZE + 2 * MARGIN, SIZE + 2 * MARGIN), bool)
    reach = np.arange(1 - MARGIN, MARGIN)
    for _ in range(ROUNDS):
        open_scenes = np.flatnonzero(placed < PATHS)
        tried = random.randint(len(walks), size=(len(open_scenes), 8), dtype=np.int64)
        rows, columns = np.moveaxis(walks[tried] + MARGIN, 3, 0)
        fits = ~taken[open_scenes[:, None, None], rows, columns].any(2)
        some = fits.any(1)
        scene, new = open_scenes[some], tried[some, fits[some].argmax(1)]
        chosen[scene, placed[scene]] = new
        placed[scene] += 1
        rows, columns = np.moveaxis(walks[new] + MARGIN, 2, 0)[..., None, None]
        taken[scene[:, None, None, None], rows + reach[:, None], columns + reach] = True
    return walks[chosen[placed == PATHS]]


def _walks(random: np.random.RandomState) -> np.ndarray:
    """Smooth curves of pixels that each touch the next, POOL x length x 2; they may leave the image.

    A step goes to the rim of a square around the place, 8 units or one pixel away in rows or in columns: the next
    pixel is another one, and a neighbour.
    """
    start = random.randint(0, SIZE * UNIT, (POOL, 1, 2), dtype=np.int64)
    heading = random.randint(0, 8 * UNIT, (POOL, 1), dtype=np.int64)
    turn = random.randint(-BEND, BEND + 1, (POOL, -(-LENGTH // DASH)), dtype=np.int64)
    turned = np.repeat(turn, DASH, axis=1)[:, : LENGTH - 1].cumsum(1)
    steps = RIM[(heading + turned) % len(RIM)]
    return np.concatenate([start, start + steps.cumsum(1)], axis=1) // UNIT


SIDE = np.stack([np.full(2 * UNIT, UNIT), np.arange(-UNIT, UNIT)], axis=1)
RIM = np.concatenate([SIDE, SIDE[:, ::-1] * [-1, 1], -SIDE, SIDE[:, ::-1] * [1, -1]])
"""The 64 points on the rim of a square of 8 units around the origin, in order."""


def _dots(paths: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Two ends of different paths and the two of one, with the same offset.

    The same in pixels for the larger of rows and columns, to a pixel for the smaller. Scenes without such ends are left
    out.

    Returns:
        Paths of the scenes that are left, and pixels: scenes x 2 classes x 2 dots x 2.
    """
    scenes, count = paths.shape[:2]
    ends = paths[:, :, [0, -1]].reshape(scenes, -1, 2)
    first, second = np.triu_indices(2 * count, 1)
    less, more = np.moveaxis(np.sort(np.abs(ends[:, first] - ends[:, second]), axis=2), 2, 0)
    same_path = first // 2 == second // 2
    offset = np.where(more >= APART, more * SIZE + less // 2, np.where(same_path, -2, -1))
    alike = offset[:, ~same_path, None] == offset[:, None, same_path]
    lots = random.randint(1, 2**31, alike.shape, dtype=np.int64) * alike
    other, same = np.divmod(lots.reshape(scenes, -1).argmax(1), count)
    pair = np.stack([np.flatnonzero(~same_path)[other], np.flatnonzero(same_path)[same]], axis=1)
    dots = ends[np.arange(scenes)[:, None, None], np.stack([first[pair], second[pair]], axis=2)]
    usable = alike.any((1, 2))
    return paths[usable], dots[usable]


def _balanced(dots: np.ndarray) -> np.ndarray:
    """Scenes after whose choice the dots of both classes are in the same places equally often.

    Ends of different paths are nearer to the centre than those of one, as a rule. The place of a pair of dots is how
    far its middle is from the centre of the image, in cells. Of the scenes with place a in one class and b in the
    other, as many are kept as of those with b and a.

    Args:
        dots: Pixels, scenes x 2 classes x 2 dots x 2.

    Returns:
        Which scenes are kept, bool.
    """
    import pandas as pd

    middle = np.sort(np.abs(dots.sum(2) - (SIZE - 1)), axis=2) // CELL
    place = middle @ [SIZE, 1]
    here, there = (pd.Series(place @ factors) for factors in ([SIZE**2, 1], [1, SIZE**2]))
    return (here.groupby(here).cumcount() < there.map(here.value_counts()).fillna(0)).to_numpy()


def _drawn(paths: np.ndarray, dots: np.ndarray) -> np.ndarray:
    """Images, scenes x 2 classes x 32 x 32."""
    scene, number = np.arange(len(paths))[:, None, None], np.arange(2)[:, None]
    pictures = np.zeros((len(paths), SIZE, SIZE), np.uint8)
    inked = paths[:, :, np.arange(paths.shape[2]) % DASH != DASH - 1]
    pictures[scene, inked[..., 0], inked[..., 1]] = PATH
    pictures = np.stack([pictures, pictures], axis=1)
    for down, right in product((-1, 0, 1), repeat=2):
        pictures[scene, number, dots[..., 0] + down, dots[..., 1] + right] = DOT
    return pictures
