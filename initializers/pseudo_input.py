"""Pseudo-inputs: the tokens that W_q and W_k are solved on."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

PseudoInput = Literal["position", "uniform", "normal", "position+uniform", "position+normal", "images"]


def pseudo_input(tokens_ND: Tensor) -> Tensor:
    """LayerNorm without affine over the width: zero mean, unit variance, eps 1e-5."""
    return nn.functional.layer_norm(tokens_ND, tokens_ND.shape[-1:], eps=1e-5)


def made_up(kind: PseudoInput, embedding_ND: Tensor, generator: torch.Generator) -> Tensor:
    """A pseudo-input without data: position embedding, noise, or their sum, N x D.

    Noise is U(-1, 1) or trunc-normal with std sqrt(1/2), which is also the root mean square of a sin-cos embedding.
    LayerNorm comes last, over the sum, and over noise too: an attention layer only ever sees LayerNormed tokens, so
    pseudo-inputs are to differ in direction and not in size.
    """
    if kind == "position":
        return pseudo_input(embedding_ND)
    noise_ND = torch.empty(embedding_ND.shape)
    if kind.endswith("uniform"):
        noise_ND.uniform_(-1, 1, generator=generator)
    else:
        nn.init.trunc_normal_(noise_ND, std=0.5**0.5, generator=generator)
    noise_ND = noise_ND.to(embedding_ND)
    return pseudo_input(embedding_ND + noise_ND if kind.startswith("position") else noise_ND)
