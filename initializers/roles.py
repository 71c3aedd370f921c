"""What each Linear of a model is for, which some bases go by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from torch import nn

from initializers.adapter import Attention, kind_of
from initializers.attention import AttentionLayer

Role = Literal["qkv", "proj", "mlp_in", "mlp_out", "head", "other"]
"""Of attention: W_q, W_k and W_v, in one Linear or in several, and W_proj. Of an MLP: all but its last Linear, and
that. The classifier."""


@dataclass(frozen=True)
class Place:
    """A Linear's."""

    role: Role = "other"
    matrices: int = 1
    """Of equal size, in the rows of its weight: 3 where W_q, W_k and W_v are in one."""
    heads: int = 1
    """In the rows of each of these matrices."""


HEAD = re.compile(r"[^.]*(head|classifier)")
MLP = re.compile(r"\.mlp[^.]*\.fc(\d)")
"""Of a block without attention that methods set, such as a Mixer's."""


def places(model: nn.Module) -> dict[str, Place]:
    """That of every Linear, by its name."""
    found: dict[str, Place] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            mlp = MLP.search(name)
            role: Role = (
                "head" if HEAD.match(name) else "other" if not mlp else "mlp_out" if mlp[1] == "2" else "mlp_in"
            )
            found.setdefault(name, Place(role))
        kind = kind_of(module)
        if isinstance(kind, Attention):
            home = name.rpartition(".")[0]
            layer = AttentionLayer(name, module, model.get_submodule(home) if home else None)
            for part in ("query", "key", "value"):
                for tensor in layer.names_of(part):
                    found[tensor.removesuffix(".weight")] = Place("qkv", getattr(kind, part).of, layer.heads)
            found |= {tensor.removesuffix(".weight"): Place("proj") for tensor in layer.names_of("proj")}
            *inner, last = layer.mlp or ["", ""]
            found |= {**dict.fromkeys(inner, Place("mlp_in")), last: Place("mlp_out")}
    return found
