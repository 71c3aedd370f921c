"""Pillow's image operations for whole batches, on the device of the images, with Pillow's pixels bit for bit.

Each function but `replace_` takes images B x 3 x S x S, uint8, one number (or one pair of numbers) for each of them,
float64 on the same device, and gives new images. Arithmetic is carried out in Pillow's order and width (float32 in
blending, float64 in geometry), one rounding a step: no fused operations, no division by a Python number where it would
count, which some devices carry out as a multiplication. Nothing here waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

REACHES = (range(2), range(-1, 3))
"""The neighbours that count, from the pixel to the left on: of linear and of cubic interpolation."""

BOX_PASSES = 3
"""Box filters in a row, as Pillow has them in place of a Gaussian."""

LUMA = (19595, 38470, 7471)
"""Shares of red, green and blue in Pillow's grey, in 1/65536."""


def replace_(images_BCHW: Tensor, places_N: Tensor, new_NCHW: Tensor) -> None:
    """Put new images at some places, in place. The others stay."""
    rows_BX, new_NX = images_BCHW.flatten(1), new_NCHW.flatten(1)
    if rows_BX.shape[1] % 8 == 0:  # elements are copied one by one: the larger, the faster
        rows_BX, new_NX = rows_BX.view(torch.int64), new_NX.view(torch.int64)
    rows_BX.index_copy_(0, places_N, new_NX)


def posterize(images_BCHW: Tensor, bits_B: Tensor) -> Tensor:
    """The highest `bits` bits of each pixel. Pillow refuses fewer than 1, which magnitude noise does reach: black."""
    masks_B = (0xFF00 >> bits_B.long().clamp(0, 8)) & 0xFF
    return images_BCHW & _each(masks_B.to(torch.uint8))


def solarize(images_BCHW: Tensor, threshold_B: Tensor) -> Tensor:
    """Pixels from `threshold` on are inverted."""
    below_BCHW = (images_BCHW.short() - _each(threshold_B.short())) >> 15  # -1 where it holds, else 0
    return images_BCHW ^ ~below_BCHW.to(torch.uint8)


def solarize_add(images_BCHW: Tensor, add_B: Tensor) -> Tensor:
    """Pixels below 128 are made brighter by `add`, at most 128: none of them passes 255."""
    return images_BCHW + ((~images_BCHW >> 7) * _each(add_B.to(torch.uint8)))


def autocontrast(images_BCHW: Tensor, _: Tensor) -> Tensor:
    """Each channel is stretched to 0..255; a channel of one level stays."""
    low, high = (limit.double() for limit in (images_BCHW.amin((2, 3), True), images_BCHW.amax((2, 3), True)))
    scale = torch.full_like(low, 255) / (high - low)
    flat = high == low
    scale, offset = scale.masked_fill_(flat, 1), (low * scale).masked_fill_(flat, 0)
    return _pixels(images_BCHW.double().mul_(scale).sub_(offset))


