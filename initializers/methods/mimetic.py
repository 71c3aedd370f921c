"""Method `mimetic`: attention weights whose products look like those of trained transformers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Generator, Tensor, nn

from vitinit.initializers.adapter import resolve
from vitinit.initializers.attention import AttentionLayer, attention_layers
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.threads import one_thread


@register
class Mimetic(Initializer):
    """Mimetic initialisation (Trockman and Kolter, ICML 2023, arXiv 2305.09828).

    With noise Z of variance 1/D per entry (D the width, d the features of a head):

    - per head, W_q^T W_k is the best rank-d approximation of `alpha_qk Z + beta_qk I` (by SVD, singular values shared
      evenly between the two factors);
    - per layer, the value path x -> x W_v^T W_proj^T is `alpha_vproj Z - beta_vproj I`, exactly (full rank).

    Everything else, biases included, keeps its base. The rank-d truncation lowers the diagonal of W_q^T W_k: about
    0.40, not 0.70, at d = 64 and D = 192.
    """

    name = "mimetic"
    sets = ("query", "key", "value", "proj", "mlp_in")

    alpha_qk: NonNegativeFloat = 0.7
    beta_qk: NonNegativeFloat = 0.7
    alpha_vproj: NonNegativeFloat = 0.4
    beta_vproj: NonNegativeFloat = 0.4
    noise: Literal["normal", "uniform"] = "normal"
    vproj_order: Literal["product", "released"] = "product"
    """`product`: the value path is the intended product V Proj. `released`: the factors in the order of the code
    released with arXiv 2404.01139, whose value path is Proj V instead: same mean diagonal, eight times its spread."""
    parts: Literal["both", "qk", "vo"] = "both"
    """`qk` leaves W_v and W_proj at their base, `vo` W_q and W_k. At one seed the rest is what `both` sets."""
    mlp_mean: float = 0.0
    """Added to every entry of the first matrix of each MLP, so that it has a mean (arXiv 2602.07156). The paper's value
    could not be read: this one is to be swept, and a setting of it is ours."""

    def _noise(self, width: int, generator: Generator) -> Tensor:
        z = torch.empty(width, width)
        bound = (3 / width) ** 0.5
        if self.noise == "normal":
            return z.normal_(0.0, width**-0.5, generator=generator)
        return z.uniform_(-bound, bound, generator=generator)

    def check(self, model: nn.Module) -> None:
        """Refuse attention in which the size of W_q and W_k has no effect, or in which W_v and W_proj do not meet."""
        if self.mlp_mean:
            self.blocks_of(model)
        for layer in self.attention_of(model, plain_logits=self.parts != "vo"):
            rows, width = layer.value_DD.shape
            if self.parts != "qk" and self.vproj_order == "released" and rows != width:
                raise VitinitError(
                    f"method 'mimetic': vproj_order='released' needs a square W_v, and that of {layer.name} is "
                    f"{rows} x {width}; vproj_order='product' sets any"
                )
            between = [path for path in layer.paths.before_proj if resolve(layer.module, path) is not None]
            if self.parts != "qk" and between:
                raise VitinitError(
                    f"method 'mimetic': {type(model).__name__} has a norm or a gate between W_v and W_proj "
                    f"({layer.name}), so that their product is no value path; parts='qk' sets W_q and W_k alone"
                )

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Overwrite W_q, W_k, W_v and W_proj of every attention layer, or one half of them."""
        with ThreadPoolExecutor(torch.get_num_threads()) as pool, one_thread():
            for layer in attention_layers(model):
                if self.mlp_mean:
                    next(iter(layer.mlp.values())).weight.add_(self.mlp_mean)
                # a thread draws nothing: `factors` does where the rank is larger than the width
                wide = max(layer.query_HdD.shape[1], len(layer.value_DD)) > layer.value_DD.shape[1]
                solve = map if wide else pool.map
                *heads, value = solve(
                    lambda goal: factors(goal[0], goal[1], generator) if goal else None, self._goals(layer, generator)
                )
                for number, pair in enumerate(heads):
                    if pair:
                        layer.query_HdD[number].copy_(pair[0].T)
                        layer.key_HdD[number].copy_(pair[1])
                if value:
                    left, right = value if self.vproj_order == "released" else (value[0].T, value[1].T)
                    layer.value_DD.copy_(left)
                    layer.proj_DD.copy_(right)

    def _goals(self, layer: AttentionLayer, generator: Generator) -> Iterator[tuple[Tensor, int] | None]:
        """Yield product and rank for W_q^T W_k of each head, then for the value path; None for what stays."""
        heads, features, width = layer.query_HdD.shape
        for _ in range(heads):
            goal_DD = self.alpha_qk * self._noise(width, generator) + self.beta_qk * torch.eye(width)
            yield None if self.parts == "vo" else (goal_DD, features)
        goal_DD = self.alpha_vproj * self._noise(width, generator) - self.beta_vproj * torch.eye(width)
        yield None if self.parts == "qk" else (goal_DD, len(layer.value_DD))


def factors(product_DD: Tensor, rank: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """`split`; of a rank larger than D a random orthonormal basis, rank x D, stands between the factors.

    The product is then exact, and no row of them is zero.
    """
    if not product_DD.isfinite().all():
        raise OverflowError("infinite entries in a product of weights")
    width = len(product_DD)
    left_Dr, right_rD = split(product_DD, min(rank, width))
    if rank > width:
        basis_rD = torch.linalg.qr(torch.randn(rank, width, generator=generator))[0]
        return left_Dr @ basis_rD.T, basis_rD @ right_rD
    return left_Dr, right_rD


def split(product_DD: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Two factors, D x rank and rank x D, whose product is the best approximation of this rank.

    Each has the square roots of the singular values, largest first. Where the rank is a small part of D, the leading
    eigenvectors of M^T M are all that is needed, in less than half the time of an SVD and to the same rounding.
    """
    if len(product_DD) > 4 * rank:
        values, vectors = torch.linalg.eigh(product_DD.T @ product_DD)
        kept_Dr = vectors[:, -rank:].flip(-1)
        roots_r = values[-rank:].flip(-1).clamp(min=torch.finfo(values.dtype).tiny) ** 0.25
        return product_DD @ kept_Dr / roots_r, roots_r[:, None] * kept_Dr.T
    u, s, vh = torch.linalg.svd(product_DD)
    return (u * s.sqrt())[:, :rank], (s.sqrt()[:, None] * vh)[:rank]
