"""Pillow's image operations for whole batches, on the device of the images, with Pillow's pixels bit for bit.

Each function takes images B x 3 x S x S, uint8, one number (or one pair of numbers) for each of them, float64 on the
same device, and gives new images. Arithmetic is carried out in Pillow's order and width (float32 in blending, float64
in geometry), one rounding a step: no fused operations, no division by a Python number where it would count, which
some devices carry out as a multiplication. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LUMA = (19595, 38470, 7471)
"""Shares of red, green and blue in Pillow's grey, in 1/65536."""


def invert(images_BCHW: Tensor, _: Tensor) -> Tensor:
    """255 minus each pixel."""
    return ~images_BCHW


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
    channels_NP = images_BCHW.flatten(2).flatten(0, 1).long()
    count, pixels = channels_NP.shape
    bins_NP = channels_NP + 256 * torch.arange(count, device=images_BCHW.device)[:, None]
    # in one dimension adding is deterministic on every device
    histogram = torch.zeros(count * 256, dtype=torch.long, device=images_BCHW.device)
    histogram_NL = histogram.scatter_add_(0, bins_NP.flatten(), torch.ones_like(bins_NP).flatten()).view(count, 256)
    brightest_N1 = histogram_NL.gather(1, channels_NP.amax(1, keepdim=True))
    step_N1 = (pixels - brightest_N1) // 255
    darker_NL = histogram_NL.cumsum(1) - histogram_NL
    table_NL = ((step_N1 // 2 + darker_NL) // step_N1.clamp(min=1)).clamp(max=255)
    table_NL = torch.where(step_N1 > 0, table_NL, torch.arange(256, device=images_BCHW.device))
    return table_NL.to(torch.uint8).gather(1, channels_NP).view_as(images_BCHW)


def brightness(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Between black (0) and the image (1), or beyond it."""
    return _blend(images_BCHW.new_zeros(()), images_BCHW, factor_B)


def contrast(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Between the mean grey (0) and the image (1), or beyond it."""
    grey_BP = _grey(images_BCHW).flatten(1)
    pixels = grey_BP.shape[1]
    mean_B = (2 * grey_BP.sum(1) + pixels) // (2 * pixels)
    return _blend(_each(mean_B), images_BCHW, factor_B)


def color(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Between the grey image (0) and the image (1), or beyond it."""
    return _blend(_grey(images_BCHW)[:, None], images_BCHW, factor_B)


def sharpness(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Between the smoothed image (0) and the image (1), or beyond it. Smoothing leaves the border as it is."""
    pixels = images_BCHW.short()
    rows = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * pixels[..., 1:-1, 1:-1]
    smooth = images_BCHW.clone()
    smooth[..., 1:-1, 1:-1] = sums.float().add_(6.5).div_(13)  # never within 1/26 of a whole number
    return _blend(smooth, images_BCHW, factor_B)


def shift_rows(images_BCHW: Tensor, shift_BH: Tensor, cubic: bool, fill_C11: Tensor) -> Tensor:
    """Each row is moved to the left by its own number of pixels: all there is to shearing and translating."""
    size, device = images_BCHW.shape[-1], images_BCHW.device
    column_W = torch.arange(size, device=device)
    at_BHW = (column_W + 0.5) + shift_BH[:, :, None]
    start_BH1 = (at_BHW[..., :1] - 0.5).floor()
    between_BHW = (at_BHW - 0.5).sub_(start_BH1 + column_W)
    # neighbouring pixels of a row come from neighbouring pixels, so one gather serves all taps
    reach = range(-1, 3) if cubic else range(2)
    column = torch.arange(reach[0], size + reach[-1], device=device)
    source_BHW = (start_BH1.long() + column).clamp_(0, size - 1)
    taps = images_BCHW.gather(3, source_BHW[:, None].expand(-1, images_BCHW.shape[1], -1, -1)).short()
    pixels = _pixels(_interpolate([taps[..., tap : tap + size] for tap in range(len(reach))], between_BHW[:, None]))
    return _within((at_BHW >= 0) & (at_BHW < size), pixels, fill_C11)


def rotate(images_BCHW: Tensor, cos_sin_B2: Tensor, cubic: bool, fill_C11: Tensor) -> Tensor:
    """Each image is rotated counter-clockwise about its centre."""
    size, device = images_BCHW.shape[-1], images_BCHW.device
    cos, sin = cos_sin_B2[:, :, None, None].unbind(1)
    half = size / 2
    centre_S = torch.arange(size, device=device) + torch.tensor(0.5, dtype=torch.float64)
    x_BHW = (cos * centre_S + sin * centre_S[:, None]) + ((cos * -half + sin * -half) + half)
    y_BHW = (-sin * centre_S + cos * centre_S[:, None]) + ((-sin * -half + cos * -half) + half)
    inside_BHW = (x_BHW >= 0) & (x_BHW < size) & (y_BHW >= 0) & (y_BHW < size)
    x_BHW, y_BHW = x_BHW - 0.5, y_BHW - 0.5
    left_BHW, top_BHW = x_BHW.floor(), y_BHW.floor()
    across_BHW, down_BHW = x_BHW - left_BHW, y_BHW - top_BHW
    reach = torch.arange(-1, 3, device=device) if cubic else torch.arange(2, device=device)
    columns = (left_BHW.long()[:, None] + reach[:, None, None]).clamp_(0, size - 1)
    rows = (top_BHW.long()[:, None] + reach[:, None, None]).clamp_(0, size - 1)
    source = (rows[:, None] * size + columns[:, :, None]).flatten(1)
    taps = images_BCHW.flatten(2).gather(2, source[:, None].expand(-1, images_BCHW.shape[1], -1))
    taps = taps.short().unflatten(2, (len(reach), len(reach), size, size))
    lines = _interpolate(taps.unbind(2), across_BHW[:, None, None])
    return _within(inside_BHW, _pixels(_interpolate(lines.unbind(2), down_BHW[:, None])), fill_C11)


def _interpolate(taps: Sequence[Tensor], between: Tensor) -> Tensor:
    """The value `between` (0..1) the two taps in the middle: linear in two taps, cubic (a = -1) in four."""
    if len(taps) == 2:
        return (taps[1] - taps[0]).double().mul_(between).add_(taps[0].double())
    before, first, second, after = taps
    value = (-before + first - second + after).double()
    value.mul_(between).add_((2 * (before - first) + second - after).double())
    value.mul_(between).add_((second - before).double())
    return value.mul_(between).add_(first.double())


def _within(inside_BHW: Tensor, pixels_BCHW: Tensor, fill_C11: Tensor) -> Tensor:
    mask_B1HW = inside_BHW[:, None].to(torch.uint8).neg_()  # 255 inside
    return (pixels_BCHW ^ fill_C11).bitwise_and_(mask_B1HW).bitwise_xor_(fill_C11)


def _blend(degenerate: Tensor, images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    degenerate = degenerate.float()
    return _pixels(images_BCHW.float().sub_(degenerate).mul_(_each(factor_B.float())).add_(degenerate))


def _pixels(values: Tensor) -> Tensor:
    """Cut off to 0..255 and to whole numbers. In place."""
    return values.clamp_(0, 255).short().to(torch.uint8)  # by way of int16, which is faster


def _grey(images_BCHW: Tensor) -> Tensor:
    """Pillow's conversion to grey, B x H x W, int32."""
    red, green, blue = (share * images_BCHW[:, channel].int() for channel, share in enumerate(LUMA))
    return (red + green + blue + 0x8000) >> 16


def _each(number_B: Tensor) -> Tensor:
    return number_B[:, None, None, None]
