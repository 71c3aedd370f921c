"""Methods that look at training images: `lsuv` and `whitened_patches`."""

import math
from typing import ClassVar

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Generator, Tensor, nn
from torch.nn import functional

from vitinit.initializers.adapter import Attention, resolve
from vitinit.initializers.adapters import description_of
from vitinit.initializers.attention import evaluated
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.threads import one_thread
from vitinit.initializers.whole_model import singular_vectors


@register
class Lsuv(Initializer):
    """Layer-sequential unit variance (Mishkin and Matas, arXiv 1511.06422), on one batch of training images.

    Every Linear and convolution, the head included, gets orthonormal rows or columns and bias 0. Then, from the first
    to the last, each weight is divided by the standard deviation of its outputs until that is within `tolerance` of 1.

    Traps. The authors' code goes by the order of registration; here it is that of execution, which is the same in a
    ViT and not in a ConViT. W_q, W_k and W_v are drawn and scaled as the Linears that they are, one or three.
    LayerNorm makes later layers blind to the scale of earlier ones, and with unit outputs of every branch the residual
    stream grows like the root of twice the depth.
    """

    name = "lsuv"
    touches = ("*.weight", "*.bias")
    tiny: ClassVar = {"images": 4}

    images: PositiveInt = 64
    """Training images in the batch."""
    tolerance: PositiveFloat = 0.1
    tries: NonNegativeInt = 10
    """A layer is corrected at most once more than this, as in the authors' code."""

    def check(self, model: nn.Module) -> None:
        """Refuse attention that does not call its Linears, so that nobody sees what they give."""
        super().check(model)
        for name, module in model.named_modules():
            paths = description_of(module)
            if isinstance(paths, Attention):
                home = paths.query.weight.rpartition(".")[0]
                if not home or (paths.query.bias != f"{home}.bias" and resolve(module, paths.query.bias) is not None):
                    raise VitinitError(
                        f"method 'lsuv' on {type(model).__name__}: {name or 'it'} ({type(module).__name__}) uses W_q, "
                        "W_k and W_v without calling a Linear, so that nobody sees their outputs; choose another model"
                    )

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Set every Linear and convolution.

        Raises:
            VitinitError: there are no training images, or a layer is not called just once in a forward pass.
        """
        images_BCHW = job.images(self.images, "method 'lsuv'")
        layers = _in_order(model, images_BCHW)
        for layer in layers.values():
            u, vh = singular_vectors(len(layer.weight), layer.weight[0].numel(), generator)
            orthonormal = u if u.numel() == layer.weight.numel() else vh
            layer.weight.copy_(orthonormal.float().view(layer.weight.shape))
            if layer.bias is not None:
                layer.bias.zero_()
        for done, (name, layer) in enumerate(layers.items()):
            job.progress(done, len(layers))
            for _ in range(self.tries + 1):
                seen: list[Tensor] = []
                hook = layer.register_forward_hook(lambda _, __, output, seen=seen: seen.append(output))
                with evaluated(model, [hook]):
                    model(images_BCHW)
                std = float(seen[0].cpu().double().std(unbiased=False))
                if abs(std - 1) <= self.tolerance:
                    break
                if not 0 < std < math.inf:
                    raise VitinitError(
                        f"method 'lsuv': the outputs of {name} have standard deviation {std:g} on these images, which "
                        "no scale makes 1: give other images, or a base that starts no token, norm or scale at 0"
                    )
                layer.weight /= std + 1e-8


Layer = nn.Linear | nn.Conv2d


def _in_order(model: nn.Module, images_BCHW: Tensor) -> dict[str, Layer]:
    """Every Linear and convolution by name, from the first that is carried out to the last."""
    layers = {
        name: module for name, module in model.named_modules() if isinstance(module, Layer) and module.weight.numel()
    }
    calls = []
    hooks = [layer.register_forward_hook(lambda *_, name=name: calls.append(name)) for name, layer in layers.items()]
    with evaluated(model, hooks):
        model(images_BCHW)
    for name in layers:
        if calls.count(name) != 1:
            raise VitinitError(
                f"method 'lsuv': {name} is called {calls.count(name)} times in a forward pass of "
                f"{type(model).__name__}, and its output is seen only where it is called once"
            )
    return {name: layers[name] for name in calls}


@register
class WhitenedPatches(Initializer):
    """The patch embedding gets the rows E / sqrt(lambda + `epsilon`), then the same with the other sign
    (KellerJordan/cifar10-airbench, legacy/airbench94.py).

    E are the eigenvectors of S = P^T P / n, with eigenvalues lambda, largest first, over the n patches of `images`
    training images. The first K features have variance nearly 1 and no correlation, K the numbers in a patch.

    Ours: that code has a convolution over all overlapping patches, a nonlinearity behind it and just 2 K features. Here
    patches are those that the model sees; of fewer features the first are taken, and further ones and the bias keep
    their base. An eigenvector's largest entry is positive, so that its sign does not depend on the machine.
    """

    name = "whitened_patches"
    touches = ("*.weight",)
    deterministic = True
    tiny: ClassVar = {"images": 4}

    images: PositiveInt = 256
    """Training images whose patches are read."""
    epsilon: PositiveFloat = 5e-4
    """Keeps directions that hardly occur in images from becoming large."""

    def check(self, model: nn.Module) -> None:
        """Refuse models without a convolution over patches that do not overlap."""
        _embedding(model)

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Set the weight of the patch embedding.

        Raises:
            VitinitError: there are no training images.
        """
        embedding = _embedding(model)
        images_BCHW = job.images(self.images, f"method {self.name!r}")
        with one_thread():
            patches_BKn = functional.unfold(
                images_BCHW.cpu().double(), embedding.kernel_size, stride=embedding.kernel_size
            )
            patches_nK = patches_BKn.transpose(1, 2).flatten(0, 1)
            values_K, vectors_KK = torch.linalg.eigh(patches_nK.T @ patches_nK / len(patches_nK))
        vectors_KK = vectors_KK.T.flip(0)
        largest_K1 = vectors_KK.gather(1, vectors_KK.abs().argmax(1, keepdim=True))
        whitening_KK = vectors_KK * largest_K1.sign() / (values_K.flip(0).clamp(min=0) + self.epsilon).sqrt()[:, None]
        rows_OK = torch.cat((whitening_KK, -whitening_KK)).float()[: embedding.out_channels]
        embedding.weight[: len(rows_OK)].copy_(rows_OK.view(-1, *embedding.weight.shape[1:]))


def _embedding(model: nn.Module) -> nn.Conv2d:
    """Return the first convolution of a model.

    Raises:
        VitinitError: there is none, or its patches overlap.
    """
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if first is None or first.stride != first.kernel_size or first.groups != 1 or first.kernel_size == (1, 1):
        raise VitinitError(
            "method 'whitened_patches' sets a convolution over patches that do not overlap, and "
            f"{type(model).__name__} does not begin with one; choose another model"
        )
    return first