def equalize(images_BCHW: Tensor, _: Tensor) -> Tensor:
    """Each channel is mapped so that its histogram becomes nearly flat."""
    channels_NP = images_BCHW.flatten(2).flatten(0, 1)
    (count, pixels), device = channels_NP.shape, images_BCHW.device
    bins_NP = channels_NP.long()
    bins_NP += torch.arange(0, 256 * count, 256, device=device)[:, None]
    # in one dimension adding is deterministic on every device
    histogram = torch.zeros(count * 256, dtype=torch.long, device=device)
    histogram.scatter_add_(0, bins_NP.flatten(), torch.ones_like(histogram[:1]).expand(count * pixels))
    histogram_NL = histogram.view(count, 256)
    brightest_N1 = histogram_NL.gather(1, channels_NP.amax(1, keepdim=True).long())
    step_N1 = (pixels - brightest_N1) // 255
    darker_NL = histogram_NL.cumsum(1).sub_(histogram_NL)
    table_NL = darker_NL.add_(step_N1 // 2).div(step_N1.clamp(min=1).double()).clamp_(max=255).to(torch.uint8)
    unchanged_NL = torch.arange(256, dtype=torch.uint8, device=device).expand_as(table_NL)
    return torch.where(step_N1 > 0, table_NL, unchanged_NL).take(bins_NP).view_as(images_BCHW)


def enhance(images_BCHW: Tensor, factor_B: Tensor, counts: Sequence[int]) -> Tensor:
    """Between a degenerate image (factor 0) and the image (1), or beyond it.

    Degenerate is, of as many images as `counts` says, black (brightness), the mean grey (contrast), grey (color), and
    smooth (sharpness).
    """
    degenerate_BCHW = torch.zeros_like(images_BCHW)
    _, contrast, color, sharpness = degenerate_BCHW.split(list(counts))
    grey_BHW = _grey(images_BCHW[counts[0] : len(images_BCHW) - counts[3]])
    contrast.copy_(_each(_mean(grey_BHW[: counts[1]])))
    color.copy_(grey_BHW[counts[1] :, None])
    sharpness.copy_(_smooth(images_BCHW[len(images_BCHW) - counts[3] :]))
    degenerate = degenerate_BCHW.float()
    return _pixels(images_BCHW.float().sub_(degenerate).mul_(_each(factor_B.float())).add_(degenerate))


def _grey(images_BCHW: Tensor) -> Tensor:
    """Pillow's conversion to grey, B x H x W, int32."""
    red, green, blue = images_BCHW.int().unbind(1)
    return (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2]).add_(0x8000) >> 16


def _mean(grey_BHW: Tensor) -> Tensor:
    """Pillow's mean grey, rounded, B."""
    pixels = grey_BHW.shape[1] * grey_BHW.shape[2]
    return (2 * grey_BHW.sum((1, 2)) + pixels) // (2 * pixels)


def _smooth(images_BCHW: Tensor) -> Tensor:
    """Pillow's filter SMOOTH: 3 x 3 neighbours, the pixel itself counted five times; the border stays as it is."""
    smooth, pixels = images_BCHW.clone(), images_BCHW.short()
    rows = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * pixels[..., 1:-1, 1:-1]
    smooth[..., 1:-1, 1:-1] = sums.float().add_(6.5).div_(13).short()  # never within 1/26 of a whole number
    return smooth


def shift_rows(images_BCHW: Tensor, numbers_B2: Tensor, counts: Sequence[int], fill_C11: Tensor) -> Tensor:
    """Rows are moved to the left: all there is to shearing and translating.

    Args:
        images_BCHW: those that are interpolated linearly, then those cubically.
        numbers_B2: how much further each row is moved than the one before it, and by how many pixels the upper edge.
        counts: how many there are of each.
        fill_C11: what comes from outside.
    """
    size, device = images_BCHW.shape[-1], images_BCHW.device
    centre_S = _centres(size, device)
    shift_BH1 = (numbers_B2[:, :1] * centre_S).add_(numbers_B2[:, 1:])[:, :, None]
    at_BHW = centre_S + shift_BH1
    mask_B1HW = _mask((at_BHW >= 0) & (at_BHW < size))
    at_BHW.sub_(0.5)
    start_BH1 = at_BHW[..., :1].floor()
    between_B1HW = at_BHW.sub_(start_BH1 + torch.arange(size, device=device))[:, None]
    source_BH1 = start_BH1.long()
    moved = []
    for part, reach in _parts(counts):
        # neighbouring pixels of a row come from neighbouring pixels, so one gather serves all taps
        source_BHX = source_BH1[part] + torch.arange(reach[0], size + reach[-1], device=device)
        source_BCHX = source_BHX.clamp_(0, size - 1)[:, None].expand(-1, images_BCHW.shape[1], -1, -1)
        taps = images_BCHW[part].gather(3, source_BCHX).short().unfold(3, size, 1).unbind(3)
        moved.append(_pixels(_interpolate(taps, between_B1HW[part])))
    return _within(mask_B1HW, torch.cat(moved), fill_C11)


