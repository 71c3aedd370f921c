"""Method `impulse_mixing`: impulses for models that mix tokens by Linears between patches. Ours, in no paper."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn

from vitinit.initializers.attention import family, token_grid
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Progress, register
from vitinit.initializers.targets import head_offsets, impulse_targets, target_keys, token_positions


@register
class ImpulseMixing(Initializer):
    """Token mixing starts as a look at one neighbour, as attention does after `impulse`; ours.

    arXiv 2505.19985 reports an MLP-Mixer; how it was initialised is neither in its text nor in its code, so this is our
    reading. For every layer, offsets are uniform in a neighbourhood of kernel_size x kernel_size patches:

    - MLP-Mixer, an MLP from N patches over T hidden features back to N: feature t belongs to patch floor(t N / T). It
      reads the patch at an offset of its own from there, and writes to its own. With T < N some patches get nothing;
    - ResMLP, one matrix between N patches: every patch reads the one at the layer's offset. All channels share it.

    Every weight matrix has the Frobenius norm that its base gave it, so only the pattern is new. Biases keep their
    base. An offset that leads off the grid reads nothing: there is no padding and no wrapping.
    """

    name: ClassVar[str] = "impulse_mixing"
    touches: ClassVar[tuple[str, ...]] = (
        "*.mlp_tokens.fc1.weight",
        "*.mlp_tokens.fc2.weight",
        "*.linear_tokens.weight",
    )

    kernel_size: PositiveInt = Field(3)
    """Side of the neighbourhood in patches; odd."""

    @field_validator("kernel_size")
    @classmethod
    def _has_a_centre(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd, so that the neighbourhood has a centre")
        return value

    def check(self, model: nn.Module) -> None:
        """Refuse models without such Linears between patches, and a neighbourhood that reaches beyond every patch."""
        mixing = _mixing(model)
        if not mixing:
            raise VitinitError(
                f"method 'impulse_mixing' sets Linears between patches, and {type(model).__name__} has none; choose an "
                "MLP-Mixer or a ResMLP (in a grid arch 'mixer' or 'resmlp')"
            )
        rows, columns = token_grid(model)
        for linears in mixing:
            first, last = linears[0], linears[-1]
            square = first.in_features == last.out_features == rows * columns
            if not square or len(linears) > 2 or (len(linears) == 2 and first.out_features != last.in_features):
                raise VitinitError(
                    f"method 'impulse_mixing': what mixes the tokens of {type(model).__name__} is not what it is in an "
                    "MLP-Mixer or a ResMLP"
                )
        if self.kernel_size // 2 >= min(rows, columns):
            raise VitinitError(
                f"method 'impulse_mixing': kernel_size {self.kernel_size} reaches beyond a grid of {rows} x {columns} "
                f"patches; at most {2 * min(rows, columns) - 1}"
            )

    def ours(self, model: nn.Module) -> str:
        """All of it."""
        return "weights between patches look at one neighbour"

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> None:
        """Overwrite the weights between patches, in every block."""
        grid = token_grid(model)
        for linears in _mixing(model):
            if len(linears) == 1:
                offsets = head_offsets(self.kernel_size, 1, "random", generator)
                values = [impulse_targets(grid, offsets)[0]]
            else:
                hidden, patches = linears[0].weight.shape
                own_T = torch.arange(hidden) * patches // hidden
                offsets = head_offsets(self.kernel_size, hidden, "random", generator)
                read_T2 = token_positions(grid)[own_T] + torch.tensor(offsets)
                inside_1T, read_1T = target_keys(grid, read_T2[None])
                values = [_ones(read_1T[0], patches) * inside_1T[0, :, None], _ones(own_T, patches).T]
            for linear, value in zip(linears, values, strict=True):
                norm = linear.weight.norm().cpu()
                linear.weight.copy_(value * (norm / value.norm().clamp(min=1)))


def _ones(places_T: Tensor, count: int) -> Tensor:
    """T x count, with a 1 in each row."""
    return nn.functional.one_hot(places_T, count).float()


def _mixing(model: nn.Module) -> list[list[nn.Linear]]:
    """Return the token-mixing Linears of each block: one, or the two of an MLP."""
    known = family(model)
    if not known or not known.adapter.token_mixing:
        return []
    modules = [m for name, m in known.model.named_modules() if name.rpartition(".")[2] in known.adapter.token_mixing]
    found = [[part for part in module.modules() if isinstance(part, nn.Linear)] for module in modules]
    return [linears for linears in found if linears]
