"""All adapters (ours are in `families.json`), and lookup of attention modules and families in a model by them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from vitinit.initializers import plugins
from vitinit.initializers.adapter import Adapter, Attention, TokenGrid, Type, resolve
from vitinit.initializers.errors import VitinitError, brief
from vitinit.initializers.plugins import ADAPTERS, Registry


def hugging_face_grid(model: Any) -> TokenGrid:
    """Rows and columns of the patches.

    Raises:
        VitinitError: DINOv2 of images that are no squares, whose positions are interpolated as from a square.
    """
    embedding = model.embeddings.patch_embeddings
    (height, width), (down, across) = embedding.image_size, embedding.patch_size
    if height != width and "Dinov2" in type(model).__name__:
        raise VitinitError(f"{type(model).__name__} of {height} x {width} interpolates its positions as from a square")
    return height // down, width // across


def convit_grid(model: Any) -> TokenGrid:
    """Rows and columns of the patches.

    Raises:
        VitinitError: images that are no squares, whose neighbours timm's ConViT counts as in a square.
    """
    rows, columns = model.patch_embed.grid_size
    if rows != columns:
        raise VitinitError(f"timm's ConViT takes its tokens for a square, and these are {rows} x {columns}")
    return rows, columns


GRIDS = {
    "convit": convit_grid,
    "timm": lambda model: model.patch_embed.grid_size,
    "stem": lambda model: model.stem.grid_size,
    "image_size": lambda model: (model.image_size // model.patch_size,) * 2,
    "hugging face": hugging_face_grid,
}
"""Values of `grid` in the table."""
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_text())
FAMILIES = tuple(Adapter(**row | {"grid": GRIDS.get(row.get("grid", ""))}) for row in ROWS)
INSTALLED: Registry[Adapter] = Registry(
    "adapter", group=ADAPTERS, wanted="an Adapter", accepts=lambda value: isinstance(value, Adapter)
)


def register(adapter: Adapter) -> Adapter:
    """Make an adapter known in this process, before all others and in place of one of its name; returns it.

    A cell of a notebook that registers one may be run again.

    Raises:
        VitinitError: it is something else.
    """
    if not isinstance(adapter, Adapter):
        raise VitinitError(
            f"{brief(adapter)} is not an Adapter, which is what this registers; bases and methods: "
            "vitinit.plugins.register"
        )
    INSTALLED.search()
    unregister(adapter)
    INSTALLED.known[adapter.name] = adapter
    plugins.OF_OTHERS.add(adapter.name)
    return adapter


def unregister(adapter: Adapter | str) -> None:
    """Forget an adapter, or that of a name, again."""
    INSTALLED.known.pop(adapter if isinstance(adapter, str) else adapter.name, None)


def adapters() -> tuple[Adapter, ...]:
    """All adapters: registered ones, the latest first, then those of installed packages, then ours.

    Those of a package that cannot be imported are missing.
    """
    INSTALLED.search()
    return (*reversed(INSTALLED.known.values()), *FAMILIES)


def _text(cls: Type) -> str:
    return cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"


def _names(cls: type, same_forward: bool = False) -> set[str]:
    """The class and all above it, or those whose forward pass is its own.

    A subclass with a forward pass of its own may attend in another way. It says that it does not by the class
    attribute `same_attention = True`.
    """
    names = []
    for parent in cls.__mro__:
        names.append(_text(parent))
        if same_forward and "forward" in vars(parent) and not vars(parent).get("same_attention"):
            break
    return set(names)


def description_of(module: nn.Module) -> Attention | str | None:
    """Return a module's description as attention; the reason where an adapter refuses its type; None for all others.

    Raises:
        VitinitError: an adapter knows it, and names what is not there.
    """
    names, refusable, misfits = _names(type(module), same_forward=True), _names(type(module)), []
    for adapter in adapters():
        for attention in adapter.attention:
            if not names.isdisjoint(map(_text, attention.types)):
                misfit = _misfit(attention, module)
                if not misfit:
                    return attention
                misfits.append(f"adapter {adapter.name!r}: {misfit}")
        for refused in refusable & adapter.refused.keys():
            return adapter.refused[refused]
    if misfits:
        raise VitinitError(misfits[0])
    return None


def _misfit(attention: Attention, module: nn.Module) -> str:
    """Return what of an adapter's description a module has not; what may be missing are biases, norms and windows."""
    name, own, rows = type(module).__name__, {id(parameter) for parameter in module.parameters()}, []
    for part in (*attention.qkv, attention.proj):
        weight = resolve(module, part.weight)
        if id(weight) not in own:
            return (
                f"{part.weight!r} leads to no parameter of {name}: where it is computed from others, initialise before "
                "that; attention between two widths (kdim, vdim) is not supported"
            )
        rows.append(weight[0].numel() if part is attention.proj else len(weight) / part.of)
    query, key, value, taken = rows
    heads = resolve(module, attention.heads)
    if not isinstance(heads, int) or query != key or value != taken or query % heads or value % heads:
        return (
            f"W_q, W_k and W_v in {name} have {query:g}, {key:g} and {value:g} rows, W_proj takes {taken}, and "
            f"{attention.heads!r} is {heads}: no method is made for attention whose heads share keys or values"
        )
    return ""


@dataclass(frozen=True)
class Family:
    """A model of a known family, which may be a part of the one that was given."""

    path: str
    """Its name there; empty for all of it."""
    model: Any
    adapter: Adapter

    @property
    def inside(self) -> str:
        """Begins the names of what is in it."""
        return f"{self.path}.".lstrip(".")


def _together(first: Adapter, *others: Adapter) -> Adapter:
    """Return an adapter, with what further ones say of the same type where it says nothing."""
    for other in others:
        fields = {
            name: getattr(first, name) or getattr(other, name) for name in ("position", "grid", "rotary", "filters")
        }
        # the first come first, and hold
        first = replace(first, **fields, parameters={**first.parameters, **other.parameters, **first.parameters})
    return first


def families(model: nn.Module) -> list[Family]:
    """All models of a known family in a model, none inside of one whose positions are known."""
    known: list[Family] = []
    for path, module in model.named_modules():
        if any(path.startswith(family.inside) and family.adapter.position for family in known):
            continue
        names = _names(type(module))
        matches = [adapter for adapter in adapters() if not names.isdisjoint(map(_text, adapter.models))]
        if matches:
            known.append(Family(path, module, _together(*matches)))
    return known
