"""Pillow's image operations for whole batches, on the device of the images, with Pillow's pixels bit for bit.

Operations are drawn for each image, by timm's own code without the work, and carried out for all images at once that
have the same one in the same layer. Those of `apply_operations` take images B x 3 x S x S, uint8, the numbers of each
of them, B x X, float64 on the same device, and a colour for what comes from outside of an image, uint8, 3 x 1 x 1; they
give new images. Arithmetic is carried out in Pillow's order and width (float32 in blending, float64 in geometry), one
rounding a step: no fused operations, no division by a Python number where it would count, which some devices carry out
as a multiplication. Nothing here waits for the device.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import imported

LUMA = (19595, 38470, 7471)
"""Shares of red, green and blue in Pillow's grey, in 1/65536."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device; a GPU takes it from page-locked memory while the host goes on."""
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def replace_(images_BCHW: Tensor, places_N: Tensor, new_NCHW: Tensor) -> None:
    """Put new images at some places, in place. The others stay."""
    rows_BX, new_NX = images_BCHW.flatten(1), new_NCHW.flatten(1)
    if rows_BX.shape[1] % 8 == 0:  # elements are copied one by one: the larger, the faster
        rows_BX, new_NX = rows_BX.view(torch.int64), new_NX.view(torch.int64)
    rows_BX.index_copy_(0, places_N, new_NX)


def crop(images_BCHW: Tensor, padding: int, top_B: Tensor, left_B: Tensor) -> Tensor:
    """Zero-pad by `padding` pixels, then cut the original size out at an offset for each image."""
    count, _, height, width = images_BCHW.shape
    windows = F.pad(images_BCHW, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # a view
    return windows[torch.arange(count, device=top_B.device), :, top_B, left_B]


def blend(images_BCHW: Tensor, others_BCHW: Tensor, share_B: Tensor) -> Tensor:
    """Between the images (share 0) and others (share 1), or beyond them, as `PIL.Image.blend` has it."""
    first = images_BCHW.float()
    return _pixels((others_BCHW.float() - first).mul_(_each(share_B.float())).add_(first))


def posterize(images_BCHW: Tensor, bits_BX: Tensor, fill_C11: Tensor) -> Tensor:
    """The highest `bits` bits of each pixel. Pillow refuses fewer than 1, which magnitude noise does reach: black."""
    masks_B = (0xFF00 >> bits_BX[:, 0].long().clamp(0, 8)) & 0xFF
    return images_BCHW & _each(masks_B.to(torch.uint8))


def solarize(images_BCHW: Tensor, threshold_BX: Tensor, fill_C11: Tensor) -> Tensor:
    """Pixels from `threshold` on are inverted."""
    below_BCHW = (images_BCHW.short() - _each(threshold_BX[:, 0].short())) >> 15  # -1 where it holds, else 0
    return images_BCHW ^ ~below_BCHW.to(torch.uint8)


def solarize_add(images_BCHW: Tensor, add_BX: Tensor, fill_C11: Tensor) -> Tensor:
    """Pixels below 128 are made brighter by `add`, at most 128: none of them passes 255."""
    return images_BCHW + ((~images_BCHW >> 7) * _each(add_BX[:, 0].to(torch.uint8)))


def auto_contrast(images_BCHW: Tensor, _: Tensor, fill_C11: Tensor) -> Tensor:
    """Each channel is stretched to 0..255; a channel of one level stays."""
    low, high = (limit.double() for limit in (images_BCHW.amin((2, 3), True), images_BCHW.amax((2, 3), True)))
    scale = torch.full_like(low, 255) / (high - low)
    flat = high == low
    scale, offset = scale.masked_fill_(flat, 1), (low * scale).masked_fill_(flat, 0)
    return _pixels(images_BCHW.double().mul_(scale).sub_(offset))


def equalize(images_BCHW: Tensor, _: Tensor, fill_C11: Tensor) -> Tensor:
    """Each channel is mapped so that its histogram becomes nearly flat."""
    from torchvision.transforms.v2.functional import equalize_image

    return equalize_image(images_BCHW)


def mean_grey(images_BCHW: Tensor) -> Tensor:
    """Return the mean of `grey`, rounded, B x 1 x 1 x 1."""
    grey_B1HW = grey(images_BCHW)
    pixels = grey_B1HW.shape[2] * grey_B1HW.shape[3]
    return (2 * grey_B1HW.sum((1, 2, 3), keepdim=True) + pixels) // (2 * pixels)


def grey(images_BCHW: Tensor) -> Tensor:
    """Return Pillow's conversion to grey, B x 1 x H x W, int32."""
    red, green, blue = images_BCHW.int().split(1, 1)
    return (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2]).add_(0x8000) >> 16


