"""Optimisers by name: timm's, torch's among them, and every class under `@register` in a file of this folder.

Imports torch and timm only inside its functions.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.spec import ADAMW, Recipe
from vitinit.initializers.errors import VitinitError, unknown_name
from vitinit.initializers.plugins import Registry, imported, is_pinned

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

REGISTRY: Registry[type[Optimizer]] = Registry(
    "optimizer", (__package__,), wanted="a torch.optim.Optimizer class", accepts=inspect.isclass
)
register = REGISTRY.named
"""Name an optimiser. A class without a parameter `weight_decay` goes with recipes whose weight decay is 0."""


def described() -> dict[str, str]:
    """Return all optimisers by name, each with one line about it.

    Those that need second derivatives are left out, and PSGD Kron, which compiles itself for minutes.
    """
    from timm.optim import get_optimizer_info, list_optimizers

    theirs = {str(name): get_optimizer_info(str(name)) for name in list_optimizers()}
    texts = {
        name: info.description for name, info in theirs.items() if not (info.second_order or name.startswith("kron"))
    }
    ours = {name: f"{cls.__module__.partition('.')[0]}: {cls.__name__}" for name, cls in REGISTRY.by_name().items()}
    return dict(sorted((texts | ours).items()))


def check(recipe: Recipe) -> None:
    """Build the optimiser that a recipe names, for a small model: wrong arguments are its own error.

    Raises:
        VitinitError: there is no such optimiser, or it does not take its arguments.
    """
    if recipe.optimizer == ADAMW:
        return
    from torch import nn

    if not is_pinned(name := recipe.optimizer.name) and name not in described():
        raise unknown_name("optimizer", name, described())
    with imported(f"optimizer {name!r}", VitinitError):  # each checks its arguments in its own way
        optimizer = build(nn.Linear(1, 1), recipe.model_copy(update={"layer_decay": None}))
    for key, parameter in inspect.signature(type(optimizer)).parameters.items():
        if type(parameter.default) in (int, float) and isinstance(recipe.optimizer.params.get(key), bool):
            raise VitinitError(f"optimizer {name!r}: {key} is a number, not true or false")


def build(model: nn.Module, recipe: Recipe) -> Optimizer:
    """Return the optimiser of a recipe that names one; timm's by `timm.optim.create_optimizer_v2`.

    Biases, norms and what the model's `no_weight_decay` names do not decay. Muon updates matrices, and convolutions as
    matrices; all else is left to its AdamW, positions and the class token too.

    Raises:
        VitinitError: the recipe asks for what the optimiser, or the model, has not.
    """
    from timm.optim import create_optimizer_v2, get_optimizer_info
    from torch.optim import SGD, Adam, AdamW

    name, params = recipe.optimizer.name, recipe.optimizer.params
    for given in ("lr", "weight_decay"):
        if given in params:
            raise VitinitError(f"{given} is a field of the recipe, and not of its optimizer")
    if is_pinned(name) or name in REGISTRY.by_name():
        cls = REGISTRY.get(name)
        if recipe.weight_decay and "weight_decay" not in inspect.signature(cls).parameters:
            raise VitinitError(f"{name} has no weight decay; the recipe is to have weight_decay: 0")
        return cls(groups(model, recipe), lr=recipe.lr, **params)  # type: ignore[call-arg]
    for dropped in ("betas", "eps"):  # by timm, in silence
        if dropped in params and not getattr(get_optimizer_info(name), f"has_{dropped}"):
            raise VitinitError(f"{name} has no {dropped}")
    _check_layers(model, recipe)
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    if on_gpu and get_optimizer_info(name).opt_class in (Adam, AdamW, SGD):
        params = {"fused": True, **params}  # under fp16 the others make the host wait at every step
    return create_optimizer_v2(
        model,
        name,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        fallback_no_weight_decay=name.endswith("muon"),
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
