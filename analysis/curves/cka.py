"""Linear centred kernel alignment (CKA) from Gram matrices: how alike two representations find the same images.

HSIC_1 is the unbiased estimator of Song et al. ("Feature Selection via Dependence Maximization", JMLR 2012), in the
form of Székely and Rizzo (arXiv 1310.2926): the inner product of U-centred Gram matrices. As in minibatch CKA (Nguyen
et al., arXiv 2010.15327) it is averaged over batches, in the numerator and in the denominator, before the division.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDING = 1e-10
"""Threshold of a constant Gram matrix: the share of it that centring leaves."""


def cka(first_MBnn: NDArray[Any], second_KBnn: NDArray[Any]) -> Floats:
    """Compute linear CKA of M representations with K others, M x K: 1 if equal up to rotation, shift and scale.

    Independent representations have about 0, which may be negative. NaN where all images have the same one.

    Args:
        first_MBnn: Gram matrices X X^T of M representations, B batches of n > 3 images.
        second_KBnn: the same of K others, of the same images.
    """
    return _directions(first_MBnn) @ _directions(second_KBnn).T


def _directions(grams_MBnn: NDArray[Any]) -> Floats:
    """Return U-centred Gram matrices divided by their norms, M x B n n.

    The inner product of two U-centred ones over n (n - 3) is HSIC_1. The diagonal is 0; off it, each entry is minus the
    sums of its row and of its column over n - 2, plus the whole sum over (n - 1)(n - 2).
    """
    n = grams_MBnn.shape[-1]
    off_diagonal_nn = 1 - np.eye(n)
    grams_MBnn = grams_MBnn.astype(np.float64) * off_diagonal_nn
    rows, columns = grams_MBnn.sum(-1, keepdims=True), grams_MBnn.sum(-2, keepdims=True)
    centred = grams_MBnn - (rows + columns) / (n - 2) + rows.sum(-2, keepdims=True) / ((n - 1) * (n - 2))
    centred_MF = (centred * off_diagonal_nn).reshape(len(centred), -1)
    norms_M, before_M = (np.linalg.norm(grams.reshape(len(centred), -1), axis=1) for grams in (centred_MF, grams_MBnn))
    return centred_MF / np.where(norms_M > ROUNDING * before_M, norms_M, np.nan)[:, None]
