"""Method `impulse`: attention that starts as a convolution with random impulse filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import PositiveFloat, StrictInt, field_validator, model_validator
from torch import Tensor, nn

from initializers.attention import attention_layers, position_embedding, token_grid
from initializers.errors import VitinitError
from initializers.impulse.solvers import Problem, Rotation, Solver
from initializers.impulse.targets import Offset, head_offsets, impulse_targets
from initializers.registry import Initializer, Progress, Remember, register, solve_anew

SOURCE = b"".join((Path(__file__).with_name(name)).read_bytes() for name in ("solvers.py", "targets.py"))
"""Of the code that solves, as it was when it was imported."""


@register
class Impulse(Initializer):
    """Structured (impulse) initialisation of W_q and W_k (Zheng, Li and Lucey, arXiv 2404.01139 and 2505.19985).

    Every head gets one offset in a kernel_size x kernel_size neighbourhood, and W_q, W_k are solved so that on the
    pseudo-input (the LayerNormed position embedding) each token attends to the token at that offset. Everything else,
    biases included, keeps its base.

    Two versions exist. 2404: random offsets, `solver="gradient"`, one solution for all layers. 2505: fixed offsets,
    `solver="svd"`, one solution a layer, embedding scaled by 18 (W_v and W_proj, which that release sets too, keep
    their base here). The default solver `rotation` is ours: at the weight
    norm of the gradient solution it puts about three times the attention mass on the target on real images.
    """

    name: ClassVar[str] = "impulse"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight", "*.qk.weight", "pos_embed")

    kernel_size: StrictInt = 3
    """Odd; 3 and 5 in the papers."""
    solver: Solver = Rotation()
    """A name, or a mapping with `name` and the solver's own parameters."""
    offsets: Literal["random", "fixed"] = "random"
    """`fixed` is the order of arXiv 2505.19985 and needs kernel_size 3."""
    per_layer: bool = False
    """Draw offsets and solve anew for every layer, in place of one solution copied to all."""
    position_scale: PositiveFloat = 1.0
    """Multiply the position embedding in place before anything else (18 in arXiv 2505.19985)."""

    @field_validator("solver", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> Impulse:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be an odd number of at least 1, not {self.kernel_size}")
        if self.offsets == "fixed" and self.kernel_size != 3:
            raise ValueError(f"offsets 'fixed' needs kernel_size 3, not {self.kernel_size}")
        return self

    def check(self, model: nn.Module) -> None:
        """Refuse a kernel larger than the token grid and heads too narrow for a position code."""
        super().check(model)
        grid = token_grid(model)
        if self.kernel_size > min(grid):
            raise VitinitError(
                f"method 'impulse': kernel_size {self.kernel_size} is larger than the token grid {grid[0]}x{grid[1]}"
            )
        features = attention_layers(model)[0].query_HdD.shape[1]
        if isinstance(self.solver, Rotation) and features < 4:
            raise VitinitError(f"method 'impulse': solver 'rotation' needs at least 4 features a head, not {features}")
        position_embedding(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> Tensor:
        """Overwrite W_q and W_k of every attention layer; returns the targets of the first."""
        return self.apply_remembering(model, generator, progress, solve_anew)

    @torch.no_grad()
    def apply_remembering(
        self, model: nn.Module, generator: torch.Generator, progress: Progress, remember: Remember
    ) -> Tensor:
        """`apply`; solutions of `gradient` are looked up first, for the others take no longer than reading."""
        position_embedding(model, class_row=True).mul_(self.position_scale)
        pseudo_ND = pseudo_input(position_embedding(model))
        grid = token_grid(model)
        layers = attention_layers(model)
        heads, features, _ = layers[0].query_HdD.shape
        offsets_LH: list[list[Offset]] = []
        draws_L: list[Tensor] = []
        for _ in layers if self.per_layer else layers[:1]:
            offsets_LH.append(head_offsets(self.kernel_size, heads, self.offsets, generator))
            draws_L.append(self.solver.draw(pseudo_ND, heads, features, generator))
        problem = Problem(pseudo_ND, grid, features, offsets_LH, draws_L)
        if self.solver.slow:
            inputs = (self.solver.model_dump_json().encode(), SOURCE, *problem.content())
            query_LHdD, key_LHdD = remember(inputs, lambda: self.solver.solve(problem, progress))
        else:
            query_LHdD, key_LHdD = self.solver.solve(problem, progress)
        for index, layer in enumerate(layers):
            layer.query_HdD.copy_(query_LHdD[index if self.per_layer else 0])
            layer.key_HdD.copy_(key_LHdD[index if self.per_layer else 0])
        return impulse_targets(grid, offsets_LH[0])


def pseudo_input(embedding_ND: Tensor) -> Tensor:
    """LayerNorm without affine over the width: zero mean, unit variance, eps 1e-5."""
    return nn.functional.layer_norm(embedding_ND, embedding_ND.shape[-1:], eps=1e-5)