def rotate(images_BCHW: Tensor, cos_sin_B2: Tensor, counts: Sequence[int], fill_C11: Tensor) -> Tensor:
    """Each image is rotated counter-clockwise about its centre.

    Args:
        images_BCHW: those that are interpolated linearly, then those cubically.
        cos_sin_B2: cosine and sine of the angle.
        counts: how many there are of each.
        fill_C11: what comes from outside.
    """
    size, device = images_BCHW.shape[-1], images_BCHW.device
    centre_S = _centres(size, device)
    cos_B1S, sin_B1S = (cos_sin_B2[:, :, None] * centre_S).split(1, 1)
    cos_B11, sin_B11 = (cos_sin_B2[:, :, None, None] * (-size / 2)).unbind(1)
    x_BHW = (cos_B1S + sin_B1S.mT).add_((cos_B11 + sin_B11).add_(size / 2))
    y_BHW = (cos_B1S.mT - sin_B1S).add_((cos_B11 - sin_B11).add_(size / 2))
    mask_B1HW = _mask((x_BHW >= 0) & (x_BHW < size) & (y_BHW >= 0) & (y_BHW < size))
    at_2BHW = torch.stack([x_BHW, y_BHW]).sub_(0.5)
    start_2BHW = at_2BHW.floor()
    across_BHW, down_BHW = at_2BHW.sub_(start_2BHW)
    source_2B1HW = start_2BHW.int()[:, :, None]
    moved = []
    for part, reach in _parts(counts):
        taps = torch.arange(reach[0], reach[-1] + 1, dtype=torch.int32, device=device)[:, None, None]
        columns, rows = (source_2B1HW[:, part] + taps).clamp_(0, size - 1)
        source = (rows.mul_(size)[:, :, None] + columns[:, None]).flatten(1).long()
        pixels = images_BCHW[part].flatten(2).gather(2, source[:, None].expand(-1, images_BCHW.shape[1], -1))
        pixels = pixels.short().unflatten(2, (len(taps), len(taps), size, size))
        lines = _interpolate(pixels.unbind(3), across_BHW[part, None, None])
        moved.append(_pixels(_interpolate(lines.unbind(2), down_BHW[part, None])))
    return _within(mask_B1HW, torch.cat(moved), fill_C11)


def grey(images_BCHW: Tensor, _: Tensor) -> Tensor:
    """Pillow's grey in all three channels."""
    return _grey(images_BCHW).to(torch.uint8)[:, None].expand_as(images_BCHW)


def affine_nearest(images_BCHW: Tensor, matrix_B6: Tensor, fill_C11: Tensor) -> Tensor:
    """Each pixel is the one at its place times the matrix, which is two rows of three numbers, in Pillow's order.

    Computed in Pillow's fixed-point numbers, of 16 bits after the point.
    """
    size, device = images_BCHW.shape[-1], images_BCHW.device
    across_B2, down_B2, start_B2 = matrix_B6.view(-1, 2, 3).unbind(2)
    start_B2 = start_B2 + across_B2 * 0.5 + down_B2 * 0.5
    across_2B11, down_2B11, start_2B11 = (
        (each * 65536 + 0.5).floor().long().mT[:, :, None, None] for each in (across_B2, down_B2, start_B2)
    )
    at_S = torch.arange(size, device=device)
    at_2BHW = start_2B11 + down_2B11 * at_S[:, None] + across_2B11 * at_S
    x_BHW, y_BHW = at_2BHW >> 16
    mask_B1HW = _mask((x_BHW >= 0) & (x_BHW < size) & (y_BHW >= 0) & (y_BHW < size))
    source_BP = (y_BHW.clamp(0, size - 1) * size + x_BHW.clamp(0, size - 1)).flatten(1)
    pixels = images_BCHW.flatten(2).gather(2, source_BP[:, None].expand(-1, images_BCHW.shape[1], -1))
    return _within(mask_B1HW, pixels.view_as(images_BCHW), fill_C11)


def box_weights(sigma: float) -> tuple[float, float, float]:
    """Weights of a pixel, its neighbours and the next ones in each pass of Pillow's Gaussian blur, in 1/2**24.

    Pillow computes in float32.

    Args:
        sigma: standard deviation in pixels; at most 2, so that no more neighbours count.
    """
    one = np.float32(1)
    sigma2 = np.float32(sigma) * np.float32(sigma) / np.float32(3)
    whole = np.float32(math.floor((np.float32(math.sqrt(12.0 * float(sigma2) + 1.0)) - 1.0) / 2.0))
    part = (2 * whole + one) * (whole * (whole + one) - 3 * sigma2) / (6 * (sigma2 - (whole + one) * (whole + one)))
    radius = whole + part
    inner = int(np.float32(2**24) / (radius * 2 + one))
    outer = (2**24 - (2 * int(radius) + 1) * inner) // 2
    return (inner, outer, 0) if radius < 1 else (inner, inner, outer)


