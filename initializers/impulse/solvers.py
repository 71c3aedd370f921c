"""Three ways to find W_q and W_k whose attention on a pseudo-input is an impulse matrix."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from initializers.impulse.targets import Offset, impulse_targets
from initializers.registry import Progress


class _Solver(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Gradient(_Solver):
    """Algorithm 1 of arXiv 2404.01139 as in its released code: Adam on the mean squared error to H.

    Keeps the code's asymmetry: every `renormalize_every` steps each column of Q is rescaled over the width, but K over
    its d features, per input feature; and nothing is rescaled after the last such step.
    """

    name: Literal["gradient"] = "gradient"
    steps: NonNegativeInt = 10_000
    lr: PositiveFloat = 1e-4
    renormalize_every: PositiveInt = 100

    def solve(
        self,
        pseudo_ND: Tensor,
        grid: tuple[int, int],
        offsets: list[Offset],
        features: int,
        generator: torch.Generator,
        progress: Progress,
    ) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both heads x features x D, on the device of the pseudo-input."""
        device, width, heads = pseudo_ND.device, pseudo_ND.shape[1], len(offsets)
        targets_HNN = impulse_targets(grid, offsets).to(device)
        bound = math.sqrt(1 / (features * heads))
        query_HDd = torch.empty(heads, width, features).uniform_(-1, 1, generator=generator).mul_(bound).to(device)
        key_HdD = torch.empty(heads, features, width).uniform_(-1, 1, generator=generator).mul_(bound).to(device)
        norm = query_HDd.norm(dim=1).mean()
        query_HDd.requires_grad_()
        key_HdD.requires_grad_()
        optimizer = torch.optim.Adam([query_HDd, key_HdD], lr=self.lr)
        with torch.enable_grad():
            for step in range(self.steps):
                if step % self.renormalize_every == 0:
                    with torch.no_grad():
                        query_HDd.mul_(norm / query_HDd.norm(dim=1, keepdim=True))
                        key_HdD.mul_(norm / key_HdD.norm(dim=1, keepdim=True))
                    progress(step, self.steps)
                logits_HNN = (pseudo_ND @ query_HDd) @ (key_HdD @ pseudo_ND.T) * features**-0.5
                loss = (logits_HNN.softmax(-1) - targets_HNN).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        progress(self.steps, self.steps)
        return query_HDd.detach().transpose(1, 2), key_HdD.detach()


class Svd(_Solver):
    """The closed form of arXiv 2505.19985 as in its released code.

    Pulls `signal H + noise Z` (Z trunc-normal, on the zeros of H only) back through a pseudo-inverse of the
    pseudo-input that keeps its `features` largest singular values, cuts the result to rank `features` by SVD and
    scales both factors to a Frobenius norm. Its scale is made for a position embedding multiplied by 18.

    The released code inverts a random embedding, which has full rank. A sin-cos embedding has not (rank 21, in
    float32, on a 16 x 16 grid at width 192); directions in which the pseudo-input is zero are left out here, for their
    inverse is rounding noise.
    """

    name: Literal["svd"] = "svd"
    signal: PositiveFloat = 1000.0
    noise: Annotated[float, Field(ge=0)] = 3.0
    noise_std: PositiveFloat = 0.6
    norm: PositiveFloat = 7.0

    def solve(
        self,
        pseudo_ND: Tensor,
        grid: tuple[int, int],
        offsets: list[Offset],
        features: int,
        generator: torch.Generator,
        progress: Progress,
    ) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both heads x features x D, on the device of the pseudo-input."""
        targets_HNN = impulse_targets(grid, offsets)
        noise_HNN = torch.nn.init.trunc_normal_(torch.empty_like(targets_HNN), std=self.noise_std, generator=generator)
        goal_HNN = self.signal * targets_HNN + self.noise * noise_HNN * (targets_HNN == 0)
        pseudo = pseudo_ND.double()
        rank = min(features, int(torch.linalg.matrix_rank(pseudo_ND)))
        vectors, values, _ = torch.linalg.svd(pseudo.T @ pseudo)
        inverse_DN = (vectors[:, :rank] / values[:rank]) @ vectors[:, :rank].T @ pseudo.T
        u, s, vh = torch.linalg.svd(inverse_DN @ goal_HNN.to(pseudo) @ inverse_DN.T)
        root = s[:, None, :features].sqrt()
        factors = (u[:, :, :features] * root).transpose(1, 2), root.transpose(1, 2) * vh[:, :features]
        query, key = (self.norm * part / part.norm(dim=(1, 2), keepdim=True) for part in factors)
        return query.to(pseudo_ND), key.to(pseudo_ND)


class Rotation(_Solver):
    """Our own closed form: one small ridge regression for all heads.

    F(row, column) is a code of the token's position: sine and cosine of row and column at the features/4 highest
    frequencies of the sin-cos embedding. Shifting a position rotates each (sine, cosine) pair, so F(p) . F(q) depends
    on q - p only and is largest at q = p. With P the pseudo-input,

        W_k = sqrt(t) (P'P + lambda I)^-1 P' F(pos),    W_q = sqrt(t) (P'P + lambda I)^-1 P' F(pos + offset),

    hence the logits of a query peak at the key one offset away. The ridge bounds the weights: without it their norm
    is so large that the content of real images drowns the pattern. By default the temperature t is set so that W_k of
    a head has the norm that PyTorch's default gives it, sqrt(features / 3), which is also where the gradient solver
    starts and what it is renormalised to: the method changes the pattern of the weights, not their size.
    """

    name: Literal["rotation"] = "rotation"
    ridge: PositiveFloat = 1.0
    temperature: PositiveFloat | None = None
    """None: as large as keeps the norm of PyTorch's default; 5.0 for ViT-T at patch 2."""

    def solve(
        self,
        pseudo_ND: Tensor,
        grid: tuple[int, int],
        offsets: list[Offset],
        features: int,
        generator: torch.Generator,
        progress: Progress,
    ) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both heads x features x D, on the device of the pseudo-input; draws nothing."""
        width = pseudo_ND.shape[1]
        pseudo = pseudo_ND.double()
        gram = pseudo.T @ pseudo + self.ridge * torch.eye(width).to(pseudo)

        def weights(offset: Offset) -> Tensor:
            code_ND = position_code(grid, offset, features, width).to(pseudo)
            return torch.linalg.solve(gram, pseudo.T @ code_ND).T

        query_HdD = torch.stack([weights(offset) for offset in offsets])
        key_dD = weights((0, 0))
        temperature = self.temperature or features / 3 / float(key_dD.norm()) ** 2
        scale = math.sqrt(temperature)
        return (scale * query_HdD).to(pseudo_ND), (scale * key_dD).expand_as(query_HdD).to(pseudo_ND)


def position_code(grid: tuple[int, int], offset: Offset, features: int, width: int) -> Tensor:
    """F(position + offset) for every token, N x features, float64.

    Frequencies 10000^(-4i/width), i = 0, 1, ...: the highest ones of a sin-cos embedding of this width. Features
    beyond a multiple of four are zero.
    """
    count = features // 4
    frequency = 10000.0 ** (-torch.arange(count, dtype=torch.float64) / (width / 4))
    row, column = (
        axis.flatten().double() for axis in torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    )
    angles = [(axis + shift)[:, None] * frequency for axis, shift in zip((row, column), offset, strict=True)]
    code = torch.zeros(len(row), features, dtype=torch.float64)
    code[:, : 4 * count] = torch.cat([f(angle) for f in (torch.sin, torch.cos) for angle in angles], dim=1)
    return code


Solver = Annotated[Gradient | Svd | Rotation, Field(discriminator="name")]
