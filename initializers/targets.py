"""Impulse matrices: each head looks at the token at one fixed offset. Controls, which break that pattern, and
pseudo-inputs: the tokens that W_q and W_k are solved on.
"""

from typing import Literal

import torch
from torch import Generator, Tensor, nn

from vitinit.initializers.adapter import TokenGrid

FIXED_OFFSETS = [4, 1, 5, 3, 7, 0, 2, 6, 8]
"""Order of the nine offsets k in arXiv 2505.19985's code: centre, up, right, left, down, corners."""

Offset = tuple[float, float]

Control = Literal["none", "shuffled_rows", "constant_offset", "random_binary"]


def head_offsets(kernel_size: int, heads: int, rule: Literal["random", "fixed"], generator: Generator) -> list[Offset]:
    """(row, column) offset of each head inside a kernel_size x kernel_size neighbourhood.

    `random` draws uniformly with replacement (arXiv 2404.01139), `fixed` goes through the nine offsets of a 3 x 3
    kernel in the order of arXiv 2505.19985.
    """
    if rule == "random":
        cells = torch.randint(kernel_size**2, (heads,), generator=generator).tolist()
    else:
        cells = [FIXED_OFFSETS[head % 9] for head in range(heads)]
    return [(cell // kernel_size - kernel_size // 2, cell % kernel_size - kernel_size // 2) for cell in cells]


def token_positions(grid: TokenGrid) -> Tensor:
    """(row, column) of every token in row-major order, N x 2, float64."""
    rows, columns = (torch.arange(side, dtype=torch.float64) for side in grid)
    return torch.cartesian_prod(rows, columns)


def target_positions(grid: TokenGrid, offsets: list[Offset]) -> Tensor:
    """(row, column) that each query is to attend to, heads x N x 2, float64; outside the grid it has no target."""
    return token_positions(grid) + torch.tensor(offsets, dtype=torch.float64)[:, None]


def broken(positions_HN2: Tensor, control: Control, grid: TokenGrid, generator: Generator) -> Tensor:
    """The target positions of an impulse matrix, with its pattern broken; heads x N x 2.

    - `shuffled_rows`: the rows of H are permuted, by one permutation a head. Each token is a target as often as before.
    - `random_binary`: each query that has a target has a random token in its place, drawn with replacement; the others
      have none (infinity).
    - `constant_offset`: all heads have the offset of the first. The pattern stays, its variety goes.
    """
    heads, tokens, _ = positions_HN2.shape
    if control == "shuffled_rows":
        rows_HN = torch.stack([torch.randperm(tokens, generator=generator) for _ in range(heads)])
        return positions_HN2.gather(1, rows_HN[..., None].expand_as(positions_HN2))
    if control == "random_binary":
        drawn_HN = torch.randint(tokens, (heads, tokens), generator=generator)
        has_target_HN, _ = target_keys(grid, positions_HN2)
        return token_positions(grid)[drawn_HN].masked_fill(~has_target_HN[..., None], torch.inf)
    if control == "constant_offset":
        return positions_HN2[:1].expand_as(positions_HN2)
    return positions_HN2


def target_keys(grid: TokenGrid, positions_HN2: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each query whether its target is inside the grid, and its key (0 where it has none), both heads x N.

    Tokens are in row-major order; no wrapping, no padding.
    """
    rows, columns = grid
    row_HN, column_HN = positions_HN2.unbind(-1)
    inside_HN = (row_HN >= 0) & (row_HN < rows) & (column_HN >= 0) & (column_HN < columns)
    return inside_HN, torch.where(inside_HN, row_HN * columns + column_HN, 0).long()


def target_matrices(grid: TokenGrid, positions_HN2: Tensor) -> Tensor:
    """H: heads x N x N, of layers too; 1 where the key is a query's target, rows of zeros where a query has none."""
    inside_HN, key_HN = target_keys(grid, positions_HN2)
    targets_HNN = torch.zeros(*inside_HN.shape, inside_HN.shape[-1])
    return targets_HNN.scatter_(-1, key_HN[..., None], inside_HN[..., None].float())


PseudoInput = Literal["position", "uniform", "normal", "position+uniform", "position+normal", "images"]


def pseudo_input(tokens_ND: Tensor) -> Tensor:
    """LayerNorm without affine over the width: zero mean, unit variance, eps 1e-5."""
    return nn.functional.layer_norm(tokens_ND, tokens_ND.shape[-1:], eps=1e-5)


def made_up(pseudo: PseudoInput, embedding_ND: Tensor, generator: Generator) -> Tensor:
    """A pseudo-input without data: position embedding, noise, or their sum, N x D.

    Noise is U(-1, 1) or trunc-normal with std sqrt(1/2), which is also the root mean square of a sin-cos embedding.
    LayerNorm comes last, over the sum, and over noise too: an attention layer only ever sees LayerNormed tokens, so
    pseudo-inputs are to differ in direction and not in size.
    """
    if pseudo == "position":
        return pseudo_input(embedding_ND)
    noise_ND = torch.empty(embedding_ND.shape)
    if pseudo.endswith("uniform"):
        noise_ND.uniform_(-1, 1, generator=generator)
    else:
        nn.init.trunc_normal_(noise_ND, std=0.5**0.5, generator=generator)
    noise_ND = noise_ND.to(embedding_ND)
    return pseudo_input(embedding_ND + noise_ND if pseudo.startswith("position") else noise_ND)
