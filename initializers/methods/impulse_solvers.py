"""Three ways to find W_q and W_k whose attention on a pseudo-input is an impulse matrix."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Generator, Tensor

from vitinit.initializers.adapter import TokenGrid
from vitinit.initializers.registry import Job, Parameters
from vitinit.initializers.targets import target_keys, target_matrices, token_positions
from vitinit.initializers.threads import one_thread


@dataclass(frozen=True)
class Problem:
    """Problem that the weights of one or more attention layers solve: all at once, each on its own."""

    pseudo_ND: Tensor
    """The pseudo-input; solutions are of its type and on its device."""
    grid: TokenGrid
    """Rows and columns of the N tokens."""
    features: int
    """Features of a head, d."""
    positions_LHN2: Tensor
    """(row, column) that each query is to attend to, float64 on the CPU; outside the grid it has no target."""
    draws_L: Tensor
    """Draws of the solver for each layer, from `draw`, on the CPU."""


class Gradient(Parameters):
    """Algorithm 1 of arXiv 2404.01139 as in its released code: Adam on the mean squared error to H.

    Keeps the code's asymmetry: every `renormalize_every` steps each column of Q is rescaled over the width, but K over
    its d features, per input feature; and nothing is rescaled after the last such step.
    """

    name: Literal["gradient"] = "gradient"
    steps: NonNegativeInt = 10_000
    lr: PositiveFloat = 1e-4
    renormalize_every: PositiveInt = 100

    def draw(self, pseudo_ND: Tensor, heads: int, features: int, generator: Generator) -> Tensor:
        """Draw the start of Q and K^T: 2 x heads x D x d."""
        width = pseudo_ND.shape[1]
        bound = math.sqrt(1 / (features * heads))
        query_HDd = torch.empty(heads, width, features).uniform_(-1, 1, generator=generator)
        key_HdD = torch.empty(heads, features, width).uniform_(-1, 1, generator=generator)
        return torch.stack([query_HDd, key_HdD.mT]).mul_(bound)

    def solve(self, problem: Problem, job: Job) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both layers x heads x d x D.

        The gradient of softmax and squared error is worked out on paper. With A the attention and a its entry at a
        query's target, that of the logits is A * (A - s) - a H, times a constant, where s = sum of A^2 - a.
        """
        pseudo_ND, features = problem.pseudo_ND, problem.features
        layers, heads = problem.positions_LHN2.shape[:2]
        tokens, width = pseudo_ND.shape
        start_D2LHd = problem.draws_L.permute(3, 1, 0, 2, 4).contiguous().to(pseudo_ND)
        weights = start_D2LHd.flatten().requires_grad_()
        weights.grad = torch.zeros_like(weights)
        value_D2LHd, gradient_DW = weights.detach().view_as(start_D2LHd), weights.grad.view(width, -1)
        norm_L11 = start_D2LHd[:, 0].norm(dim=0).mean(dim=(1, 2))[:, None, None]
        optimizer = torch.optim.Adam([weights], lr=self.lr, fused=True)

        basis_Nr, pseudo_rD = _factors(pseudo_ND)
        rank = len(pseudo_rD)
        has_target_XN1, target_XN1 = (
            part.to(pseudo_ND.device)[..., None]
            for part in target_keys(problem.grid, problem.positions_LHN2.flatten(0, 1))
        )
        scale = features**-0.5
        constant = scale * 2 / (heads * tokens**2)
        heads_X = layers * heads
        gradient_r2Xd = pseudo_ND.new_empty(rank, 2, heads_X, features)
        attention_XNN = pseudo_ND.new_empty(heads_X, tokens, tokens)
        for step in range(self.steps):
            if step % self.renormalize_every == 0:
                query_DLHd, key_DLHd = value_D2LHd.unbind(1)
                query_DLHd.mul_(norm_L11 / query_DLHd.norm(dim=0, keepdim=True))
                key_DLHd.mul_(norm_L11 / key_DLHd.norm(dim=-1, keepdim=True))
                job.progress(step, self.steps)
            both_rX = pseudo_rD @ value_D2LHd.view(width, -1)
            query_Xrd, key_Xrd = both_rX.view(rank, 2, heads_X, features).permute(1, 2, 0, 3)
            logits_XNN = scale * query_Xrd @ key_Xrd.mT
            if basis_Nr is not None:
                logits_XNN = ((basis_Nr @ logits_XNN).flatten(0, 1) @ basis_Nr.T).view(-1, tokens, tokens)
            torch.softmax(logits_XNN, -1, out=attention_XNN)
            on_target_XN1 = attention_XNN.gather(-1, target_XN1).mul_(has_target_XN1)
            shift_XN1 = torch.linalg.vector_norm(attention_XNN, dim=-1, keepdim=True).square_().sub_(on_target_XN1)
            torch.sub(attention_XNN, shift_XN1, out=logits_XNN).mul_(attention_XNN)  # from here on their gradient
            logits_XNN.scatter_add_(-1, target_XN1, on_target_XN1.neg_())
            inner_Xrr = logits_XNN
            if basis_Nr is not None:
                inner_Xrr = basis_Nr.T @ (logits_XNN.flatten(0, 1) @ basis_Nr).view(heads_X, tokens, rank)
            inner_Xrr.mul_(constant)
            gradient_r2Xd[:, 0] = (inner_Xrr @ key_Xrd).transpose(0, 1)
            gradient_r2Xd[:, 1] = (inner_Xrr.mT @ query_Xrd).transpose(0, 1)
            torch.mm(pseudo_rD.T, gradient_r2Xd.view(rank, -1), out=gradient_DW)
            optimizer.step()
        query_LHdD, key_LHdD = value_D2LHd.permute(1, 2, 3, 4, 0)
        return query_LHdD, key_LHdD


