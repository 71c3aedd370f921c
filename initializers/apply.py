"""Base, then method, on a copy of a model: checked, applied, audited; for a run also measured."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Generator, Tensor, nn

from vitinit.initializers.adapter import TokenGrid
from vitinit.initializers.attention import attention_layers, evaluated, position_embedding, seen_grids, survey
from vitinit.initializers.diagnostics import attention_input
from vitinit.initializers.errors import VitinitError, brief
from vitinit.initializers.registry import Aim, Initializer, Job, changed_by
from vitinit.initializers.report import Fidelity, InitReport, LayerNorms
from vitinit.initializers.streams import seeded_python
from vitinit.initializers.targets import pseudo_input
from vitinit.initializers.transaction import fingerprints, scratch, write

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
    for initializer in initializers:
        initializer.check(model)
    before, seconds, changed = fingerprints(model), 0.0, list[list[str]]()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    gpus = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    aim: Tensor | Aim | None = None
    for initializer in initializers:
        start = time.perf_counter()
        try:
            seed = stream(f"init/{initializer.kind}/global").initial_seed()
            with torch.random.fork_rng(gpus), seeded_python(seed), torch.no_grad():
                torch.manual_seed(seed)  # of code that leaves the generator out, as in nn.init.normal_(weight)
                aim = initializer.apply(model, stream(f"init/{initializer.kind}"), job)
        except (OverflowError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise VitinitError(
                f"{initializer.described}: numbers leave the range of float32 ({error}): give smaller parameters, or "
                "weights that are finite"
            ) from error
        seconds += time.perf_counter() - start
        model.float()  # a plug-in may have replaced a parameter by one of another type
        after = fingerprints(model)
        old, new = ({(name, shape) for name, (shape, _) in values.items()} for values in (before, after))
        if replaced := old ^ new:
            raise VitinitError(
                f"{initializer.described} adds, removes or replaces {min(replaced)[0]!r}: a method sets values of "
                "parameters and buffers in place, as by weight.copy_(values)"
            )
        if frozen := [name for name in trained if not model.get_parameter(name).requires_grad]:
            raise VitinitError(
                f"{initializer.described} freezes {frozen[0]!r} in `apply`: a run would train it; say it in `freeze`"
            )
        changed.append(changed_by(initializer, model, before, after))
        before = after
        first = {parameter: name for name, parameter in model.named_parameters()}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if initializer.kind == "method" and name != first[parameter] and first[parameter] in changed[-1]:
                raise VitinitError(
                    f"{initializer.described} would set {first[parameter]!r}, which {name!r} shares: it is made for "
                    "layers with parameters of their own"
                )
    if isinstance(aim, Tensor):
        aim = Aim(aim.expand(len(attention_layers(model)), *aim.shape))
    elif not isinstance(aim, Aim | None):
        raise VitinitError(
            f"{initializers[-1].described}: `apply` returns {brief(aim)}: return targets, an Aim or None"
        )
    return changed, aim, seconds


def remarks_of(initializers: Sequence[Initializer], model: nn.Module) -> list[str]:
    """Return what initialisers say of a model that they have set."""
    return [
        f"{initializer.kind} {initializer.name}: {note}"
        for initializer in initializers
        for note in initializer.notes(model)
    ]


def initialize_run(
    model: nn.Module,
    base: Initializer,
    method: Initializer | None,
    stream: Callable[[str], Generator],
    images_BCHW: Tensor | None = None,
    job: Job = Job(),  # noqa: B008 - frozen
) -> tuple[InitReport, Tensor | None]:
    """Set every parameter of `model` in place: the base first, then the method over it.

    Fields on attention stay empty for a model without attention that can be measured.

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
    initializers = [base, method] if method else [base]
    with scratch(model) as copied:
        _, aim, seconds = apply_in_turn(copied, initializers, stream, job)
        write(model, copied)
    for initializer in initializers:
        initializer.freeze(model)
    layers, _, unknown = survey(model)
    layers = [] if unknown else layers
    report = {
        "seconds": seconds,
        "remarks": remarks_of(initializers, model),
        "norms": [
            LayerNorms(layer=layer.name, query=layer.query_HdD.detach().norm(dim=(1, 2)).tolist()) for layer in layers
        ],
    }
    if layers and aim is not None:
        report["pseudo_input"] = Fidelity(mass=on_pseudo_input(model, aim))
    with suppress(Exception):  # of anyone's model: probes say why attention cannot be measured
        if layers and images_BCHW is not None:
            attention_BHNN = layers[0].attention(attention_input(model, images_BCHW, alone=True))
            report["offset_maps"] = offset_maps(attention_BHNN.mean(0), seen_grids(model)[0], OFFSET_RADIUS)
            report["images"] = len(images_BCHW)
            if aim is not None:
                report["real_images"] = Fidelity(mass=on_target(attention_BHNN, aim.targets_LHNN[0]))
    return InitReport.model_validate(report), aim.targets_LHNN.bool() if layers and aim is not None else None


@torch.no_grad()
def on_pseudo_input(model: nn.Module, aim: Aim) -> float:
    """Return the share of the first layer's attention that is on its target, on its pseudo-input.

    W_q and W_k without biases, as the solvers see it; GPSA gives its own gated map.
    """
    pseudo_ND = pseudo_input(position_embedding(model)) if aim.pseudo_ND is None else aim.pseudo_ND
    layer = attention_layers(model)[0]
    with evaluated(model):
        if layer.gated:
            attention_HNN = layer.attention(pseudo_ND[None])[0]
        else:
            query_HNd, key_HNd = (pseudo_ND @ weight.mT for weight in (layer.query_HdD, layer.key_HdD))
            attention_HNN = (query_HNd @ key_HNd.mT * query_HNd.shape[-1] ** -0.5).softmax(-1)
        return on_target(attention_HNN[None], aim.targets_LHNN[0])


def on_target(attention_BHNN: Tensor, targets_HNN: Tensor) -> float:
    """Return the mean attention on the 0/1 targets, over the queries that have one.

    Raises:
        VitinitError: they are no such targets of this attention.
    """
    targets_HNN = targets_HNN.to(attention_BHNN)
    if (
        targets_HNN.shape != attention_BHNN.shape[1:]
        or {*targets_HNN.unique().tolist()} - {0, 1}
        or not targets_HNN.any()
    ):
        raise VitinitError(
            "targets that a method's `apply` returns are 0 and 1, some of them 1, heads x N x N: "
            f"{' x '.join(map(str, attention_BHNN.shape[1:]))}"
        )
    return float((attention_BHNN * targets_HNN).sum(-1)[:, targets_HNN.sum(-1) > 0].mean())


def offset_maps(attention_HNN: Tensor, grid: TokenGrid, radius: int) -> list[list[list[float]]]:
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
