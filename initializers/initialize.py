"""`vitinit.initialize`: a base, a method, or both on anyone's model, and a report of what changed."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Generator, Tensor, nn

from vitinit.initializers.apply import apply_in_turn, on_pseudo_input, remarks_of
from vitinit.initializers.attention import evaluated, survey
from vitinit.initializers.check import constant
from vitinit.initializers.errors import VitinitError, brief
from vitinit.initializers.registry import Initializer, Job, Kind, build_named, check_class
from vitinit.initializers.streams import stream
from vitinit.initializers.transaction import (
    MEANT,
    Meant,
    differs,
    fingerprint,
    named_tensors,
    scratch,
    still_meant,
    write,
)
from vitinit.initializers.whole_model import Convolution, classifiers, layer_scales

Asked = str | Mapping[str, Any] | Initializer
"""A base or a method: its name, a mapping with `name` and parameters, or an instance."""


@dataclass(frozen=True)
class Change:
    """A parameter or buffer that was changed."""

    name: str
    shape: tuple[int, ...]
    before: float
    """Frobenius norm."""
    after: float


@dataclass(frozen=True)
class Report:
    """Report of `initialize`: `print` shows a summary of four lines; `changes` and `remarks` are all of it."""

    model: str
    """Name of the model's class."""
    base: Initializer | None
    """With all parameters, as `report.base.model_dump()` shows."""
    method: Initializer | None
    seed: int
    changes: tuple[Change, ...]
    """Every tensor that is not what it was, in the order of the model."""
    attention_on_target: float | None = None
    """For a method that aims at attention maps: attention of the first layer on its target token, mean over
    heads and the queries that have such a token; on the pseudo-input, without biases of q and k."""
    uniform: float | None = None
    """Share that the target has under uniform attention."""
    layer_scale: float | None = None
    """Value that layer scales were set to, where that was asked for."""
    untrained: tuple[str, ...] = ()
    """Parameters that base or method mean to stay as they start. Excluding them from training is left to you:
    `for name in report.untrained: model.get_parameter(name).requires_grad_(False)`."""
    remarks: tuple[str, ...] = ()
    """Further remarks of base or method on the weights that they set."""

    def __str__(self) -> str:
        """Return the summary: what, on which layers, what it aims at, what stayed."""
        called = [f"{initializer.kind}: {initializer}" for initializer in (self.base, self.method) if initializer]
        called += [] if self.layer_scale is None else [f"layer scales: {self.layer_scale:g}"]
        changed = [change.name for change in self.changes]
        where = f": {changed[0]} to {changed[-1]}" if changed else ""
        aim = "none: nothing here aims at attention maps"
        if self.attention_on_target is not None:
            aim = (
                f"{self.attention_on_target:.3f} of the first layer's attention is on its target "
                f"(uniform: {self.uniform:.3f})"
            )
        stayed = [*(f"{name} (exclude from training)" for name in self.untrained), *self.remarks]
        more = f" (and {len(stayed) - 1} more)" if len(stayed) > 1 else ""
        return "\n".join(
            [
                "; ".join(called),
                f"{self.model}, seed {self.seed}: {len(changed)} tensors changed{where}",
                f"aim: {aim}",
                f"also: {stayed[0]}{more}" if stayed else "no remarks",
            ]
        )