def _factors(pseudo_ND: Tensor) -> tuple[Tensor | None, Tensor]:
    """The pseudo-input as B (N x r, orthonormal columns) times C (r x D), equal to rounding.

    A sin-cos embedding has a rank r far below N and D. Where the rank is not below half of N, B is None for the
    identity: factors would not save anything.
    """
    pseudo = pseudo_ND.cpu().double()  # Apple's GPUs have no float64
    with one_thread():
        vectors_NM, values_M, _ = torch.linalg.svd(pseudo, full_matrices=False)
    basis_Nr = vectors_NM[:, values_M > values_M[0] * torch.finfo(pseudo_ND.dtype).eps]
    if 2 * basis_Nr.shape[1] >= len(pseudo):
        return None, pseudo_ND
    return basis_Nr.to(pseudo_ND), (basis_Nr.T @ pseudo).to(pseudo_ND)


class Svd(Parameters):
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
    noise: NonNegativeFloat = 3.0
    noise_std: PositiveFloat = 0.6
    norm: PositiveFloat = 7.0

    def draw(self, pseudo_ND: Tensor, heads: int, features: int, generator: Generator) -> Tensor:
        """Z: heads x N x N."""
        tokens = len(pseudo_ND)
        return torch.nn.init.trunc_normal_(torch.empty(heads, tokens, tokens), std=self.noise_std, generator=generator)

    def solve(self, problem: Problem, job: Job) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both layers x heads x d x D, from float64 on the CPU.

        With P = U S V^T cut to rank r <= d, the matrix to be cut is V M V^T, where M = S^-1 U^T (signal H + noise Z) U
        S^-1 is only r x r: an SVD of M gives that of the whole.
        """
        features = problem.features
        with one_thread():
            pseudo = problem.pseudo_ND.cpu().double()
            u, s, vh = torch.linalg.svd(pseudo, full_matrices=False)
            rounding = max(pseudo.shape) * torch.finfo(torch.float32).eps
            rank = min(features, int((s > s[0] * rounding).sum()))
            inverse_Nr = u[:, :rank] / s[:rank]
            targets_LHNN = target_matrices(problem.grid, problem.positions_LHN2)
            goal_LHNN = torch.where(targets_LHNN == 0, self.noise * problem.draws_L, self.signal).double()
            core_LHrr = inverse_Nr.T @ goal_LHNN @ inverse_Nr
            left, values, right = torch.linalg.svd(core_LHrr)
            root = values[..., None, :].sqrt()
            factors = (left * root).mT, (right.mT * root).mT
            scaled = (self.norm * part / part.norm(dim=(2, 3), keepdim=True) @ vh[:rank] for part in factors)
            query_LHrD, key_LHrD = (part.to(problem.pseudo_ND) for part in scaled)
        missing = (0, 0, 0, features - rank)
        return torch.nn.functional.pad(query_LHrD, missing), torch.nn.functional.pad(key_LHrD, missing)


class Rotation(Parameters):
    """Our own closed form: one small ridge regression for all heads.

    F(row, column) is a code of the token's position: sine and cosine of row and column at the features/4 highest
    frequencies of the sin-cos embedding. Shifting a position rotates each (sine, cosine) pair, so F(p) . F(q) depends
    on q - p only and is largest at q = p. With P the pseudo-input,

        W_k = sqrt(t) (P'P + lambda I)^-1 P' F(pos),    W_q = sqrt(t) (P'P + lambda I)^-1 P' F(pos + offset),

    hence the logits of a query peak at the key one offset away; where targets are no offsets, F of the target position
    stands for F(pos + offset). The ridge bounds the weights: without it their norm is so large that the content of real
    images drowns the pattern. By default the temperature t is set so that W_k of a head has the norm that PyTorch's
    default gives it, sqrt(features / 3), which is also where the gradient solver starts and what it is renormalised to:
    the method changes the pattern of the weights, not their size.
    """

    name: Literal["rotation"] = "rotation"
    ridge: PositiveFloat = 1.0
    temperature: PositiveFloat | None = None
    """None: as large as keeps the norm of PyTorch's default; 5.0 for ViT-T at patch 2."""

    def draw(self, pseudo_ND: Tensor, heads: int, features: int, generator: Generator) -> Tensor:
        """Nothing."""
        return torch.empty(0)

    def solve(self, problem: Problem, job: Job) -> tuple[Tensor, Tensor]:
        """W_q and W_k, both layers x heads x d x D, from float64 on the CPU; heads with the same targets share one."""
        features, width = problem.features, problem.pseudo_ND.shape[1]
        own_N2 = token_positions(problem.grid)
        asked = torch.cat([own_N2[None], problem.positions_LHN2.flatten(0, 1)])
        distinct, index = torch.unique(asked.flatten(1), dim=0, return_inverse=True)
        key_index, query_index_LH = int(index[0]), index[1:].view(problem.positions_LHN2.shape[:2])
        with one_thread():
            pseudo = problem.pseudo_ND.cpu().double()
            gram_DD = pseudo.T @ pseudo + self.ridge * torch.eye(width, dtype=torch.float64)
            codes = torch.cat(
                [position_code(wanted, features, width) for wanted in distinct.view(-1, *own_N2.shape)], 1
            )
            solved = torch.cholesky_solve(pseudo.T @ codes, torch.linalg.cholesky(gram_DD))
            weights_OdD = solved.T.reshape(len(distinct), features, width)
            temperature = self.temperature or features / 3 / float(weights_OdD[key_index].norm()) ** 2
            weights_OdD = (math.sqrt(temperature) * weights_OdD).to(problem.pseudo_ND)
        query_LHdD = weights_OdD[query_index_LH]
        return query_LHdD, weights_OdD[key_index].expand_as(query_LHdD)


def position_code(positions_N2: Tensor, features: int, width: int) -> Tensor:
    """F of every (row, column), N x features, float64; zero at infinity, which is nowhere.

    Frequencies 10000^(-4i/width), i = 0, 1, ...: the highest ones of a sin-cos embedding of this width. Features
    beyond a multiple of four are zero.
    """
    count = features // 4
    frequency = 10000.0 ** (-torch.arange(count, dtype=torch.float64) / (width / 4))
    angles = [axis[:, None] * frequency for axis in positions_N2.unbind(-1)]
    code = torch.zeros(len(positions_N2), features, dtype=torch.float64)
    code[:, : 4 * count] = torch.cat([f(angle) for f in (torch.sin, torch.cos) for angle in angles], dim=1)
    return code.nan_to_num()


Solver = Annotated[
    Gradient | Svd | Rotation,
    Field(discriminator="name"),
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
]
