"""Linear centred kernel alignment (CKA) from Gram matrices: how alike two representations find the same images.

HSIC_1 is the unbiased estimator of Song et al. ("Feature Selection via Dependence Maximization", JMLR 2012), in the
form of Székely and Rizzo (arXiv 1310.2926): the inner product of U-centred Gram matrices. As in minibatch CKA (Nguyen
et al., arXiv 2010.15327) it is averaged over batches, in the numerator and in the denominator, before the division.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from initializers.errors import VitinitError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_IMAGES = 4
"""HSIC_1 divides by n (n - 3)."""


def cka(first_MBnn: NDArray[Any], second_KBnn: NDArray[Any]) -> Floats:
    """Linear CKA of each of M representations with each of K, M x K: 1 for the same but for rotation, shift and scale.

    Around 0, and below it too, for independent ones. NaN where a representation is the same for all images.

    Args:
        first_MBnn: Gram matrices X X^T of M representations, B batches of n images.
        second_KBnn: the same of K others, of the same images.

    Raises:
        VitinitError: other batches, or fewer than four images in one.
    """
    if first_MBnn.shape[1:] != second_KBnn.shape[1:]:
        batches = " and ".join("{} x {}".format(*grams.shape[1:3]) for grams in (first_MBnn, second_KBnn))
        raise VitinitError(f"CKA compares the same images, not Gram matrices of {batches} (batches x images)")
    if first_MBnn.shape[-1] < LEAST_IMAGES:
        raise VitinitError(f"CKA needs batches of {LEAST_IMAGES} images or more, not of {first_MBnn.shape[-1]}")
    first_MF, second_KF = u_centred(first_MBnn), u_centred(second_KBnn)
    norm_M, norm_K = (np.sqrt((centred**2).sum(-1)) for centred in (first_MF, second_KF))
    with np.errstate(invalid="ignore"):
        result: Floats = (first_MF / norm_M[:, None]) @ (second_KF / norm_K[:, None]).T
    return result


def u_centred(grams_MBnn: NDArray[Any]) -> Floats:
    """U-centred Gram matrices, M x B n n: inner product over B n (n - 3) is the mean over batches of HSIC_1.

    Off the diagonal, each entry minus the sums of its row and of its column over n - 2, plus the whole sum over
    (n - 1)(n - 2); the diagonal is 0 before and after.
    """
    n = grams_MBnn.shape[-1]
    off_diagonal = 1 - np.eye(n)
    grams = grams_MBnn.astype(np.float64) * off_diagonal
    rows, columns = grams.sum(-1, keepdims=True), grams.sum(-2, keepdims=True)
    centred = grams - rows / (n - 2) - columns / (n - 2) + rows.sum(-2, keepdims=True) / ((n - 1) * (n - 2))
    result: Floats = (centred * off_diagonal).reshape(len(grams), -1)
    return result
