"""Description of a model family, so that every method works on it: data, as `families.json` has it.

An adapter has two halves that are found apart from one another: where attention modules of a type have their weights,
and where a model has its positions and its other parameters. Types are named by text, so that no library is imported.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeVar

from pydantic import NonNegativeFloat, ValidationError
from pydantic.dataclasses import dataclass
from torch import nn

from vitinit.initializers.errors import explain

T = TypeVar("T")
TokenGrid = tuple[int, int]
"""Rows and columns of tokens."""
Type = str | type[nn.Module]
"""A class, or its name with that of its module: `timm.layers.attention.Attention`. Its subclasses are meant too."""


def described(cls: type[T]) -> type[T]:
    """Class decorator: a VitinitError says which field is wrong, and what it may be, where an instance is made."""
    init = cls.__init__

    def one_line(self: T, *args: Any, **fields: Any) -> None:
        try:
            init(self, *args, **fields)
        except ValidationError as error:
            raise explain(error, cls.__name__) from None

    cls.__init__ = one_line  # type: ignore[assignment]
    return cls


@described
@dataclass(frozen=True)
class Part:
    """One of W_q, W_k, W_v and W_proj with its bias, by paths that begin at the attention module."""

    weight: str
    bias: str = ""
    """Empty, or a path that leads nowhere or to None: there is no bias."""
    index: int = 0
    of: int = 1
    """The tensors are those of so many parts of equal size, by rows; this one is number `index`."""


def linear(path: str) -> Part:
    """Return the part that one `nn.Linear` holds alone."""
    return Part(f"{path}.weight", f"{path}.bias")


def fused(weight: str, bias: str, of: int = 3) -> tuple[Part, ...]:
    """W_q, W_k and, by default, W_v in the rows of one tensor."""
    return tuple(Part(weight, bias, index, of) for index in range(of))


@described
@dataclass(frozen=True)
class Attention:
    """Paths to the parameters that methods set in a type of attention module. Paths begin at the module.

    Softmax attention over tokens, H heads of d features: weights of H d rows and D columns, W_proj the other way round.
    Values may have another d than queries and keys.
    Several descriptions may name one type: the first whose W_q exists is used, so that one adapter serves several
    versions of a library.
    """

    types: tuple[Type, ...]
    heads: str
    """Path of the number of heads."""
    query: Part
    key: Part
    value: Part
    proj: Part
    query_norm: str = ""
    key_norm: str = ""
    before_proj: tuple[str, ...] = ()
    """Norms and gates between the attended values and W_proj."""
    window: str = ""
    """Rows and columns of the tokens that see each other, where these have a relative position bias."""
    pools: bool = False
    """True where a learned query attends, and not each token: methods leave it alone."""
    gated: bool = False
    """ConViT's gated positional self-attention, whose map the module computes itself."""

    @property
    def qkv(self) -> tuple[Part, Part, Part]:
        """W_q, W_k and W_v."""
        return self.query, self.key, self.value


@described
@dataclass(frozen=True)
class Normal:
    """Drawn from N(0, std^2)."""

    std: NonNegativeFloat


Rule = float | Normal | Literal["position", "class_token", "layer_scale", "keep"]
"""Rule for a parameter that is part of no Linear, convolution or norm: a constant, a distribution, the base's own rule
for position embeddings and class tokens, `layer_scale` (set only where that is asked for), or `keep`: the library's
value stays."""


@described
@dataclass(frozen=True)
class Adapter:
    """A model family."""

    name: str
    models: tuple[Type, ...] = ()
    attention: tuple[Attention, ...] = ()
    position: str = ""
    """Path, from the model on, of the position embedding that is added to the tokens: 1 x N x D or N x D, the N places
    of patches last, row by row. Empty: `pos_embed`, where the model has one."""
    grid: Callable[[Any], TokenGrid] | None = None
    """Rows and columns of the patches of a model."""
    rotary: str = ""
    """Path, from the model on, of the rotary position embedding. Empty, or None there: the model has none."""
    parameters: Mapping[str, Rule] = field(default_factory=dict)
    """Parameters of no Linear, convolution or norm, by shell patterns of their names in the model."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Types of attention modules for which no method is made, each with the reason."""
    filters: bool = False
    """True where depthwise convolutions alone mix tokens, as in a ConvMixer."""

    def rule(self, parameter: str, of_norm: bool) -> Rule | None:
        """Return the rule of a parameter, by its name in the model; None where there is none.

        A pattern holds for a norm only if it names it, or has the word: `*weight` means no norm.
        """
        module = parameter.rpartition(".")[0].rpartition(".")[2]
        for pattern, rule in self.parameters.items():
            named = not of_norm or "norm" in pattern.lower() or module in re.split(r"[.*?]", pattern)
            if named and fnmatch.fnmatchcase(parameter, pattern):
                return rule
        return None


def resolve(start: Any, path: str) -> Any:
    """Follow a path of attributes; None where it leads nowhere or to a no-op module."""
    for name in path.split("."):
        start = getattr(start, name, None)
    return None if not path or isinstance(start, nn.Identity) else start