def smooth(images_BCHW: Tensor) -> Tensor:
    """Return the images under Pillow's filter SMOOTH.

    3 x 3 neighbours, the pixel itself counted five times; the border stays as it is.
    """
    smoothed, pixels = images_BCHW.clone(), images_BCHW.short()
    rows = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * pixels[..., 1:-1, 1:-1]
    smoothed[..., 1:-1, 1:-1] = sums.float().add_(6.5).div_(13).short()  # never within 1/26 of a whole number
    return smoothed


def blend_with(start: Callable[[Tensor], Tensor], images_BCHW: Tensor, factor_BX: Tensor, fill_C11: Tensor) -> Tensor:
    """Blend what `start` makes of the images (factor 0) with themselves (1), or go beyond them."""
    return blend(start(images_BCHW), images_BCHW, factor_BX[:, 0])


def affine(images_BCHW: Tensor, matrix_BX: Tensor, fill_C11: Tensor, across: range, down: range) -> Tensor:
    """Each pixel (x, y) is taken from (a x + b y + c, d x + e y + f), by Pillow's six numbers: sheared, moved, rotated.

    `across` and `down`: offsets of the neighbours that count, from the pixel to the left, or above, on; a range of one
    where places fall on whole pixels.
    """
    size, device = images_BCHW.shape[-1], images_BCHW.device
    centre_S = torch.arange(0.5, size, dtype=torch.float64, device=device)
    across_2B11, down_2B11, offset_2B11 = matrix_BX.view(-1, 2, 3).permute(2, 1, 0).contiguous()[..., None, None]
    at_2BHW = (across_2B11 * centre_S).add(down_2B11 * centre_S[:, None]).add_(offset_2B11)
    mask_B1HW = ((at_2BHW >= 0) & (at_2BHW < size)).all(0)[:, None].to(torch.uint8).neg_()  # all bits set, or none
    start_2BHW = at_2BHW.sub_(0.5).floor()
    across_BHW, down_BHW = at_2BHW.sub_(start_2BHW)
    columns, rows = (
        (
            start_BHW.int()[:, None]
            + torch.arange(taps.start, taps.stop, dtype=torch.int32, device=device)[:, None, None]
        ).clamp_(0, size - 1)
        for start_BHW, taps in zip(start_2BHW, (across, down), strict=True)
    )
    source_BX = (rows.mul_(size)[:, :, None] + columns[:, None]).flatten(1).long()
    pixels = images_BCHW.flatten(2).gather(2, source_BX[:, None].expand(-1, images_BCHW.shape[1], -1))
    pixels = pixels.short().unflatten(2, (len(down), len(across), size, size))
    lines = _interpolate(pixels.unbind(3), across_BHW[:, None, None])
    changed_BCHW = _pixels(_interpolate(lines.unbind(2), down_BHW[:, None]))
    # bits, because choosing pixel by pixel is many times slower on a CPU
    return (changed_BCHW ^ fill_C11).bitwise_and_(mask_B1HW).bitwise_xor_(fill_C11)


def _interpolate(taps: Sequence[Tensor], between: Tensor) -> Tensor:
    """The value `between` (0..1) the two taps in the middle: linear in two taps, cubic (a = -1) in four."""
    if len(taps) == 1:
        return taps[0]
    if len(taps) == 2:
        return (taps[1] - taps[0]).double().mul_(between).add_(taps[0].double())
    before, first, second, after = taps
    value = (first - before).sub_(second).add_(after).double()
    value.mul_(between).add_((before - first).mul_(2).add_(second).sub_(after).double())
    value.mul_(between).add_((second - before).double())
    return value.mul_(between).add_(first.double())


def _pixels(values: Tensor) -> Tensor:
    """Cut off to 0..255 and to whole numbers. In place."""
    return values.clamp_(0, 255).short().to(torch.uint8)  # by way of int16, which is faster


def _each(number_B: Tensor) -> Tensor:
    return number_B[:, None, None, None]


# --- what is drawn ---

OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "posterize": posterize,
    "solarize": solarize,
    "solarize_add": solarize_add,
    "auto_contrast": auto_contrast,
    "equalize": equalize,
    "brightness": partial(blend_with, torch.zeros_like),
    "contrast": partial(blend_with, mean_grey),
    "color": partial(blend_with, grey),
    "sharpness": partial(blend_with, smooth),
}
for _way, _reach in (("linear", range(2)), ("cubic", range(-1, 3))):
    OPERATIONS[f"across_{_way}"] = partial(affine, across=_reach, down=range(1))
    OPERATIONS[f"down_{_way}"] = partial(affine, across=range(1), down=_reach)
    OPERATIONS[f"both_{_way}"] = partial(affine, across=_reach, down=_reach)
"""Operations on an image. Inverting is solarizing."""
KINDS = ("nothing", *OPERATIONS)
NUMBERS = 6
"""At most so many numbers go with an operation."""
Numbers = tuple[float, ...]


def numbers(operation: str, *values: float) -> Numbers:
    """Return the place of an operation in `KINDS` and its numbers, with zeros up to `NUMBERS` of them."""
    return float(KINDS.index(operation)), *values, *[0.0] * (NUMBERS - len(values))


def apply_operations(images_BCHW: Tensor, drawn_BLN: np.ndarray, fill_C11: Tensor) -> Tensor:
    """New images, changed as drawn.

    Args:
        images_BCHW: uint8, B x 3 x S x S.
        drawn_BLN: for each image and layer, float64, `numbers`.
        fill_C11: uint8, on the device of the images: the colour of what comes from outside an image.
    """
    images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
    for drawn_BN in drawn_BLN.swapaxes(0, 1):
        kinds_B = drawn_BN[:, 0].astype(int)
        order_B = kinds_B.argsort(kind="stable")
        table_BX = torch.from_numpy(np.column_stack([order_B, drawn_BN[order_B, 1:]]))
        table_BX = sent(table_BX, images_BCHW.device)
        counts = np.bincount(kinds_B, minlength=len(KINDS)).tolist()
        _nothing, *tables = table_BX.split(counts)
        for change, table_NX in zip(OPERATIONS.values(), tables, strict=True):
            if len(table_NX):
                places_N = table_NX[:, 0].long()
                changed_NCHW = change(images_BCHW.index_select(0, places_N), table_NX[:, 1:], fill_C11)
                replace_(images_BCHW, places_N, changed_NCHW)
    return images_BCHW


def fill_color(mean: Sequence[float]) -> Tensor:
    """Return timm's fill colour: the mean of each channel (in 0..1), uint8, C x 1 x 1."""
    return torch.tensor([min(255, round(255 * channel)) for channel in mean], dtype=torch.uint8)[:, None, None]


NOTHING = numbers("nothing")


@cache
def recording(transform_of: Any, config: str, image_size: int) -> Any:
    """Record in place of timm's operations: each gives the numbers of what it would carry out.

    Raises:
        VitinitError: timm refuses the configuration.
    """
    with imported(f"augmentation: {config!r} is not for timm", VitinitError):  # timm checks with bare asserts
        transform = transform_of(config, {})
    for op in transform.ops:
        op.aug_fn = partial(_recorded, op.aug_fn.__name__, image_size)
    return transform


def _recorded(name: str, size: int, _: Numbers, by: float = 0.0, *, resample: Any, **__: Any) -> Numbers:
    """Draw as timm's function of this name does, and return the numbers of `apply_operations`."""
    if name in OPERATIONS:
        return numbers(name, by)
    if name == "invert":
        return numbers("solarize", 0.0)
    angle, half = -math.radians(by % 360), size / 2
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)  # rounded as by Pillow
    moved, *matrix = {
        "shear_x": ("across", 1, by, 0, 0, 1, 0),
        "shear_y": ("down", 1, 0, 0, by, 1, 0),
        "translate_x_rel": ("across", 1, 0, by * size, 0, 1, 0),
        "translate_y_rel": ("down", 1, 0, 0, 0, 1, by * size),
        "rotate": ("both", cos, sin, cos * -half + sin * -half + half, -sin, cos, -sin * -half + cos * -half + half),
    }[name]
    way = "cubic" if random.choice(resample) == Image.Resampling.BICUBIC else "linear"
    return numbers(f"{moved}_{way}", *matrix)
