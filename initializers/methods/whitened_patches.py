"""Method `whitened_patches`: a patch embedding that whitens the patches of training images."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn
from torch.nn import functional

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.threads import one_thread


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

    images: PositiveInt = 256
    """Training images whose patches are read."""
    epsilon: PositiveFloat = 5e-4
    """Keeps directions that hardly occur in images from becoming large."""

    def check(self, model: nn.Module) -> None:
        """Refuse models without a convolution over patches that do not overlap."""
        _embedding(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
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
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    if first is None or first.stride != first.kernel_size or first.groups != 1 or first.kernel_size == (1, 1):
        raise VitinitError(
            "method 'whitened_patches' sets a convolution over patches that do not overlap, and "
            f"{type(model).__name__} does not begin with one; choose another model"
        )
    return first