def initialize(
    model: nn.Module,
    method: Asked | None = None,
    *,
    base: Asked | None = None,
    seed: int = 0,
    generator: Generator | None = None,
    layer_scale: float | None = None,
    batch: Tensor | None = None,
    **params: Any,
) -> Report:
    """Set the weights of a model in place: by a base, by a method over it, or by a method over what is there.

    All or nothing: a model for which the method is not made is refused before anything is changed, and when
    anything is raised on the way every tensor is as it was. Training mode, types, devices, hooks and
    `requires_grad` stay as they are, and global random state is not touched; what a method means to stay untrained
    (`conv_filters`) is in the report. Weights of other types are computed in float32 and rounded once. At one seed
    the numbers are those of a run of the benchmark, unless they depend on `batch`, and, where libraries have the
    same tensors, the same function in all.

    Families: timm's ViT, DeiT, ConViT, ConvMixer, MLP-Mixer, ResMLP, BEiT, EVA, Swin; torchvision's ViT; Hugging
    Face's ViT, DeiT, DINOv2; `nn.MultiheadAttention`, so `nn.TransformerEncoder`. A model that holds one of them will
    do. Others by an `Adapter` (`vitinit.adapters.register`).

    Args:
        model: on any device, in any float type, before it is compiled, sharded or wrapped for several processes.
        method: `mimetic` (arXiv 2305.09828), `impulse` (arXiv 2404.01139, 2505.19985), `convit_gpsa` (arXiv
            2103.10697), `conv_filters` (arXiv 2404.01139), `placebo`; `catalogue()` lists all. None: the base alone.
            A mapping with `name` and parameters does as well, or an instance: `{"name": "lsuv", "images": 32}`,
            `Mimetic(alpha_qk=1.0)`. A base will do where no other is given.
        base: `kaiming_uniform` (PyTorch's default), `trunc_normal` (timm's), or a mapping or an instance.
            None keeps the weights that are there.
        seed: of all random numbers.
        generator: draws the seed, in place of one that is given; `report.seed` holds it.
        layer_scale: what every layer scale is set to; None leaves them as the library or a checkpoint has them.
        batch: images, B x C x H x W, normalised as in training, not augmented; for the few methods that use data. A
            larger batch than the method asks for (`lsuv` and `placebo`: 64) is subsampled without replacement, a
            smaller one is repeated.
        **params: parameters of the method.

    Returns:
        Every tensor that changed, with its norm before and after, and how much attention is on its target.

    Raises:
        VitinitError: one line: what cannot be done, why, and what can.
    """
    initializers = [] if base is None else [_built("base", base, {})]
    if method is not None:
        initializers.append(_built("method" if initializers else None, method, params))
    elif params:
        raise VitinitError(
            f"{', '.join(params)}: parameters of a method, and there is none; a base takes its own as a mapping: "
            "base={'name': NAME, ...}"
        )
    elif base is None and layer_scale is None:
        raise VitinitError("nothing to do: give a method, a base, or both; vitinit.catalogue() lists them")
    by_kind = {initializer.kind: initializer for initializer in initializers}
    if generator is not None:
        if seed:
            raise VitinitError("give a seed or a generator, not both")
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    seed = operator.index(seed)
    with scratch(model) as copied:
        _refuse_twins(model)
        if layer_scale is not None:  # before a method looks at what the model gives
            most, scales = torch.finfo(torch.float32).max, layer_scales(copied)
            if not abs(layer_scale) <= most:
                raise VitinitError(f"layer_scale must be a finite number of at most {most:g}, not {brief(layer_scale)}")
            if not scales:
                raise VitinitError(f"layer_scale: {type(model).__name__} has no layer scale that an adapter knows")
            for scale in scales:
                scale.detach().fill_(float(layer_scale))
        remarks = []
        job = Job(training_images=None if batch is None else _training_images(copied, batch, seed))
        changed, aim, _ = apply_in_turn(copied, initializers, lambda name: stream(seed, name), job)
        on_target = uniform = None
        if aim is not None:
            on_target, uniform = on_pseudo_input(copied, aim), 1 / aim.targets_LHNN.shape[-1]
            if on_target < 2 * uniform and initializers[-1].name == "impulse":
                remarks.append("near uniform; for learned positions: solver='svd', position_scale=18")
        remarks += remarks_of(initializers, copied)
        for initializer in initializers:
            initializer.freeze(copied)
        after = named_tensors(copied)
        untrained = tuple(
            name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and not after[name].requires_grad
        )
        own = named_tensors(model)
        changes = tuple(
            Change(name, tuple(before.shape), _norm(before), _norm(after[name]))
            for name, before in own.items()
            if differs(before, after[name])
        )
        weights = [change.name for change in changes if re.search(r"weight$|\blora_\w+$", change.name)]
        heads = {f"{name}.weight" for name in classifiers(copied)}
        if frozen := [name for name in weights if not own[name].requires_grad]:
            remarks.append(f"frozen weights (requires_grad is False) were set, too: {', '.join(frozen)}")
        if zeros := [name for name in weights if name not in heads and _zeros(after[name]) < _zeros(own[name])]:
            remarks.append(f"weights that began at 0, as at the end of branches, are no longer: {', '.join(zeros)}")
        queries_and_keys = {name for layer in survey(copied).layers for name in layer.names_of("query", "key")}
        # matrices of zeros learn, as at the end of branches
        cleared = [change for change in changes if len(change.shape) in (0, 1, 3) and not change.after]
        if any(not re.search("bias$|token", change.name) for change in cleared) and constant(copied):
            remarks.append("what the classifier is given does not depend on the image: look at norms and scales of 0")
        written = write(model, copied)
    by_method = queries_and_keys.intersection(changed[-1] if "method" in by_kind else ())
    for name in written.keys() & {*untrained, *chain.from_iterable(changed)}:
        MEANT.setdefault(model, {})[name] = Meant(written[name], name in by_method, name in untrained)
    for module in model.modules() if "base" in by_kind else ():
        if hasattr(module, "base_model_prefix"):  # of transformers, which draws anew what has no mark in a larger model
            for inner in module.modules():
                vars(inner)["_is_hf_initialized"] = True
    return Report(
        model=type(model).__name__,
        base=by_kind.get("base"),
        method=by_kind.get("method"),
        seed=seed,
        changes=changes,
        attention_on_target=on_target,
        uniform=uniform,
        layer_scale=layer_scale,
        untrained=untrained,
        remarks=tuple(remarks),
    )


