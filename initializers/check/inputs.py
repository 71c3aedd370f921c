"""Images and labels of a check: given ones are looked at, missing ones are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.initializers.adapter import found
from vitinit.initializers.attention import family
from vitinit.initializers.check.report import Finding
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import stream

MOST = 16
"""Images that are looked at."""
RAW = 20.0
"""Largest normalised pixel of any data set whose channels have a standard deviation of 0.05 or more: 1 / 0.05."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = (224, 32, 64, 28, 96, 128, 256, 384, 16, 8)
NORMALISE = "torchvision.transforms.Normalize(mean, std) with those of the training images, after scaling to 0..1"


def logits_of(out: Any) -> Tensor:
    """The logits, B x K, among what a model returns.

    Raises:
        VitinitError: there are none.
    """
    for path in ("logits", "prediction"):
        if isinstance(getattr(out, path, None), Tensor):
            out = getattr(out, path)
    if isinstance(out, dict):
        out = out.get("logits", next(iter(out.values()), None))
    while isinstance(out, tuple | list) and out:
        out = out[0]
    if not isinstance(out, Tensor):
        raise VitinitError(f"the model returns a {type(out).__name__}, and logits of B x K are needed: a classifier")
    if out.ndim != 2:
        size = " x ".join(map(str, out.shape))
        raise VitinitError(f"the model returns {size}, and logits of B x K are needed: a classifier with a head")
    return out


def check_images(images: Any) -> Tensor:
    """Return the images that are looked at, as float32.

    Raises:
        VitinitError: they are none.
    """
    if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
        raise VitinitError("images must be a tensor of B x C x H x W, B at least 1")
    if images.layout != torch.strided or images.is_meta or images.is_quantized or images.is_complex():
        raise VitinitError("images must hold plain numbers: not sparse, quantised, complex or on the meta device")
    return images[:MOST].detach().float()


def image_findings(images_BCHW: Tensor, mean: tuple[float, ...]) -> Iterator[Finding]:
    """Yield what is wrong with the images that were given."""
    if bad := int((~images_BCHW.isfinite()).sum()):
        what = f"{bad:,} of {images_BCHW.numel():,} pixels are NaN or infinite"
        yield Finding(
            "images-not-finite", "images", what, "look for a division by a std of 0 in the transforms", "ours"
        )
        return
    low, high = float(images_BCHW.min()), float(images_BCHW.max())
    flat = images_BCHW.flatten(1)
    constant = int((flat.std(1, correction=0) <= 1e-6 * flat.abs().amax(1)).sum()) if flat.shape[1] > 1 else 0
    if constant:
        yield Finding(
            "images-constant",
            "images",
            f"{constant} of {len(flat)} images have the same number in every pixel",
            "look at a batch: plt.imshow(images[0].permute(1, 2, 0))",
            "all patches of such an image are equal, so attention is uniform whatever the weights",
        )
    elif len(flat) > 1 and bool((flat == flat[0]).all()):
        yield Finding(
            "images-equal",
            "images",
            f"all {len(flat)} images are the same",
            "look at a batch, and at the sampler of the loader",
            "one image cannot have several labels",
        )
    if max(abs(low), abs(high)) > RAW:
        yield Finding(
            "images-not-normalised",
            "images",
            f"pixels are from {low:.3g} to {high:.3g}, beyond {RAW:g}: those of 0..255, not normalised",
            NORMALISE,
            "normalised pixels reach 1 / std at most, which is 4 to 5 for photographs",
        )
    elif low >= 0 and high <= 1 and any(mean) and not constant:
        yield Finding(
            "images-not-normalised",
            "images",
            f"pixels are from {low:.3g} to {high:.3g}: scaled to 0..1, not normalised",
            NORMALISE,
            "configurations of timm, torchvision and transformers all subtract a mean",
        )


def check_labels(labels: Any, count: int) -> Tensor:
    """Return the labels of these images, int64.

    Raises:
        VitinitError: they are none.
    """
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise VitinitError("labels must be a tensor of B whole numbers, one class an image")
    if len(labels) < count:
        raise VitinitError(f"there are {len(labels)} labels for {count} images: one an image")
    return labels[:count].detach().long()


def label_findings(labels_B: Tensor, classes: int) -> Iterator[Finding]:
    """Yield what is wrong with the labels."""
    low, high = int(labels_B.min()), int(labels_B.max())
    if low < 0 or high >= classes:
        yield Finding(
            "labels-out-of-range",
            "labels",
            f"they are from {low} to {high}, and {classes} logits have the classes 0 to {classes - 1}",
            "labels - 1 where they count from 1; else as many logits as there are classes (num_classes)",
            "torch.nn.functional.cross_entropy: classes are 0 to C - 1",
        )


