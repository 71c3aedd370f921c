"""Method `impulse`: attention that starts as a convolution with random impulse filters."""

from typing import Literal

import torch
from pydantic import PositiveFloat, StrictInt, model_validator
from torch import Generator, Tensor, nn

from vitinit.initializers.attention import attention_layers, position_embedding, rotary, token_grid
from vitinit.initializers.diagnostics import attention_input
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.impulse_solvers import Problem, Rotation, Solver
from vitinit.initializers.methods.mimetic import Mimetic
from vitinit.initializers.registry import Aim, Initializer, Job, register
from vitinit.initializers.targets import (
    Control,
    PseudoInput,
    broken,
    head_offsets,
    made_up,
    target_matrices,
    target_positions,
)


@register
class Impulse(Initializer):
    """Structured (impulse) initialisation of W_q and W_k (Zheng, Li and Lucey, arXiv 2404.01139 and 2505.19985).

    Every head gets one offset in a kernel_size x kernel_size neighbourhood, and W_q, W_k are solved so that on the
    pseudo-input (the LayerNormed position embedding) each token attends to the token at that offset. Everything else,
    biases included, keeps its base.

    Two versions exist. 2404: random offsets, `solver="gradient"`, one solution for all layers. 2505: fixed offsets,
    `solver="svd"`, one solution per layer, embedding scaled by 18, `value_proj="released"`. The default solver
    `rotation` is ours: on a ViT-T, with smaller weights, it puts 2.5 to 3.1 times the attention of the gradient
    solution on its target on real images, 1.3 to 1.5 times that of its first 1,000 steps (`tests/scale/fidelity.py`).

    Rotated or normalised queries and keys are refused, and models whose positions are a bias of the logits alone
    (Swin).

    Ablations: which pseudo-input, which half of the attention weights, how large the weights, and whether the pattern
    counts (`control`). At one seed, offsets and what the solver starts from are the same in all of them.
    """

    name = "impulse"
    sets = ("query", "key", "value", "proj", "position")
    plain_logits = True
    one_stream = True

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
    pseudo_input: PseudoInput = "position"
    """Pseudo-input of the first layer. Made up (see `made_up`), with new noise for every solution. Or `images`: the
    input of the layer for one training image, its tokens after LayerNorm, position embedding included, class token left
    out. The image is drawn for every solution by the run's seed, and all layers before are initialised by then."""
    pseudo_input_later: PseudoInput | None = None
    """Pseudo-input of all later layers; None: as the first. Where it is another and `per_layer` is off, there are two
    solutions with offsets of their own: one for the first layer, and one, solved on the input of the second, for all
    later layers."""
    control: Control = "none"
    """Breaks the pattern of the targets and nothing else; see `broken`."""
    value_proj: Literal["none", "mimetic", "released"] = "none"
    """W_v and W_proj: their base, as the method `mimetic` sets them, or as arXiv 2505.19985's released code does: the
    same product, V Proj, with uniform noise of the same variance."""
    weight_norm: PositiveFloat | None = None
    """Frobenius norm that W_q and W_k of every head are scaled to once solved, which sets how sharp attention is.
    None: as solved. (`rotation` has a temperature and `svd` a norm of its own, which are overridden.)"""

    @model_validator(mode="after")
    def _consistent(self) -> "Impulse":
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be an odd number of at least 1, not {self.kernel_size}")
        if self.offsets == "fixed" and self.kernel_size != 3:
            raise ValueError(f"offsets 'fixed' needs kernel_size 3, not {self.kernel_size}")
        return self

    def check(self, model: nn.Module) -> None:
        """Refuse attention that W_q and W_k alone do not decide, and kernels and heads of the wrong size."""
        super().check(model)
        if rotary(model):
            raise VitinitError(
                f"method 'impulse': {type(model).__name__} rotates queries and keys by their place, for which impulses "
                "are not solved"
            )
        if self.value_proj != "none":
            Mimetic(parts="vo").check(model)
        rows, columns = token_grid(model)
        position_embedding(model)
        if self.kernel_size > min(rows, columns):
            raise VitinitError(
                f"method 'impulse': kernel_size {self.kernel_size} is larger than the token grid {rows}x{columns}"
            )
        features = attention_layers(model)[0].query_HdD.shape[1]
        if isinstance(self.solver, Rotation) and features < 4:
            raise VitinitError(f"method 'impulse': solver 'rotation' needs at least 4 features a head, not {features}")

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> Aim:
        """Overwrite W_q and W_k of every attention layer; returns the targets, and the first one's pseudo-input."""
        layers, grid = attention_layers(model), token_grid(model)
        heads, features, _ = layers[0].query_HdD.shape
        later = self.pseudo_input_later or self.pseudo_input
        names = [self.pseudo_input]  # of every solution; the last one serves all layers without one of their own
        if self.per_layer:
            names += [later] * (len(layers) - 1)
        elif later != self.pseudo_input and len(layers) > 1:
            names.append(later)
        count = names.count("images")
        images = iter(job.images(count, "method 'impulse': pseudo-input 'images'").split(1) if count else ())
        position_embedding(model, class_row=True).mul_(self.position_scale)
        embedding_ND = position_embedding(model)
        if embedding_ND.std(0).max() == 0:
            raise VitinitError(
                f"method 'impulse': the position embedding of {type(model).__name__} is the same at all places: "
                "nothing tells them apart; a base draws it where it is learned, and one that is fixed is yours to set"
            )

        # what came first is drawn first: parameters that came later change none of these numbers
        positions, draws = list[Tensor](), list[Tensor]()
        for _ in names:
            positions.append(target_positions(grid, head_offsets(self.kernel_size, heads, self.offsets, generator)))
            draws.append(self.solver.draw(embedding_ND, heads, features, generator))
        positions_LHN2 = torch.stack(
            [broken(positions_HN2, self.control, grid, generator) for positions_HN2 in positions]
        )
        pseudo_L = [made_up(name, embedding_ND, generator) if name != "images" else None for name in names]
        if self.value_proj != "none":
            mimetic = Mimetic(parts="vo", noise="normal" if self.value_proj == "mimetic" else "uniform")
            mimetic.apply(model, generator, job)

        solutions = [min(index, len(names) - 1) for index in range(len(layers))]
        at_once = len(names) if set(names) == {"position"} else 1
        for first in range(0, len(names), at_once):
            chosen = slice(first, first + at_once)
            pseudo_ND = pseudo_L[first]
            if pseudo_ND is None:
                pseudo_ND = pseudo_L[first] = attention_input(model, next(images), first)[0]
            problem = Problem(pseudo_ND, grid, features, positions_LHN2[chosen], torch.stack(draws[chosen]))
            query_LHdD, key_LHdD = self.solver.solve(problem, job)
            if self.weight_norm is not None:
                query_LHdD, key_LHdD = (
                    weight * (self.weight_norm / weight.norm(dim=(-2, -1), keepdim=True))
                    for weight in (query_LHdD, key_LHdD)
                )
            for layer, solution in zip(layers, solutions, strict=True):
                if first <= solution < first + at_once:
                    layer.query_HdD.copy_(query_LHdD[solution - first])
                    layer.key_HdD.copy_(key_LHdD[solution - first])
        return Aim(target_matrices(grid, positions_LHN2)[solutions], pseudo_L[0])
