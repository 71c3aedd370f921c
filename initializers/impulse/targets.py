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


def impulse_targets(grid: tuple[int, int], offsets: list[Offset]) -> Tensor:
    """H: heads x N x N, 1 where key = query + offset, tokens in row-major order.

    A query whose offset points outside the grid has a row of zeros: no wrapping, no padding.
    """
    rows, columns = grid
    row, column = (axis.flatten() for axis in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
    targets = torch.zeros(len(offsets), rows * columns, rows * columns)
    for head, (down, right) in enumerate(offsets):
        inside = (row + down >= 0) & (row + down < rows) & (column + right >= 0) & (column + right < columns)
        query = inside.nonzero().flatten()
        targets[head, query, query + down * columns + right] = 1.0
    return targets
