"""Initialisations for anyone's Vision Transformer.

Example::

    import timm, vitinit

    model = timm.create_model("vit_tiny_patch16_224")
    print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

What this module lists in `__all__` is public and stays; everything else may change. It needs torch and pydantic, and no
library of models but the one that the model is from.
"""

from __future__ import annotations

import math
import operator
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from vitinit.initializers.errors import VitinitError, brief

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitinit.initializers.adapter import Adapter, Attention, Normal, Part, fused, linear
    from vitinit.initializers.adapters import register, unregister
    from vitinit.initializers.check import Check, Finding, check
    from vitinit.results import Run, epochs, load, records
    from vitinit.studies import StudyResults, run, study

__version__ = "0.1.0"
__all__ = [
    "Adapter",
    "Attention",
    "Change",
    "Check",
    "Finding",
    "Known",
    "Normal",
    "Part",
    "Report",
    "Run",
    "StudyResults",
    "VitinitError",
    "catalogue",
    "check",
    "epochs",
    "fused",
    "initialize",
    "linear",
    "load",
    "records",
    "register",
    "run",
    "study",
    "unregister",
]
WIDTH = 80
"""Columns that a report has at most."""


HOMES = {
    "initializers.check": ("Check", "Finding", "check"),
    "initializers.adapter": ("Adapter", "Attention", "Normal", "Part", "fused", "linear"),
    "initializers.adapters": ("register", "unregister"),
    "results": ("Run", "epochs", "load", "records"),
    "studies": ("StudyResults", "run", "study"),
}
"""Public names by the module that they are in."""


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use: that takes seconds."""
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(f"vitinit.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Known:
    """A base or a method."""

    name: str
    kind: Literal["base", "method"]
    parameters: dict[str, Any]
    """Each that has a default, with it."""
    papers: tuple[str, ...]
    """arXiv numbers in the first paragraph of its docstring; none where it is ours or a library's."""
    text: str
    """Description in one paragraph."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        papers = f" [arXiv {', '.join(self.papers)}]" if self.papers else ""
        said = f"{self.kind} {self.name}({given}){papers}: {self.text.splitlines()[0]}"
        return textwrap.fill(said, WIDTH, subsequent_indent="    ", break_on_hyphens=False)


class _Listed(list[Known]):
    """A list that prints one entry after the other."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def catalogue(kind: Literal["base", "method"] | None = None) -> list[Known]:
    """All bases and methods, with their parameters and papers; or those of one kind. It prints one after the other.

    Installed packages add theirs by the entry point group `vitinit.initializers`.
    """
    from vitinit.initializers import registry

    listed = _Listed()
    for cls in map(registry.get, registry.names(kind)):
        text, parameters = cls.__doc__ or "", cls.model_construct().model_dump(mode="json")
        papers = tuple(re.findall(r"\b\d{4}\.\d{4,5}\b", text.partition("\n\n")[0]))
        listed.append(Known(cls.name, cls.kind, parameters, papers, text))
    return listed


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
    """Report of `initialize`: `print` shows four lines within 80 columns; `changes` and `remarks` are all of it."""

    model: str
    """Name of the model's class."""
    base: dict[str, Any] | None
    """Name and all parameters."""
    method: dict[str, Any] | None
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
    called: tuple[str, ...] = ()
    """Base and method, with the parameters that were given."""

    def __str__(self) -> str:
        """Return the summary: what, on which layers, what it aims at, what stayed."""
        names = [change.name for change in self.changes]
        where = f": {names[0]} to {names[-1]}" if names else ""
        aim = "no attention maps"
        if self.attention_on_target is not None:
            share = f"{self.attention_on_target:.3f} of the first layer's attention is on its target"
            aim = f"{share} (uniform: {self.uniform:.3f})"
        stayed = [*(f"{name} (exclude from training)" for name in self.untrained), *self.remarks]
        more = f" (and {len(stayed) - 1} more)" if len(stayed) > 1 else ""
        lines = [
            "; ".join([*self.called, *([] if self.layer_scale is None else [f"layer scales: {self.layer_scale:g}"])]),
            f"{self.model}, seed {self.seed}: {len(names)} tensors changed{where}",
            f"aim: {aim}",
            f"also: {_cut(stayed[0], WIDTH - len('also: ') - len(more))}{more}" if stayed else "no remarks",
        ]
        return "\n".join(_cut(line, WIDTH) for line in lines)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _call(named: Mapping[str, Any]) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in named.items() if name != "name")
    return f"{named['name']}({given})" if given else str(named["name"])


