"""What is said of a model family, so that every method works on it. Data, and one file per family in `adapters/`.

An adapter has two halves that are found apart from one another: where attention modules of a type have their weights,
and where a model has its positions and its other parameters. Types are named by text, so that no library is imported.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_args

from torch import Tensor, nn

from initializers.errors import VitinitError, plain
from initializers.plugins import entry_points, modules

ENTRY_POINTS = "vitinit.adapters"

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
    """That of an `nn.Linear` which holds nothing else."""
    return Part(f"{path}.weight", f"{path}.bias")


def fused(weight: str, bias: str, of: int = 3) -> tuple[Part, ...]:
    """W_q, W_k and, by default, W_v in the rows of one tensor."""
    return tuple(Part(weight, bias, index, of) for index in range(of))


@dataclass(frozen=True)
class Attention:
    """Where a type of attention module has what methods set. Paths begin at the module.

    Softmax attention over tokens, H heads of d features: weights of H d rows and D columns, W_proj the other way round.
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
    """Which entry belongs to query and key: N x N, or the same flat. Tokens without a place come first."""
    window: str = ""
    """Rows and columns of the tokens that see each other."""
    mask: str = ""
    """The argument of the forward pass that is added to the logits: windows x N x N."""
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
"""What attention in windows calls its relative position bias, in timm and torchvision."""


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


Rule = float | Normal | Literal["position", "class_token", "layer_scale", "keep"]
"""How a base sets a parameter that is part of no Linear, convolution or norm: to a constant; drawn; as the base has it
for position embeddings and class tokens; or not at all, because the library's own value belongs to the architecture, as
that of a layer scale, which is set where it is asked for."""
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
    """Whether a model rotates queries and keys by their place."""
    parameters: Mapping[str, Rule] = field(default_factory=dict)
    """Parameters of no Linear, convolution or norm, by shell patterns of their names in the model."""
    filters: bool = False
    """Whether tokens are mixed by depthwise convolutions alone, as in a ConvMixer."""
    token_mixing: tuple[str, ...] = ()
    """What modules are called that mix tokens by one Linear between patches, or by an MLP of two."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Types of attention modules for which no method is made, each with the reason."""
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
        """That of a parameter, by its name in the model."""
        return next((rule for name, rule in self.parameters.items() if fnmatch.fnmatchcase(parameter, name)), None)


_own: dict[str, Adapter] = {}
"""By name, the latest last."""


def register(adapter: Adapter) -> Adapter:
    """Make an adapter known in this process, before all others and in place of one of its name; returns it.

    A cell of a notebook that registers one may be run again.
    """
    _own.pop(adapter.name, None)
    _own[adapter.name] = adapter
    adapters.cache_clear()
    return adapter


def unregister(adapter: Adapter | str) -> None:
    """Forget an adapter, or that of a name, again.

    Raises:
        VitinitError: none is registered under its name.
    """
    name = adapter if isinstance(adapter, str) else adapter.name
    if name not in _own:
        raise VitinitError(f"adapter {name!r} is not registered; registered: {', '.join(_own) or 'none'}")
    del _own[name]
    adapters.cache_clear()


@cache
def adapters() -> tuple[Adapter, ...]:
    """All of them: registered ones, those of installed packages, ours.

    Raises:
        VitinitError: a file or a package cannot be imported, or names something else.
    """
    found = list(reversed(_own.values()))
    for where, value in entry_points(ENTRY_POINTS):
        if not isinstance(value, Adapter):
            raise VitinitError(f"{where} is not an Adapter")
        found.append(value)
    for module in modules(f"{__package__}.adapters"):
        found += [value for value in vars(module).values() if isinstance(value, Adapter)]
    return tuple(found)


def _text(one: Type) -> str:
    return one if isinstance(one, str) else f"{one.__module__}.{one.__qualname__}"


def _class(module: nn.Module) -> Any:
    return type(module)


@cache
def _names(cls: Any) -> frozenset[str]:
    return frozenset(_text(parent) for parent in cls.__mro__)


def _is(module: nn.Module, types: tuple[Type, ...]) -> bool:
    return not _names(_class(module)).isdisjoint(map(_text, types))


@cache
def _computes_what(cls: Any) -> frozenset[str]:
    """The classes whose forward pass is that of `cls`: those above the first that has one of its own.

    A subclass with a forward pass of its own may attend in another way. It says that it does not by the class
    attribute `same_attention = True`.
    """
    names = []
    for parent in cls.__mro__:
        names.append(_text(parent))
        if "forward" in vars(parent) and not vars(parent).get("same_attention"):
            break
    return frozenset(names)


