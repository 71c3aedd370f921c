"""Impulse matrices: each head looks at the token at one fixed offset."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

FIXED_OFFSETS = [4, 1, 5, 3, 7, 0, 2, 6, 8]
"""Order of the nine offsets k in arXiv 2505.19985's code: centre, up, right, left, down, corners."""

Offset = tuple[int, int]


def head_offsets(
    kernel_size: int, heads: int, rule: Literal["random", "fixed"], generator: torch.Generator
) -> list[Offset]:
    """(row, column) offset of each head inside a kernel_size x kernel_size neighbourhood.

    `random` draws uniformly with replacement (arXiv 2404.01139), `fixed` goes through the nine offsets of a 3 x 3
    kernel in the order of arXiv 2505.19985.
    """
    if rule == "random":
        cells = torch.randint(kernel_size**2, (heads,), generator=generator).tolist()
    else:
        cells = [FIXED_OFFSETS[head % 9] for head in range(heads)]
    return [(cell // kernel_size - kernel_size // 2, cell % kernel_size - kernel_size // 2) for cell in cells]


def target_keys(grid: tuple[int, int], offsets: list[Offset]) -> tuple[Tensor, Tensor]:
    """Whether a query has its target inside the grid, and which key it is (0 where it has none), both heads x N.

    Tokens are in row-major order; no wrapping, no padding.
    """
    rows, columns = grid
    row, column = (axis.flatten() for axis in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
    shift_H2 = torch.tensor(offsets)
    row_HN, column_HN = row + shift_H2[:, :1], column + shift_H2[:, 1:]
    inside_HN = (row_HN >= 0) & (row_HN < rows) & (column_HN >= 0) & (column_HN < columns)
    return inside_HN, (row_HN * columns + column_HN) * inside_HN


def impulse_targets(grid: tuple[int, int], offsets: list[Offset]) -> Tensor:
    """H: heads x N x N, 1 where key = query + offset; a query without a target has a row of zeros."""
    inside_HN, key_HN = target_keys(grid, offsets)
    targets_HNN = torch.zeros(*inside_HN.shape, inside_HN.shape[1])
    return targets_HNN.scatter_(-1, key_HN[..., None], inside_HN[..., None].float())