def initialize(
    model: nn.Module,
    method: str | Mapping[str, Any] | None = None,
    *,
    base: str | Mapping[str, Any] | None = None,
    seed: int = 0,
    layer_scale: float | None = None,
    images: Tensor | None = None,
    **params: Any,
) -> Report:
    """Set the weights of a model in place: by a base, by a method over it, or by a method over what is there.

    All or nothing: a model for which the method is not made is refused before anything is changed, and when
    anything is raised on the way every tensor is as it was. Training mode, types, devices, hooks and
    `requires_grad` stay as they are, and global random state is not touched; what a method means to stay untrained
    (`conv_filters`) is in the report. Weights of other types are computed in float32 and rounded once. At one seed
    the numbers are those of a run of the benchmark, unless they depend on `images`, and, where libraries have the
    same tensors, the same function in all.

    Families: timm's ViT, DeiT, ConViT, ConvMixer, MLP-Mixer, ResMLP, BEiT, EVA, Swin; torchvision's ViT; Hugging
    Face's ViT, DeiT, DINOv2; `nn.MultiheadAttention`, so `nn.TransformerEncoder`. A model that holds one of them will
    do. Others by an `Adapter` (`register`).

    Args:
        model: on any device, in any float type, before it is compiled, sharded or wrapped for several processes.
        method: `mimetic` (arXiv 2305.09828), `impulse` (arXiv 2404.01139, 2505.19985), `convit_gpsa` (arXiv
            2103.10697), `conv_filters` (arXiv 2404.01139), `placebo`; `catalogue()` lists all. None: the base alone.
            A mapping with `name` and parameters does as well: `{"name": "lsuv", "images": 32}`.
        base: `kaiming_uniform` (PyTorch's default), `trunc_normal` (timm's), or a mapping with `name` and parameters.
            None keeps the weights that are there.
        seed: of all random numbers.
        layer_scale: what every layer scale is set to; None leaves them as the library or a checkpoint has them.
        images: B x C x H x W, normalised as in training, not augmented; for the few methods that use data. All count,
            up to as many as the method asks for (`lsuv` and `placebo` 64); of more, so many are drawn, none twice.
        **params: parameters of the method.

    Returns:
        Every tensor that changed, with its norm before and after, and how much attention is on its target.

    Raises:
        VitinitError: one line: what cannot be done, why, and what can.
    """
    from vitinit.initializers.adapters import families
    from vitinit.initializers.attention import survey
    from vitinit.initializers.check import constant
    from vitinit.initializers.families import FAMILIES
    from vitinit.initializers.initialize import MEANT, Meant, apply, on_pseudo_input
    from vitinit.initializers.registry import Job, build_named
    from vitinit.initializers.streams import stream
    from vitinit.initializers.transaction import fingerprint, named_tensors, same, scratch
    from vitinit.initializers.whole_model import classifiers

    if method is None and base is None and layer_scale is None:
        raise VitinitError("nothing to do: give a method, a base, or both; vitinit.catalogue() lists them")
    try:
        seed = operator.index(seed)
    except TypeError:
        raise VitinitError(f"seed must be an integer, not {brief(seed)}") from None
    if method is None and params:
        raise VitinitError(f"{', '.join(params)}: parameters of a method, and there is none")
    asked: dict[Literal["base", "method"], Mapping[str, Any]] = {}
    if base is not None:
        asked["base"] = _named("base", base)
    if method is not None:
        named = _named("method", method)
        if twice := sorted(params.keys() & named.keys()):
            raise VitinitError(f"{', '.join(twice)}: given in `method` and beside it")
        asked["method"] = {**named, **params}
    parts = [build_named(named, kind) for kind, named in asked.items()]
    with scratch(model) as copied:
        if layer_scale is not None:
            _set_layer_scales(copied, layer_scale)  # before a method looks at what the model gives
        remarks = []
        job = Job(training_images=None if images is None else _training_images(copied, images, seed))
        changed, aim, _ = apply(copied, parts, lambda name: stream(seed, name), job)
        mass = uniform = None
        if aim is not None:
            mass, uniform = on_pseudo_input(copied, aim).mass, 1 / aim.targets_LHNN.shape[-1]
            if mass < 2 * uniform and parts[-1].name == "impulse":
                remarks.append("near uniform; for learned positions: solver='svd', position_scale=18")
        remarks += [f"{part.kind} {part.name}: {note}" for part in parts for note in part.notes(copied)]
        for part in parts:
            part.freeze(copied)
        own = model.named_parameters()
        untrained = tuple(n for n, one in own if one.requires_grad and not copied.get_parameter(n).requires_grad)
        after = named_tensors(copied)
        changes = tuple(
            Change(name, tuple(old.shape), _norm(old), _norm(after[name]))
            for name, old in named_tensors(model).items()
            if not same(old.to(after[name].dtype), after[name])
        )
        queries_and_keys = {name for layer in survey(copied)[0] for name in layer.names_of("query", "key")}
        heads = {f"{name}.weight" for name in classifiers(copied)}
        if base is not None and any(known.adapter not in FAMILIES for known in families(copied)) and constant(copied):
            remarks.append("what the classifier is given does not depend on the image: look at norms and scales of 0")
    weights = [change for change in changes if re.search(r"weight$|\blora_\w+$", change.name)]
    if zeros := [change.name for change in weights if change.before == 0 and change.name not in heads]:
        remarks.append(f"weights that began at 0, as at the end of branches, are no longer: {', '.join(zeros)}")
    for module in model.modules() if base is not None else ():
        if hasattr(module, "base_model_prefix"):  # of transformers, which draws anew what has no mark in a larger model
            for inner in module.modules():
                vars(inner)["_is_hf_initialized"] = True
    now = named_tensors(model)
    MEANT[model] = Meant(
        values={name: fingerprint(now[name]) for names in changed for name in names},
        attention=queries_and_keys.intersection(changed[-1] if method is not None else ()),
        untrained={*untrained},
    )
    described = {part.kind: {"name": part.name, **part.model_dump(mode="json")} for part in parts}
    return Report(
        model=type(model).__name__,
        base=described.get("base"),
        method=described.get("method"),
        seed=seed,
        changes=changes,
        attention_on_target=mass,
        uniform=uniform,
        layer_scale=None if layer_scale is None else float(layer_scale),
        untrained=untrained,
        remarks=tuple(remarks),
        called=tuple(f"{kind}: {_call(named)}" for kind, named in asked.items()),
    )