def kind_of(module: nn.Module) -> Attention | str | Literal[False] | None:
    """What a module is: attention from token to token; attention that is refused, as its reason; attention beside the
    tokens, as False; None where no adapter knows it as attention.

    Raises:
        VitinitError: an adapter knows it, and names what is not there.
    """
    names = _computes_what(_class(module))
    wrong = ""
    for adapter in adapters():
        for kind in adapter.attention:
            if not names.isdisjoint(map(_text, kind.types)):
                if isinstance(found(module, kind.query.weight), Tensor):
                    _check(adapter, kind, module)
                    return kind
                wrong = wrong or f"adapter {adapter.name!r}: {lacking(module, kind.query.weight)}"
        for one, reason in adapter.refused.items():
            if _is(module, (one,)):
                return reason
        if not names.isdisjoint(map(_text, adapter.beside)):
            return False
    if wrong:
        raise VitinitError(wrong)
    return None


def _check(adapter: Adapter, kind: Attention, module: nn.Module) -> None:
    """Refuse a module that has not what its adapter says. What may be missing is left out: biases, norms, tables."""
    where = f"adapter {adapter.name!r}"
    for part in (kind.query, kind.key, kind.value, kind.proj):
        if not isinstance(found(module, part.weight), Tensor) and not (part is kind.proj and _left_out(module, part)):
            raise VitinitError(f"{where}: {lacking(module, part.weight)}")
    heads = found(module, kind.heads)
    if heads is None:
        raise VitinitError(f"{where}: {lacking(module, kind.heads)}")
    if not isinstance(heads, int) or heads < 1:
        raise VitinitError(f"{where}: {kind.heads!r} in {type(module).__name__} is no number of heads")
    for part in (kind.query, kind.key, kind.value):
        rows = len(found(module, part.weight))
        if rows % (part.of * heads):
            parts = f"{part.of} parts of {heads} heads" if part.of > 1 else f"{heads} heads"
            what = f"the {rows} rows of {part.weight!r} in {type(module).__name__}"
            raise VitinitError(f"{where}: {what} are not those of {parts}")


@dataclass(frozen=True)
class Family:
    """A model of a known family, which may be a part of the one that was given."""

    path: str
    """Its name there; empty for all of it."""
    model: Any
    adapter: Adapter

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of its patches; None where its adapter does not say. VitinitError where it fails to."""
        return self._answer("finds no token grid in", self._grid) if self.adapter.grid else None

    def _grid(self) -> tuple[int, int]:
        rows, columns = self.adapter.grid(self.model)  # type: ignore[misc]
        return int(rows), int(columns)

    @property
    def rotary(self) -> bool:
        """Whether it rotates queries and keys by their place. VitinitError where its adapter fails to say."""
        return self._answer("cannot say whether there are rotations in", lambda: bool(self.adapter.rotary(self.model)))

    def _answer(self, failing: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except VitinitError:
            raise
        except Exception as error:  # somebody's function
            what = f"adapter {self.adapter.name!r} {failing} {type(self.model).__name__}"
            raise VitinitError(f"{what}: {type(error).__name__}: {plain(str(error), 200)}") from error

    @property
    def misspelt(self) -> str:
        """In brackets, that the path of its position embedding leads nowhere; else nothing."""
        path = self.adapter.position
        if not path or hasattr(self.model, path.partition(".")[0]):  # None, which is there, says that it has none
            return ""
        return f" (adapter {self.adapter.name!r}: {lacking(self.model, path)})"


def families(model: nn.Module) -> list[Family]:
    """All models of a known family in a model, none inside another."""
    known: list[Family] = []
    for path, module in model.named_modules():
        if any(not family.path or path.startswith(f"{family.path}.") for family in known):
            continue
        adapter = next((adapter for adapter in adapters() if _is(module, adapter.models)), None)
        if adapter:
            known.append(Family(path, module, adapter))
    return known


def found(start: Any, path: str) -> Any:
    """What a path of attributes leads to; None where it leads nowhere, or to a module that does nothing."""
    for name in path.split("."):
        start = getattr(start, name, None)
    return None if not path or isinstance(start, nn.Identity) else start


def lacking(start: nn.Module, path: str) -> str:
    """Where a path of attributes ends too early, and what is there."""
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


def _left_out(start: Any, part: Part) -> bool:
    """Whether there is a module that does nothing in its place."""
    for name in part.weight.split("."):
        start = getattr(start, name, None)
        if isinstance(start, nn.Identity):
            return True
    return False
