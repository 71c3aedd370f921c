"""Models, built from their specs, and what building tells. Imports no torch before it is needed."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from vitinit.benchmark.models.registry import BaseModelSpec, ModelSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import Tensor, nn

CLASSES = 10
"""Number of classes that is assumed where the dataset does not matter."""
IMAGES = 2
"""A BatchNorm in training wants more than one."""


def build_model(spec: BaseModelSpec, classes: int, dense: bool = False, seed: int = 0) -> nn.Module:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    Of a model by name the base leaves what no rule covers: that is as its library has it, drawn by the seed.

    With `dense` it predicts a class for every pixel (`predicting_pixels`), from the same parameters: for
    families that are `dense`.
    """
    import torch

    from vitinit.initializers.streams import derive, seeded_python
    from vitinit.initializers.whole_model import BY_NAME

    # timm draws while it builds, and code of anyone's: global generators stay as they were
    with torch.random.fork_rng(devices=[]), seeded_python(derive(seed, "model")):
        if spec.by_name:
            torch.default_generator.manual_seed(seed)
        model = spec.build(classes)
        if spec.by_name:
            setattr(model, BY_NAME, True)
    return predicting_pixels(model, cast(ModelSpec, spec)) if dense else model


@cache
def without_values(spec: BaseModelSpec) -> nn.Module:
    """The model for `CLASSES` on the device `meta`: shapes without values; one for all that look at it."""
    import timm  # noqa: F401 - torch's compiler, which it loads, cannot be loaded on `meta`
    import torch

    getattr(spec, "constructor", None)  # nor is a file of one's own to make its tensors there, as it is imported
    try:
        with torch.device("meta"):
            return build_model(spec, CLASSES)
    except Exception:
        if not spec.by_name:
            raise
        return build_model(spec, CLASSES).to("meta")  # of code that reads values as it builds


def parameter_count(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@cache
def has_batch_norm(spec: BaseModelSpec) -> bool:
    """Return True if a model has a BatchNorm: built for ten classes, it classifies.

    It has shapes without values where its code does not read them.

    Raises:
        VitinitError: it does not give one score for each image and class.
    """
    try:
        return _tried(spec, without_values(spec), "meta")
    except VitinitError:
        raise
    except Exception:  # of code that reads values, which shapes do not have
        return _tried(spec, build_model(spec, CLASSES), "cpu")


def _tried(spec: BaseModelSpec, model: nn.Module, device: str) -> bool:
    import torch

    images_BCHW = torch.zeros(IMAGES, 3, spec.image_size, spec.image_size, device=device)
    for training in (True, False):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            scores = model.train(training)(images_BCHW)
        shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        if shape != (IMAGES, CLASSES):
            raise VitinitError(
                f"gives {shape} {'in training' if training else 'in evaluation'} for {IMAGES} images "
                f"of {spec.image_size} px and {CLASSES} classes; a classifier gives one score for each image and class"
            )
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())


def halve_residuals(model: Any) -> None:
    """Give blocks their tokens, and norms their numbers (timm's fast norm), in the type of autocast where it is on.

    Autocast alone adds what a branch gives in half precision to a stream in fp32, which positions are, too.
    """
    import torch

    def cast(_: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
        device = inputs[0].device.type
        return inputs[0].to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None

    for block in model.blocks:
        block.register_forward_pre_hook(cast)
    for module in model.modules():
        if hasattr(module, "_fast_norm"):
            module._fast_norm = True


def predicting_pixels(model: nn.Module, spec: ModelSpec) -> nn.Module:
    """Make a classifier predict a class for each pixel: its output is B x S x S x classes, the class last.

    That is its linear classifier on each patch token, enlarged bilinearly (Strudel et al., 2105.05633): the one that
    the family has, so that bases set it, and methods leave it, as in any other run.

    Parameters, their names and the state dict stay. Class tokens are left out, and a norm that comes after pooling is
    of every token.

    Args:
        model: of a family that is `dense`.
        spec: its own.
    """
    import torch

    changed: Any = model
    # moves with the model: made in the forward pass, it would be sent to the device each time
    # of each of G tokens for each of S pixels of a line: bilinear, corners not aligned
    enlarging_GS = torch.nn.functional.interpolate(torch.eye(spec.grid)[None], size=spec.image_size, mode="linear")[0]
    model.register_buffer("enlarging_GS", enlarging_GS, persistent=False)
    changed.forward_head = partial(_logits_of_pixels, model, spec.grid)
    return model


def _logits_of_pixels(model: Any, grid: int, features: Tensor) -> Tensor:
    import torch

    tokens_BND = features.flatten(2).transpose(1, 2) if features.ndim == 4 else features[:, -(grid**2) :]
    norm = getattr(model, "fc_norm", None)
    logits_BNK = model.head(model.head_drop(norm(tokens_BND) if norm else tokens_BND))
    logits_BGGK = logits_BNK.unflatten(1, (grid, grid))
    # two products, and not F.interpolate: on a GPU its gradient has no order of summation that is always the same
    enlarging_GS = model.enlarging_GS.to(logits_BGGK)
    return torch.einsum("gs, bghk, ht -> bstk", enlarging_GS, logits_BGGK, enlarging_GS)
