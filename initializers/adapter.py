"""Description of a model family, so that every method works on it. Data, and one file per family in `adapters/`.

An adapter has two halves that are found apart from one another: where attention modules of a type have their weights,
and where a model has its positions and its other parameters. Types are named by text, so that no library is imported.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from torch import nn

from vitinit.initializers.errors import VitinitError

Type = str | type[nn.Module]
"""A class, or its name with that of its module: `timm.layers.attention.Attention`. Its subclasses are meant too."""


@dataclass(frozen=True)
class Part:
    """One of W_q, W_k, W_v and W_proj with its bias, by paths that begin at the attention module."""

    weight: str
    bias: str = ""
    """Empty, or a path that leads nowhere or to None: there is no bias."""
    index: int = 0
    of: int = 1
    """The tensors are those of so many parts of equal size, by rows; this one is number `index`."""

    def __post_init__(self) -> None:
        _check_fields(self, "Part")
        if not 0 <= self.index < self.of:
            raise VitinitError(f"Part: index {self.index} is none of {self.of} parts, which are counted from 0")


def linear(path: str) -> Part:
    """Return the part that one `nn.Linear` holds alone."""
    return Part(f"{path}.weight", f"{path}.bias")


def fused(weight: str, bias: str, of: int = 3) -> tuple[Part, ...]:
    """W_q, W_k and, by default, W_v in the rows of one tensor."""
    return tuple(Part(weight, bias, index, of) for index in range(of))


@dataclass(frozen=True)
class Attention:
    """Paths to the parameters that methods set in a type of attention module. Paths begin at the module.

    Softmax attention over tokens, H heads of d features: weights of H d rows and D columns, W_proj the other way round.
    Values may have another d than queries and keys.
    Several may name one type: the first whose W_q is there holds, so that one adapter serves several versions.
    """

    types: tuple[Type, ...]
    heads: str
    """Path of the number of heads."""
    query: Part
    key: Part
    value: Part
    proj: Part
    norm: str = ""
    """Norm inside the module, before W_q, W_k and W_v."""
    query_norm: str = ""
    key_norm: str = ""
    before_proj: tuple[str, ...] = ()
    """Norms and gates between the attended values and W_proj."""
    talking: tuple[str, ...] = ()
    """Linears that mix heads, before and after the softmax."""
    table: str = ""
    """Relative position bias: entries x heads."""
    table_index: str = ""
    """Index of the table's entry by query and key: N x N, or the same flat. Tokens without a place come first."""
    window: str = ""
    """Rows and columns of the tokens that see each other."""
    gated: bool = False
    """ConViT's gated positional self-attention, whose map the module computes itself."""

    def __post_init__(self) -> None:
        """Refuse what is no description, by a VitinitError that says which field, and what it may be."""
        _check_fields(self, "Attention")


WANTED: dict[str, tuple[Any, str]] = {
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "Part": (Part, "a Part, such as linear('to_q')"),
    "tuple[str, ...]": ((tuple, str), "a tuple of texts, such as ('one',)"),
    "tuple[Type, ...]": ((tuple, str | type), "a tuple of classes or their names, such as (one,)"),
    "tuple[Attention, ...]": ((tuple, Attention), "a tuple of Attention, such as (one,)"),
    "Mapping[str, Rule]": ((Mapping, str), "a mapping of names, such as {'pos_embed': 'position'}"),
    "Mapping[str, str]": ((Mapping, str | type), "a mapping of names of types, each to the reason"),
    "Callable[[Any], tuple[int, int]] | None": (Callable | None, "a function of the model, as lambda model: (14, 14)"),
    "Callable[[Any], bool]": (Callable, "a function of the model, as lambda model: True"),
}
"""By the declared type of a field: what `isinstance` takes, of a collection also for its members; and it in words."""


def _check_fields(given: Any, what: str) -> None:
    for one in (one for one in fields(given) if str(one.type) in WANTED):  # a subclass may have others
        value, (kind, words) = getattr(given, one.name), WANTED[str(one.type)]
        whole, each = kind if isinstance(kind, tuple) else (kind, None)
        if not isinstance(value, whole) or (each and not all(isinstance(member, each) for member in value)):
            raise VitinitError(f"{what}: {one.name} must be {words}, not {value!r}")


WINDOWS: dict[str, Any] = {
    "table": "relative_position_bias_table",
    "table_index": "relative_position_index",
    "window": "window_size",
}
"""Attribute names of the relative position bias of attention in windows, in timm and torchvision."""


