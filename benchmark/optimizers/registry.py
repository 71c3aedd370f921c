"""Optimisers by name: those that work with `step()` alone, their parameters, and building one for a model.

They are timm's, and every class under `@register` in a file of this folder. Imports torch and timm only inside its
functions.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from vitinit.benchmark.signatures import checkable, guess
from vitinit.benchmark.spec import ADAMW, OptimizerSpec, Recipe
from vitinit.initializers.errors import VitinitError, explain, unknown_name
from vitinit.initializers.plugins import Registry

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

OF_THE_RECIPE = ("lr", "weight_decay")
OF_THE_LOOP = (
    *("params", "foreach", "fused", "capturable", "differentiable", "maximize", "verbose"),
    "adamw_lr",  # deprecated in timm
)
"""Arguments that no grid gives: they choose an implementation, or the loop depends on them."""

REGISTRY: Registry[type[Optimizer]] = Registry("optimizer", __package__)
register = REGISTRY.named
"""Name an optimiser. The parameters of its `__init__`, typed and with defaults, are those that a recipe can give.

A class without a parameter `weight_decay` goes with recipes whose weight decay is 0."""


@cache
def own() -> dict[str, type[Optimizer]]:
    """Return the optimisers of the files in this folder, by name.

    Raises:
        VitinitError: timm has one of the same name.
    """
    from timm.optim import list_optimizers

    if taken := REGISTRY.by_name().keys() & set(list_optimizers()):
        raise VitinitError(f"timm has an optimizer called {min(taken)!r} already: give yours another name")
    return REGISTRY.known


def described() -> dict[str, str]:
    """All optimisers of timm, torch and this folder by name, each with one line about it, in order of their names."""
    from timm.optim import list_optimizers

    with_text = dict(each for each in list_optimizers(with_description=True) if isinstance(each, tuple))
    ours = {name: f"{cls.__module__.partition('.')[0]}: {cls.__name__}" for name, cls in own().items()}
    return dict(sorted({**_of_torch_alone(), **ours, **with_text}.items()))


@cache
def refusal(name: str) -> str:
    """Return the reason for which an optimiser of `described()` cannot be used here; empty where it can."""
    import torch
    from timm.optim import get_optimizer_info

    if name in own():
        return ""
    if name in _of_torch_alone():
        sparse = name == "sparseadam"
        return "takes sparse gradients alone" if sparse else "needs a closure that computes the loss anew"
    info = get_optimizer_info(name)
    if info.second_order:
        return "needs second derivatives, which the training loop does not compute"
    if getattr(info.opt_class, "__name__", "") == "Kron":
        return "compiles its steps as it runs, which takes a C++ compiler and minutes"
    if isinstance(info.opt_class, str):  # compiled for CUDA, in a library of its own
        library = info.opt_class.partition(".")[0]
        if find_spec(library) is None:
            return f"needs the library {library}, which is not installed"
        if not torch.cuda.is_available():
            return "needs a GPU"
    return ""


def parameters(name: str) -> type[BaseModel]:
    """The parameters of an optimiser with their types and defaults, as its signature and timm's registry have them.

    Raises:
        VitinitError: there is no such optimiser, or it cannot be used here.
    """
    if name not in described():
        raise unknown_name("optimizer", name, (each for each in described() if not refusal(each)))
    if why := refusal(name):
        raise VitinitError(f"optimizer {name!r} {why}; those that work: vitinit list optimizers")
    return _parameters(name)


def resolve(optimizer: OptimizerSpec, decays: bool = True) -> OptimizerSpec:
    """The same with defaults filled in, so that the run's identity does not depend on them; AdamW by itself stays.

    Parameters are checked by their types and by two steps on two small tensors.

    Args:
        optimizer: as a recipe names it.
        decays: the recipe has a weight decay.

    Raises:
        VitinitError: there is no such optimiser, it cannot be used here, or a parameter is not valid.
    """
    if optimizer == ADAMW:
        return optimizer
    for field in optimizer.params.keys() & {*OF_THE_RECIPE, *OF_THE_LOOP}:
        where = "is a field of the recipe itself" if field in OF_THE_RECIPE else "is not for a recipe to choose"
        raise VitinitError(f"optimizer {optimizer.name!r}: {field} {where}")
    schema = parameters(optimizer.name)
    try:
        params = schema.model_validate(optimizer.params).model_dump(mode="json")
    except ValidationError as error:
        raise explain(error, f"optimizer {optimizer.name!r}", schema) from None
    resolved = OptimizerSpec(name=optimizer.name, params=params)
    _try_out(resolved, decays)
    return resolved


def build(model: nn.Module, recipe: Recipe) -> Optimizer:
    """The optimiser of a recipe that names one; timm's by `timm.optim.create_optimizer_v2`.

    Biases, norms and what the model's `no_weight_decay` names do not decay. Muon updates matrices, and convolutions as
    matrices; all else is left to its AdamW, positions and the class token too.

    Raises:
        VitinitError: the recipe asks for what the optimiser, or the model, has not.
    """
    from timm.optim import create_optimizer_v2

    name = recipe.optimizer.name
    params = parameters(name).model_validate(recipe.optimizer.params).model_dump()
    if cls := own().get(name):
        if recipe.weight_decay and "weight_decay" not in inspect.signature(cls).parameters:
            raise VitinitError(f"{name} has no weight decay; the recipe is to have weight_decay: 0")
        return cls(groups(model, recipe), lr=recipe.lr, **params)  # type: ignore[call-arg]
    hybrid = "fallback_lr_scale" in params
    _check_layers(model, recipe)
    return create_optimizer_v2(
        model,
        name,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        fallback_no_weight_decay=hybrid,
        layer_decay=recipe.layer_decay,
        **params,
    )


def groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameter groups as timm makes them: by weight decay, and by layer where the recipe has `layer_decay`.

    Raises:
        VitinitError: the recipe has `layer_decay`, and the model does not say what its layers are.
    """
    from timm.optim import param_groups_layer_decay, param_groups_weight_decay

    undecayed: Any = getattr(model, "no_weight_decay", tuple)()  # timm's transformers have it
    if recipe.layer_decay is None:
        return param_groups_weight_decay(model, recipe.weight_decay, no_weight_decay_list=undecayed)
    _check_layers(model, recipe)
    return param_groups_layer_decay(model, recipe.weight_decay, undecayed, layer_decay=recipe.layer_decay)