def _zeros(tensor: Tensor) -> int:
    """Return the number of rows and columns that are 0: of what is fused a part may be."""
    filled = torch.atleast_2d(tensor.detach()).flatten(1) != 0
    return sum(int((~filled.any(dim)).sum()) for dim in (0, 1))


def _norm(tensor: Tensor) -> float:
    """Return the Frobenius norm, row by row, for a float32 sum of millions of squares loses digits."""
    numbers = tensor.detach()
    numbers = numbers.abs() if numbers.is_complex() else numbers.float()
    return float(torch.linalg.vector_norm(numbers, dim=-1).cpu().double().norm())


def _refuse_twins(model: nn.Module) -> None:
    """Refuse a model with two equal modules: two matrices at least, of more than one number, rounded to one type.

    Blocks in a row may be equal, as PyTorch's encoder and some bases make them, but towers may not; and modules may
    that `initialize` made equal.
    """
    matrices = {
        name: parameter.detach()
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1 and parameter.is_floating_point() and parameter.numel()
        if parameter.min() < parameter.max()
    }
    meant = still_meant(model).keys()
    coarsest = max(
        {matrix.dtype for matrix in matrices.values()}, key=lambda dtype: torch.finfo(dtype).eps, default=None
    )
    prints = {name: fingerprint(matrix.to(coarsest)) for name, matrix in matrices.items()}
    first: dict[Any, tuple[str, list[str]]] = {}
    for path, module in model.named_modules():
        names = [name for name in prints if name.startswith(f"{path}.".lstrip("."))]
        twin, others = first.setdefault(tuple(prints[name] for name in names), (path, names))
        inside = f"{path}.".startswith(f"{twin}.".lstrip("."))
        if len(names) < 2 or inside or meant >= {*names, *others}:
            continue
        if re.sub(r"\d+", "", path) != re.sub(r"\d+", "", twin) or _tower(module):
            raise VitinitError(
                f"{type(model).__name__} holds equal parts ({twin!r}, {path!r}), as student and teacher: initialise "
                "one of them, then copy it"
            )


def _tower(module: nn.Module) -> bool:
    """Return True for what is no block in a row: it takes images, changes the width, or has attention twice."""
    layers = [inner for inner in module.modules() if isinstance(inner, nn.Linear | Convolution)]
    given = [layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels for layer in layers]
    returned = [len(layer.weight) for layer in layers]
    changes = bool(layers) and (given[0] < 5 or given[0] not in returned or returned[-1] not in given)
    return changes or len({layer.block for layer in survey(module).layers}) > 1


def _built(kind: Kind | None, asked: Any, params: Mapping[str, Any]) -> Initializer:
    """Return the instance that is asked for, of any kind without one."""
    if isinstance(asked, Initializer):
        check_class(type(asked))
        if params:
            raise VitinitError(
                f"{', '.join(params)}: an instance takes its parameters itself: "
                f"{type(asked).__name__}({next(iter(params))}=...)"
            )
        if kind not in (None, asked.kind):
            raise VitinitError(f"{asked.described} is not a {kind}")
        return asked
    if isinstance(asked, str):
        asked = {"name": asked}
    if not isinstance(asked, Mapping) or not isinstance(asked.get("name"), str):
        raise VitinitError(
            f"{kind or 'method'} must be a name, a mapping with `name` and parameters, or an instance, not "
            f"{brief(asked)}"
        )
    if twice := sorted(params.keys() & asked.keys()):
        raise VitinitError(f"{', '.join(twice)}: given in `method` and beside it")
    return build_named({**asked, **params}, kind)


def _training_images(model: nn.Module, batch: Any, seed: int) -> Callable[[int], Tensor]:
    if not isinstance(batch, Tensor) or batch.ndim != 4 or not len(batch):
        raise VitinitError("batch must be a tensor of images, B x C x H x W, B at least 1")
    if not batch.is_floating_point():
        raise VitinitError(f"batch must be normalised as in training, and {batch.dtype} has whole numbers alone")

    def chosen(count: int) -> Tensor:
        if len(batch) > count:
            numbers = torch.randperm(len(batch), generator=stream(seed, "init/images"))[:count]
        else:  # all, and all equally often: what is measured on them is what it is on the batch
            numbers = torch.arange(len(batch)).repeat(math.ceil(count / len(batch)))
        chosen_BCHW = batch[numbers].float().to(next(model.parameters()).device)
        if not chosen_BCHW.min() < chosen_BCHW.max():
            raise VitinitError("batch is one number everywhere, or NaN: give images that differ")
        try:
            with torch.no_grad(), evaluated(model):
                model(chosen_BCHW[:1])
        except Exception as error:  # code of anyone's
            raise VitinitError(
                f"{type(model).__name__} does not take images of {' x '.join(map(str, batch.shape[1:]))}: {error}"
            ) from None
        return chosen_BCHW

    return chosen