def one_linear(*types: Type, biases: tuple[str, str, str] = ("qkv.bias",) * 3, **more: Any) -> Attention:
    """Attention as most libraries have it: W_q, W_k and W_v in a Linear `qkv`, W_proj in `proj`; and `more` of it."""
    query, key, value = (Part("qkv.weight", bias, index, 3) for index, bias in enumerate(biases))
    return Attention(types, "num_heads", query, key, value, linear("proj"), **more)


@dataclass(frozen=True)
class Normal:
    """Drawn from N(0, std^2)."""

    std: float | None
    """None: one over the root of the width, its last dimension."""

    def __post_init__(self) -> None:
        if self.std is not None and not (isinstance(self.std, int | float) and 0 <= self.std < math.inf):
            raise VitinitError(f"Normal: std must be a number of at least 0, or None, not {self.std!r}")


Rule = float | Normal | Literal["position", "class_token", "probe", "layer_scale", "keep"]
"""Rule for a parameter that is part of no Linear, convolution or norm: a constant; drawn; as the base has it
for position embeddings, class tokens and the probe of a pooling head; or not at all, because the library's own value
belongs to the architecture, as that of a layer scale, which is set where it is asked for."""
RULES: tuple[str, ...] = get_args(get_args(Rule)[-1])


@dataclass(frozen=True)
class Adapter:
    """A model family."""

    name: str
    models: tuple[Type, ...] = ()
    attention: tuple[Attention, ...] = ()
    position: str = ""
    """Path, from the model on, of the position embedding that is added to the tokens: 1 x N x D or N x D, the N places
    of patches last, row by row. Empty: the family has none."""
    grid: Callable[[Any], tuple[int, int]] | None = None
    """Rows and columns of the patches of a model."""
    rotary: Callable[[Any], bool] = lambda model: False
    """True for a model with rotary position embeddings."""
    parameters: Mapping[str, Rule] = field(default_factory=dict)
    """Parameters of no Linear, convolution or norm, by shell patterns of their names in the model."""
    filters: bool = False
    """True where depthwise convolutions alone mix tokens, as in a ConvMixer."""
    token_mixing: tuple[str, ...] = ()
    """Attribute names of modules that mix tokens by one Linear between patches, or by an MLP of two."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Types of attention modules for which no method is made, each with the reason."""
    scaling_norms: tuple[Type, ...] = ()
    """Types of blocks whose norms stand behind their branches: the weights of these norms are layer scales."""
    beside: tuple[Type, ...] = ()
    """Types of attention modules that do not attend from token to token, such as a pooling head. Methods leave them at
    their base."""

    def __post_init__(self) -> None:
        """Refuse what is no description; what a model has is seen when one is met (`kind_of`).

        Raises:
            VitinitError: says which field, and what it may be.
        """
        _check_fields(self, f"adapter {self.name!r}")
        for parameter, rule in self.parameters.items():
            if not isinstance(rule, int | float | Normal) and rule not in RULES:
                raise VitinitError(
                    f"adapter {self.name!r} says {rule!r} of the parameter {parameter!r}, which is not a number, "
                    f"Normal(std), {', '.join(RULES[:-1])} or {RULES[-1]}"
                )

    def rule(self, parameter: str) -> Rule | None:
        """Return the rule of a parameter, by its name in the model; None where there is none."""
        return next((rule for name, rule in self.parameters.items() if fnmatch.fnmatchcase(parameter, name)), None)


def found(start: Any, path: str) -> Any:
    """Follow a path of attributes; None where it leads nowhere, or to a no-op module."""
    for name in path.split("."):
        start = getattr(start, name, None)
    return None if not path or isinstance(start, nn.Identity) else start


def lacking(start: nn.Module, path: str) -> str:
    """Describe the point at which a path of attributes ends too early."""
    at, passed, names = start, list[str](), path.split(".")
    while names and isinstance(inner := getattr(at, names[0], None), nn.Module):
        at = inner
        passed.append(names.pop(0))
    if not names:
        return f"{path!r} in {type(start).__name__} is a {type(at).__name__}, not a tensor"
    there = [own for own, _ in (*at.named_parameters(recurse=False), *at.named_children())]
    there += [own for own, value in vars(at).items() if type(value) is int and own[0] != "_"]
    missing, what = ".".join((*passed, names[0])), repr(".".join(passed)) if passed else "it"
    return f"{missing!r} is not in {type(start).__name__}; {what} has {', '.join(there) or 'nothing'}"


def left_out(start: Any, part: Part) -> bool:
    """Return True where a no-op module stands in place of the part."""
    for name in part.weight.split("."):
        start = getattr(start, name, None)
        if isinstance(start, nn.Identity):
            return True
    return False
