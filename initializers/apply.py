"""Base, then method, on a copy of a model: checked, applied, audited; for a run also measured."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Generator, Tensor, nn

from vitinit.initializers.adapters import families
from vitinit.initializers.attention import (
    AttentionLayer,
    attention_layers,
    evaluated,
    position_embedding,
    seen_grids,
)
from vitinit.initializers.diagnostics import attention_input
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Aim, Initializer, Job, changed_by
from vitinit.initializers.report import Fidelity, InitReport, LayerNorms
from vitinit.initializers.targets import pseudo_input
from vitinit.initializers.transaction import fingerprints, named_tensors, scratch

OFFSET_RADIUS = 3


def apply_in_turn(
    model: nn.Module, initializers: Sequence[Initializer], stream: Callable[[str], Generator], job: Job
) -> tuple[list[list[str]], Aim | None, float]:
    """Check all initialisers, then apply them one after the other, to the copy that `scratch` gives.

    Returns:
        Names of the tensors that each changed, attention that the last one aims at, and seconds.

    Raises:
        VitinitError: an initialiser does not fit the model, or changed a parameter that it does not name, or one that
            several modules share and need differently, or replaced more than values, or left a value that is not
            finite.
    """
    before = fingerprints(model)
    if twins := _twins(model, before):
        raise VitinitError(
            f"{type(model).__name__} holds equal parts ({twins[0]!r}, {twins[1]!r}), as student and teacher: "
            "initialise one of them, then copy it"
        )
    for initializer in initializers:
        initializer.check(model)
    seconds, changed = 0.0, list[list[str]]()
    aim: Tensor | Aim | None = None
    for initializer in initializers:
        start = time.perf_counter()
        try:
            with torch.no_grad():
                aim = initializer.apply(model, stream(f"init/{initializer.kind}"), job)
        except (OverflowError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise VitinitError(
                f"{initializer.described}: numbers leave the range of float32 ({error}): give smaller parameters, or "
                "weights that are finite"
            ) from error
        seconds += time.perf_counter() - start
        model.float()  # a plug-in may have replaced a parameter by one of another type
        shapes = {(name, shape) for name, (shape, *_) in before.items()}
        if differing := shapes ^ {(name, tensor.shape) for name, tensor in named_tensors(model).items()}:
            raise VitinitError(
                f"{initializer.described} adds, removes or replaces {min(differing)[0]!r}: a method sets values of "
                "parameters and buffers in place, as by weight.copy_(values)"
            )
        after = fingerprints(model)
        changed.append(changed_by(initializer, model, before, after))
        before = after
        shared: dict[nn.Parameter, list[str]] = {}
        for path, parameter in model.named_parameters(remove_duplicate=False):
            shared.setdefault(parameter, []).append(path)
        for paths in shared.values() if initializer.kind == "method" else ():
            if len(paths) > 1 and not set(paths).isdisjoint(changed[-1]):
                raise VitinitError(
                    f"{initializer.described} would set {paths[0]!r}, which {', '.join(map(repr, paths[1:]))} shares: "
                    "it is made for layers with parameters of their own"
                )
    if isinstance(aim, Tensor):
        aim = Aim(aim.expand(len(attention_layers(model)), *aim.shape))
    return changed, aim, seconds


def _twins(model: nn.Module, values: Mapping[str, tuple[Any, ...]]) -> tuple[str, str] | None:
    """Return two modules with the same weights: two matrices at least, of more than one number.

    Blocks in a row may be equal, as PyTorch's encoder and some bases make them, but models of a known family may not.
    """
    homes = [family.path for family in families(model)]
    matrices = {
        name: values[name]
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1
        and parameter.is_floating_point()
        and parameter.numel()
        and parameter.min() < parameter.max()
    }
    first: dict[tuple[Any, ...], str] = {}
    for path, module in model.named_modules():
        names = [f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters()]
        weights = tuple(matrices[name] for name in names if name in matrices)
        twin = first.setdefault(weights, path)
        places = {
            (next((home for home in homes if f"{name}.".startswith(f"{home}.")), ""), re.sub(r"\d+", "*", name))
            for name in (path, twin)
        }
        if len(weights) > 1 and len(places) > 1 and not f"{path}.".startswith(f"{twin}.".lstrip(".")):
            return twin, path
    return None


def remarks_of(initializers: Sequence[Initializer], model: nn.Module) -> list[str]:
    """Return what initialisers say of a model that they have set."""
    return [f"{each.kind} {each.name}: {note}" for each in initializers for note in each.notes(model)]


def initialize_run(
    model: nn.Module,
    base: Initializer,
    method: Initializer | None,
    stream: Callable[[str], Generator],
    images_BCHW: Tensor | None = None,
    job: Job | None = None,
) -> tuple[InitReport, Tensor | None]:
    """Set every parameter of `model` in place: the base first, then the method over it.

    What is measured of attention stays empty for a model that has none, or none that can be measured.

    Args:
        model: a supported model, on any device.
        base: sets every parameter.
        method: overwrites some of them, or None.
        stream: gives the CPU generator of a named stream; base and method draw from one each, so that at one seed
            every method starts from the same base.
        images_BCHW: normalised images to measure attention on; they never influence a parameter.
        job: what methods may use beyond the model and random numbers.

    Returns:
        What was done, and the attention targets of the layers that have one (layers x heads x N x N, bool), or None.

    Raises:
        VitinitError: the method does not fit the model, or changed a parameter outside its `touches`, or left a
            value that is not finite.
    """
    initializers = [initializer for initializer in (base, method) if initializer is not None]
    with scratch(model) as copied:
        _, aim, seconds = apply_in_turn(copied, initializers, stream, job or Job())
    for initializer in initializers:
        initializer.freeze(model)
    layers = list[AttentionLayer]()
    with suppress(VitinitError):
        layers = attention_layers(model)
    report: dict[str, Any] = {
        "seconds": seconds,
        "remarks": remarks_of(initializers, model),
        "norms": [
            LayerNorms(layer=layer.name, query=layer.query_HdD.detach().norm(dim=(1, 2)).tolist()) for layer in layers
        ],
    }
    if layers and aim is not None:
        report["pseudo_input"] = on_pseudo_input(model, aim)
    with suppress(Exception):  # of anyone's model: probes say why attention cannot be measured
        if layers and images_BCHW is not None:
            attention_BHNN = layers[0].attention(attention_input(model, images_BCHW, alone=True))
            report["offset_maps"] = offset_maps(attention_BHNN.mean(0), seen_grids(model)[0], OFFSET_RADIUS)
            report["images"] = len(images_BCHW)
            if aim is not None:
                report["real_images"] = fidelity(attention_BHNN, aim.targets_LHNN[0])
    return InitReport.model_validate(report), aim.targets_LHNN.bool() if layers and aim is not None else None


@torch.no_grad()
def on_pseudo_input(model: nn.Module, aim: Aim) -> Fidelity:
    """Attention of the first layer on its pseudo-input, beside its target.

    W_q and W_k without biases, as the solvers see it; GPSA gives its own gated map.
    """
    pseudo_ND = pseudo_input(position_embedding(model)) if aim.pseudo_ND is None else aim.pseudo_ND
    layer = attention_layers(model)[0]
    with evaluated(model):
        if layer.gated:
            attention_HNN = layer.attention(pseudo_ND[None])[0]
        else:
            weights = layer.query_HdD, layer.key_HdD
            query_HNd, key_HNd = (pseudo_ND.to(weight.device) @ weight.transpose(1, 2) for weight in weights)
            logits_HNN = query_HNd @ key_HNd.transpose(1, 2) * query_HNd.shape[-1] ** -0.5
            attention_HNN = logits_HNN.softmax(-1)
        return fidelity(attention_HNN[None], aim.targets_LHNN[0])


def fidelity(attention_BHNN: Tensor, targets_HNN: Tensor) -> Fidelity:
    """Compare attention maps with 0/1 targets."""
    targets_HNN = targets_HNN.to(attention_BHNN)
    mass_BHN = (attention_BHNN * targets_HNN).sum(-1)
    return Fidelity(mass=float(mass_BHN[:, targets_HNN.sum(-1) > 0].mean()))


def offset_maps(attention_HNN: Tensor, grid: tuple[int, int], radius: int) -> list[list[list[float]]]:
    """Mean attention at each (row, column) offset: heads x (2r+1) x (2r+1), r = radius, or side - 1 if that is less."""
    rows, columns = grid
    r = min(radius, rows - 1, columns - 1)
    steps, attention = range(-r, r + 1), attention_HNN.detach().cpu().view(-1, rows, columns, rows, columns)
    # the diagonal of (query row, key row) at distance `down`, then likewise for the columns
    rows_HC = [
        torch.stack([attention.diagonal(down, 1, 3).diagonal(right, 1, 2).mean(dim=(1, 2)) for right in steps], 1)
        for down in steps
    ]
    return torch.stack(rows_HC, 1).double().round(decimals=6).tolist()