def blur(images_BCHW: Tensor, weights_B3: Tensor) -> Tensor:
    """Pillow's Gaussian blur: three box filters along the rows, then three along the columns; see `box_weights`."""
    size, device = images_BCHW.shape[-1], images_BCHW.device
    source = torch.arange(-2, size + 2, device=device).clamp_(0, size - 1)
    middle, near, far = (_each(weight) for weight in weights_B3.long().unbind(1))
    pixels = images_BCHW.long()
    for _ in range(2):
        for _ in range(BOX_PASSES):
            taps = pixels.index_select(-1, source).unfold(-1, size, 1).unbind(-2)
            pixels = (middle * taps[2] + near * (taps[1] + taps[3]) + far * (taps[0] + taps[4]) + 2**23) >> 24
        pixels = pixels.mT
    return pixels.to(torch.uint8).contiguous()


def blend(images_BCHW: Tensor, others_BCHW: Tensor, share_B: Tensor) -> Tensor:
    """Between the images (share 0) and others (share 1), as `PIL.Image.blend` has it."""
    first = images_BCHW.float()
    return _pixels(others_BCHW.float().sub_(first).mul_(_each(share_B.float())).add_(first))


def crop(images_BCHW: Tensor, padding: int, top_B: Tensor, left_B: Tensor) -> Tensor:
    """Zero-pad by `padding` pixels, then cut the original size out at an offset for each image."""
    _, channels, height, width = images_BCHW.shape
    padded = F.pad(images_BCHW, (padding,) * 4)
    rows_BH = top_B[:, None] + torch.arange(height, device=top_B.device)
    columns_BW = left_B[:, None] + torch.arange(width, device=top_B.device)
    padded = padded.gather(2, rows_BH[:, None, :, None].expand(-1, channels, -1, padded.shape[3]))
    return padded.gather(3, columns_BW[:, None, None].expand(-1, channels, height, -1))


def _parts(counts: Sequence[int]) -> Iterator[tuple[slice, range]]:
    """The images that are interpolated linearly and those cubically, and which neighbours count."""
    first = 0
    for count, reach in zip(counts, REACHES, strict=True):
        if count:
            yield slice(first, first + count), reach
        first += count


def _interpolate(taps: Sequence[Tensor], between: Tensor) -> Tensor:
    """The value `between` (0..1) the two taps in the middle: linear in two taps, cubic (a = -1) in four."""
    if len(taps) == 2:
        return (taps[1] - taps[0]).double().mul_(between).add_(taps[0].double())
    before, first, second, after = taps
    value = (first - before).sub_(second).add_(after).double()
    value.mul_(between).add_((before - first).mul_(2).add_(second).sub_(after).double())
    value.mul_(between).add_((second - before).double())
    return value.mul_(between).add_(first.double())


def _mask(inside_BHW: Tensor) -> Tensor:
    """All bits set inside, none outside, uint8, B x 1 x H x W."""
    return inside_BHW[:, None].to(torch.uint8).neg_()


def _within(mask_B1HW: Tensor, pixels_BCHW: Tensor, fill_C11: Tensor) -> Tensor:
    """The pixels inside, the filling outside: bits, because choosing pixel by pixel is many times slower on a CPU."""
    return (pixels_BCHW ^ fill_C11).bitwise_and_(mask_B1HW).bitwise_xor_(fill_C11)


def _pixels(values: Tensor) -> Tensor:
    """Cut off to 0..255 and to whole numbers. In place."""
    return values.clamp_(0, 255).short().to(torch.uint8)  # by way of int16, which is faster


def _centres(size: int, device: torch.device) -> Tensor:
    """Return the coordinates of pixel centres, S."""
    return torch.arange(0.5, size, dtype=torch.float64, device=device)


def _each(number_B: Tensor) -> Tensor:
    return number_B[:, None, None, None]