def _check_layers(model: nn.Module, recipe: Recipe) -> None:
    if recipe.layer_decay is not None and not hasattr(model, "group_matcher"):
        raise VitinitError(f"layer_decay needs timm's `group_matcher`, and {type(model).__name__} has none")


@cache
def _of_torch_alone() -> dict[str, str]:
    """Return optimisers of torch that timm and this folder have no name for."""
    import torch
    from timm.optim import list_optimizers

    theirs = {cls.__name__: cls for cls in vars(torch.optim).values() if inspect.isclass(cls)}
    kinds = (name for name, cls in theirs.items() if issubclass(cls, torch.optim.Optimizer) and name != "Optimizer")
    known = {*list_optimizers(), *own()}
    return {name.lower(): f"torch.optim.{name}" for name in kinds if name.lower() not in known}


@cache
def _parameters(name: str) -> type[BaseModel]:
    from timm.optim import get_optimizer_class, get_optimizer_info

    cls: Any = own().get(name)
    defaults: dict[str, Any] = {}
    if cls is None:
        info, cls = get_optimizer_info(name), get_optimizer_class(name, bind_defaults=False)
        defaults = {**({"momentum": 0.9} if info.has_momentum else {}), **(info.defaults or {})}  # as timm's factory
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(cls, eval_str=True).parameters.values():
        default = defaults.get(parameter.name, parameter.default)
        if parameter.name in OF_THE_RECIPE or parameter.name in OF_THE_LOOP:
            continue
        kind = checkable(guess(default) if parameter.annotation is inspect.Parameter.empty else parameter.annotation)
        if kind is not None:
            fields[parameter.name] = kind, str(default).removeprefix("torch.") if _is_dtype(default) else default
    return create_model(name, __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def _is_dtype(value: Any) -> bool:
    import torch

    return isinstance(value, torch.dtype)


def _try_out(optimizer: OptimizerSpec, decays: bool) -> None:
    """Take two steps with two small tensors.

    Raises:
        VitinitError: the optimiser does not take the values, or does not work with `step()` alone.
    """
    import torch
    from torch import nn

    model = nn.Linear(4, 4)
    recipe = Recipe(name="trial", epochs=1, batch_size=1, lr=1e-3, weight_decay=0.1 * decays, optimizer=optimizer)
    with torch.random.fork_rng(devices=[]):
        try:
            made = build(model, recipe)
            for _ in range(2):
                for parameter in model.parameters():
                    parameter.grad = torch.ones_like(parameter)
                made.step()
        except Exception as error:  # each checks its values in its own way, some by assertions
            said = str(error) or f"does not take {optimizer.params}"
            raise VitinitError(f"optimizer {optimizer.name!r}: {said}") from error
