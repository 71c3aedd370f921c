"""Registry of adapters, and lookup of attention layers and families in a model by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from torch import Tensor, nn

from vitinit.initializers.adapter import Adapter, Attention, Type, found, lacking, left_out
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.plugins import ADAPTERS, Registry

REGISTRY: Registry[Adapter] = Registry(
    "adapter",
    str(__package__),
    group=ADAPTERS,
    wanted="an Adapter",
    accepts=lambda value: isinstance(value, Adapter),
    collect=True,
    order=lambda adapter: REGISTRY.origins[adapter.name].startswith(f"{__package__}."),  # installed packages first
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
    return (*reversed(_own.values()), *REGISTRY.entries())


def _text(one: Type) -> str:
    return one if isinstance(one, str) else f"{one.__module__}.{one.__qualname__}"


def _class(module: nn.Module) -> Any:
    return type(module)


@cache
def _names(cls: Any) -> frozenset[str]:
    return frozenset(_text(parent) for parent in cls.__mro__)


def _is(module: nn.Module, types: tuple[Type, ...]) -> bool:
    return not _names(_class(module)).isdisjoint(map(_text, types))


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
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for part in (kind.query, kind.key, kind.value, kind.proj):
        weight = found(module, part.weight)
        if not isinstance(weight, Tensor):
            if part is kind.proj and left_out(module, part):
                continue
            raise VitinitError(f"{where}: {lacking(module, part.weight)}")
        if id(weight) not in own:
            raise VitinitError(
                f"{where}: {part.weight!r} in {type(module).__name__} is computed from others (a property, pruning, "
                "weight norm): initialise the model before that, or name the parameters themselves"
            )
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
    _check_sizes(where, kind, module)
    if found(module, kind.table) is not None:
        window, index = found(module, kind.window), found(module, kind.table_index)
        if not (isinstance(window, Sequence) and len(window) == 2 and isinstance(index, Tensor)):
            raise VitinitError(
                f"{where}: beside {kind.table!r}, {kind.window!r} must be rows and columns, not {window!r}, and "
                f"{kind.table_index!r} a tensor"
            )


def _check_sizes(where: str, kind: Attention, module: nn.Module) -> None:
    """Refuse heads that share keys or values. Values may have more features than keys, or fewer."""
    name, proj = type(module).__name__, found(module, kind.proj.weight)
    query, key, value = (len(found(module, part.weight)) // part.of for part in (kind.query, kind.key, kind.value))
    if query != key:
        raise VitinitError(
            f"{where}: W_q and W_k in {name} have {query} and {key} rows: no method is made for attention whose heads "
            "share keys and values"
        )
    if not isinstance(proj, Tensor):  # left out: values go on as they are, so as many as there are channels
        taken, by = {query, found(module, kind.value.weight)[0].numel()}, "there is no W_proj"
    else:
        taken, by = {proj[0].numel()}, f"W_proj takes {proj[0].numel()}"
    if value not in taken:
        raise VitinitError(
            f"{where}: W_v in {name} has {value} rows, and {by}: no method is made for attention that shares its "
            "values or changes their number"
        )


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
        """True where the model has rotary position embeddings. VitinitError where its adapter fails to say."""
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


SCALING_NORMS: tuple[Type, ...] = ("timm.models.vision_transformer_relpos.ResPostRelPosBlock",)
"""Blocks of models that no adapter knows, whose norms scale what a branch adds where the block has `init_values`."""


def layer_scales(model: nn.Module) -> list[Tensor]:
    """The parameters of a model by which its family, or a block of no family, scales what a branch adds."""
    known = families(model)
    named = [
        parameter
        for family in known
        for name, parameter in family.model.named_parameters()
        if family.adapter.rule(name) == "layer_scale"
    ]
    searched = [(family.model, family.adapter.scaling_norms) for family in known]
    return named + [
        part.weight
        for part_of_model, types in [*searched, (model, SCALING_NORMS)]
        for block in part_of_model.modules()
        if _is(block, types) and getattr(block, "init_values", None) is not None
        for part in block.children()
        if isinstance(part, nn.LayerNorm)
    ]