def statistics(model: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Mean and standard deviation that a model's configuration names, else those of ImageNet, and whose they are."""
    for module in (model, *(one.model for one in (family_of(model),) if one)):
        for attribute in ("pretrained_cfg", "default_cfg"):
            held = getattr(module, attribute, None)
            mean, std = (_of(held, name) for name in ("mean", "std"))
            if mean and std and all(map(float, std)):
                return tuple(map(float, mean)), tuple(map(float, std)), "the model's own"
    return *IMAGENET, "ImageNet's"


def family_of(model: nn.Module) -> Any:
    """`attention.family`, None where it cannot be told."""
    with suppress(VitinitError):
        return family(model)
    return None


def _of(held: Any, name: str) -> Any:
    return held.get(name) if isinstance(held, dict) else getattr(held, name, None)


def sizes(model: nn.Module) -> list[int]:
    """Sides of images that a model may be made for, the likeliest first."""
    known = family_of(model)
    inside = [model, *([known.model] if known else [])]
    named: list[Any] = []
    for one in inside:
        named += [found(one, path) for path in ("patch_embed.img_size", "config.image_size", "image_size", "img_size")]
        for attribute in ("pretrained_cfg", "default_cfg"):
            given = _of(getattr(one, attribute, None), "input_size")
            named.append(given[-1] if given else None)
    sides = [int(one[-1] if isinstance(one, tuple | list) else one) for one in named if one]
    return list(dict.fromkeys([*sides, *SIZES]))


def drawn_images(model: nn.Module, count: int, seed: int, size: int | None) -> tuple[Tensor, str]:
    """Random images, coarse and fine, normalised by the model's own statistics; of a size that the model takes.

    Raises:
        VitinitError: it takes none that was tried.
    """
    mean, std, whose = statistics(model)
    first = next((one for one in model.modules() if isinstance(one, nn.Conv2d)), None)
    likely = first.in_channels if first is not None and first.in_channels <= 4 else len(mean)
    why = ""
    for channels in dict.fromkeys((likely, 3, 1)):
        for side in [size] if size else sizes(model):
            generator = stream(seed, "check/images")
            fine = torch.rand(count, channels, side, side, generator=generator)
            coarse = torch.rand(count, channels, max(2, side // 16), max(2, side // 16), generator=generator)
            pixels = 0.5 * fine + 0.5 * nn.functional.interpolate(coarse, (side, side), mode="bilinear")
            scale = [(mean * 3)[:channels], (std * 3)[:channels]]
            mean_C, std_C = (torch.tensor(one)[:, None, None] for one in scale)
            images_BCHW = ((pixels - mean_C) / std_C).to(_device(model))
            if not (error := failure(model, images_BCHW[:1])):
                return images_BCHW, f"{count} random images of {side} x {side}, {whose} mean and std (no data given)"
            why = why or error
    given = f"{size} x {size}" if size else f"any of {', '.join(map(str, sizes(model)))} pixels a side"
    raise VitinitError(f"{type(model).__name__} does not take images of {given}: {why}; give images=batch")


def failure(model: nn.Module, images_BCHW: Tensor) -> str:
    """Return the reason why a model does not take images, in one line; empty where it does."""
    try:
        with torch.no_grad():
            model(images_BCHW)
    except Exception as error:  # code of anyone's
        return plain(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", 200)
    return ""


def _device(model: nn.Module) -> torch.device:
    return next((one.device for one in model.parameters()), torch.device("cpu"))


def drawn_labels(count: int, classes: int, seed: int) -> Tensor:
    """Random labels."""
    return torch.randint(classes, (count,), generator=stream(seed, "check/labels"))


def shuffled_patches(images_BCHW: Tensor, grid: tuple[int, int], seed: int) -> Tensor | None:
    """The same images with their patches in another order; None where they do not divide so."""
    batch, channels, height, width = images_BCHW.shape
    rows, columns = grid
    if height % rows or width % columns or rows * columns < 2:
        return None
    high, wide = height // rows, width // columns
    cut = images_BCHW.view(batch, channels, rows, high, columns, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    cut = cut[:, torch.randperm(rows * columns, generator=stream(seed, "check/patches")).to(cut.device)]
    return cut.view(batch, rows, columns, channels, high, wide).permute(0, 3, 1, 4, 2, 5).reshape(images_BCHW.shape)