def _norm(tensor: Tensor) -> float:
    return float(tensor.detach().cpu().abs().double().norm())  # of complex numbers too


def _named(kind: str, given: Any) -> Mapping[str, Any]:
    """A base or a method as a mapping with `name`."""
    named = {"name": given} if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        raise VitinitError(
            f"{kind} must be the name of a {kind}, or a mapping with `name` and parameters, not {brief(given)}"
        )
    return named


def _training_images(model: nn.Module, images: Any, seed: int) -> Callable[[int], Tensor]:
    import torch

    from vitinit.initializers.attention import evaluated
    from vitinit.initializers.streams import stream

    if not isinstance(images, torch.Tensor) or images.ndim != 4 or not len(images):
        raise VitinitError("images must be a tensor of B x C x H x W, B at least 1")
    if not images.is_floating_point():
        raise VitinitError(f"images must be normalised as in training, and {images.dtype} has whole numbers alone")

    def chosen(count: int) -> Tensor:
        if len(images) > count:
            numbers = torch.randperm(len(images), generator=stream(seed, "init/images"))[:count]
        else:  # all, and all equally often: what is measured on them is what it is on the batch
            numbers = torch.arange(len(images)).repeat(math.ceil(count / len(images)))
        chosen_BCHW = images[numbers].to(next(model.parameters()))
        if not chosen_BCHW.min() < chosen_BCHW.max():
            raise VitinitError("images are one number everywhere, or NaN: give images that differ")
        try:
            with torch.no_grad(), evaluated(model):
                model(chosen_BCHW[:1])
        except Exception as error:  # code of anyone's
            size = " x ".join(map(str, images.shape[1:]))
            raise VitinitError(f"{type(model).__name__} does not take images of {size}: {error}") from None
        return chosen_BCHW

    return chosen


def _set_layer_scales(model: nn.Module, value: float) -> None:
    import torch

    from vitinit.initializers.adapters import layer_scales

    most = torch.finfo(torch.float32).max
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(value) <= most:
        raise VitinitError(f"layer_scale must be a finite number of at most {most:g}, not {brief(value)}")
    scales = layer_scales(model)
    if not scales:
        raise VitinitError(f"layer_scale: {type(model).__name__} has no layer scale that an adapter knows")
    for scale in scales:
        scale.detach().fill_(float(value))
