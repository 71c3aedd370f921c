"""Registry of adapters, and lookup of attention modules and families in a model by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from torch import Tensor, nn

from vitinit.initializers.adapter import Adapter, Attention, Type, follow, found, lacking
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.families import FAMILIES
from vitinit.initializers.plugins import ADAPTERS, Registry

INSTALLED: Registry[Adapter] = Registry(
    "adapter", group=ADAPTERS, wanted="an Adapter", accepts=lambda value: isinstance(value, Adapter)
)
_own: dict[str, Adapter] = {}
"""By name, the latest last."""


def register(adapter: Adapter) -> Adapter:
    """Make an adapter known in this process, before all others and in place of one of its name; returns it.

    A cell of a notebook that registers one may be run again.

    Raises:
        VitinitError: it is something else.
    """
    if not isinstance(adapter, Adapter):
        name = getattr(adapter, "__name__", type(adapter).__name__)
        raise VitinitError(
            f"{name} is not an Adapter, which is what this registers; "
            "bases and methods: vitinit.initializers.registry.register"
        )
    _own.pop(adapter.name, None)
    _own[adapter.name] = adapter
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


def adapters() -> tuple[Adapter, ...]:
    """All adapters: registered ones, the latest first, then those of installed packages, then ours.

    Raises:
        VitinitError: a package cannot be imported, or names something else.
    """
    return (*reversed(_own.values()), *INSTALLED.entries(), *FAMILIES)


def _text(one: Type) -> str:
    return one if isinstance(one, str) else f"{one.__module__}.{one.__qualname__}"


@cache
def _names(cls: Any) -> frozenset[str]:
    """The class and all above it."""
    return frozenset(_text(parent) for parent in cls.__mro__)


def _is(module: nn.Module, types: tuple[Type, ...]) -> bool:
    cls: Any = type(module)
    return not _names(cls).isdisjoint(map(_text, types))


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
    """Classify a module: attention from token to token; attention that is refused, as its reason; attention beside the
    tokens, as False; None where no adapter knows it as attention.

    Raises:
        VitinitError: an adapter knows it, and names what is not there.
    """
    names = _computes_what(type(module))
    wrong = ""
    for adapter in adapters():
        for kind in adapter.attention:
            if not names.isdisjoint(map(_text, kind.types)):
                if isinstance(found(module, kind.query.weight), Tensor):
                    if why := _misfit(kind, module):
                        raise VitinitError(f"adapter {adapter.name!r}: {why}")
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


def _misfit(kind: Attention, module: nn.Module) -> str:
    """Return what of an adapter's description a module has not; what may be missing are biases, norms and tables."""
    name, own = type(module).__name__, {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    heads = found(module, kind.heads)
    if not isinstance(heads, int) or heads < 1:
        return f"{kind.heads!r} in {name} is no number of heads: {heads!r}"
    left_out = isinstance(follow(module, kind.proj.weight.rpartition(".")[0]), nn.Identity)
    weights = [found(module, part.weight) for part in (kind.query, kind.key, kind.value, kind.proj)]
    for part, weight in zip((kind.query, kind.key, kind.value, kind.proj), weights, strict=True):
        if part is kind.proj and left_out:
            continue
        if not isinstance(weight, Tensor):
            return lacking(module, part.weight)
        if id(weight) not in own:
            return (
                f"{part.weight!r} in {name} is computed from others (a property, pruning, weight norm): initialise the "
                "model before that, or name the parameters themselves"
            )
        if part is not kind.proj and len(weight) % (part.of * heads):
            return f"the {len(weight)} rows of {part.weight!r} in {name} are not {part.of} times those of {heads} heads"
    query, key, value = (
        len(weight) // part.of for part, weight in zip((kind.query, kind.key, kind.value), weights, strict=False)
    )
    if query != key:
        return (
            f"W_q and W_k in {name} have {query} and {key} rows: no method is made for attention whose heads share "
            "keys and values"
        )
    taken = {query, weights[0].shape[1]} if left_out else {weights[3][0].numel()}
    if value not in taken:
        by = "there is no W_proj" if left_out else f"W_proj takes {weights[3][0].numel()}"
        return (
            f"W_v in {name} has {value} rows, and {by}: no method is made for attention that shares its values or "
            "changes their number"
        )
    window = found(module, kind.window)
    if found(module, kind.table) is not None and not (isinstance(window, Sequence) and len(window) == 2):
        return f"beside {kind.table!r}, {kind.window!r} must be rows and columns, not {window!r}"
    return ""


@dataclass(frozen=True)
class Family:
    """A model of a known family, which may be a part of the one that was given."""

    path: str
    """Its name there; empty for all of it."""
    model: Any
    adapter: Adapter


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


SCALING_NORMS: tuple[Type, ...] = ("timm.models.vision_transformer_relpos.ResPostRelPosBlock",)
"""Blocks of models that no adapter knows, whose norms scale what a branch adds where the block has `init_values`."""


def layer_scales(model: nn.Module) -> list[Tensor]:
    """The parameters of a model by which its family, or a block of no family, scales what a branch adds."""
    known = families(model)
    scales = [
        parameter
        for family in known
        for name, parameter in family.model.named_parameters()
        if family.adapter.rule(name) == "layer_scale"
    ]
    types = (*SCALING_NORMS, *(one for family in known for one in family.adapter.scaling_norms))
    for block in model.modules():
        if _is(block, types) and getattr(block, "init_values", None) is not None:
            scales += [part.weight for part in block.children() if isinstance(part, nn.LayerNorm)]
    return scales
