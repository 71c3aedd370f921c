"""Method `depth_scaled`: the deeper, the less a branch adds."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import ClassVar, Literal

import torch
from torch import nn

from vitinit.initializers.adapters import families
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, Part, register


@register
class DepthScaled(Initializer):
    """W_proj and the last Linear of each MLP are divided, so that the residual stream keeps its size with depth.

    By sqrt(2 l) in block l = 1, 2, ... (BEiT, EVA and timm's `fix_init`), or by sqrt(2 L) in each of L blocks (as GPT-2
    does, from general knowledge). Biases keep their base, like all else; so do CaiT's blocks of class attention, which
    do not count as blocks.
    """

    name: ClassVar[str] = "depth_scaled"
    sets: ClassVar[tuple[Part, ...]] = ("proj", "mlp_out")
    deterministic: ClassVar[bool] = True

    rule: Literal["fix_init", "gpt2"] = "fix_init"

    def check(self, model: nn.Module) -> None:
        """Refuse attention without an MLP in its block, and several towers, whose blocks do not add to one stream."""
        towers = _towers(model, [layer.name for layer in self.blocks_of(model)])
        if len(towers) > 1:
            raise VitinitError(
                f"method 'depth_scaled' counts the blocks of one residual stream, and {type(model).__name__} has "
                f"{len(towers)} places with blocks, as of {' and '.join(map(repr, list(towers.values())[:2]))}: give "
                "one of them"
            )

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Divide the last Linear of both branches of every block."""
        layers = attention_layers(model)
        for block, layer in enumerate(layers, 1):
            branches = 2 * (block if self.rule == "fix_init" else len(layers))
            for weight in (layer.proj_DD, list(layer.mlp.values())[-1].weight):
                weight /= branches**0.5


def _towers(model: nn.Module, names: list[str]) -> dict[str, str]:
    """By what holds the blocks that one is counted with, as a path, the name of one of them.

    A model of a known family is one tower. Elsewhere blocks of one tower differ in the last number that counts.
    """
    homes = [family.path for family in families(model)]
    alike: dict[str, list[list[str]]] = defaultdict(list)
    for name in names:
        alike[re.sub(r"\d+", "#", name)].append(re.findall(r"\d+", name))
    towers: dict[str, str] = {}
    for name in names:
        home = next((path for path in homes if not path or name.startswith(f"{path}.")), None)
        numbers = alike[re.sub(r"\d+", "#", name)]
        counts = [place for place, values in enumerate(zip(*numbers, strict=True)) if len(set(values)) > 1]
        place = counts[-1] if counts and home is None else 0
        start = len(home or "")
        towers["".join(re.split(r"(\d+)", name[start:])[: 2 * place + 1]) + f" in {home}"] = name
    return towers
