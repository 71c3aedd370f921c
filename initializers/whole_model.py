"""Traversal that the bases share: it visits every parameter of a model once, and knows the role of each Linear."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.adapter import Attention, Normal, Part, Rule, found
from vitinit.initializers.adapters import Family, families, kind_of, layer_scales
from vitinit.initializers.attention import (
    ATTENTION,
    HEADS,
    HELP,
    PROJ,
    AttentionLayer,
    as_mlp,
    guessed,
    linears_beside,
)
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job


def draw_uniform_(tensor: Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill with U(-bound, bound), drawn where the generator lives, so that every device gets the same numbers."""
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator))


def draw_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2)."""
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32).normal_(0.0, std, generator=generator))


def draw_trunc_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2) cut at the absolute bounds -2 and 2, as timm and PyTorch do by default.

    At std 0.02 the cut is at 100 standard deviations: a plain normal in effect.
    """
    fresh = torch.empty(tensor.shape, dtype=torch.float32)
    tensor.copy_(nn.init.trunc_normal_(fresh, std=std, generator=generator))


def pytorch_default_(module: Convolution, generator: torch.Generator) -> None:
    """PyTorch's own default of convolutions: weight and bias both U(+-1/sqrt(fan_in)).

    `kaiming_uniform_(a=sqrt(5))` in torch.nn comes to exactly this bound.
    """
    bound = 1 / math.sqrt(module.weight[0].numel())
    draw_uniform_(module.weight, bound, generator)
    if module.bias is not None:
        draw_uniform_(module.bias, bound, generator)


Draw = Callable[[torch.Generator], object]
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
FIRST: dict[Rule, str] = {"class_token": "cls_token", "position": "pos_embed"}
"""Tensors that are drawn before all others: the rule, and the name in timm."""
REST = 2
TIMM: dict[str, Rule] = {"pos_embed": "position", "cls_token": "class_token"}
"""In a model that no adapter knows."""
NORM = {"weight": 1.0, "gamma": 1.0, "g": 1.0, "scale": 1.0, "bias": 0.0, "beta": 0.0}
"""By the names that the parameters of norms have."""
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.RMSNorm)


Role = Literal["qkv", "proj", "mlp_in", "mlp_out", "head", "pre_head", "other"]
"""Role of a Linear. In attention: W_q, W_k and W_v, in one Linear or in several, and W_proj. In an MLP: all but its
last, and that one. The classifier, and the Linear `pre_logits` before it."""


@dataclass(frozen=True)
class Place:
    """A Linear's."""

    role: Role = "other"
    matrices: int = 1
    """In the rows of its weight: 3 where W_q, W_k and W_v are in one."""
    heads: int = 1
    """In the rows of each of these matrices."""
    rows: tuple[int, ...] = ()
    """Rows of each of them; empty where all have as many."""
    by_head: bool = False
    """True where rows go by head: those of the first head in all matrices, then those of the second, and so on."""


BY_NAME = "vitinit_by_name"
"""Attribute of a model that a grid has by its name: what no rule covers stays as its library builds it."""
HEAD = re.compile(r"(\w+_)?heads?(_dist)?|.*classifier")
"""The name of a module that is a classifier, or holds one; `multi_head_attn` does not."""
MLP = re.compile(r"\.mlp[^.]*\.fc(\d)")
"""Linears of the MLP in a block without attention that methods set, such as a Mixer's."""


def places(model: nn.Module) -> dict[str, Place]:
    """Return the role of every Linear, by its name; the same where the model is a part of another."""
    known, heads, found = families(model), set(classifiers(model).values()), dict[str, Place]()
    mixing = {name for family in known for name in family.adapter.token_mixing}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            found.setdefault(name, Place("head" if name in heads else _in_mlp(name, mixing)))
        kind = kind_of(module)
        if not isinstance(kind, Attention):  # no method sets it, and a base sets it as it does the others
            found |= _guessed_places(model, name, module)
        if isinstance(kind, Attention):
            home = name.rpartition(".")[0]
            layer = AttentionLayer(name, module, kind, model.get_submodule(home) if home else None)
            for part in ("query", "key", "value"):
                for tensor in layer.names_of(part):
                    found[tensor.removesuffix(".weight")] = Place("qkv", getattr(kind, part).of, layer.heads)
            found |= {tensor.removesuffix(".weight"): Place("proj") for tensor in layer.names_of("proj")}
            found |= _of_mlp(layer.mlp)
    before = [name for name in found if name.rpartition(".")[2] == "pre_logits"]
    return found | dict.fromkeys(before, Place("pre_head"))


def _guessed_places(model: nn.Module, name: str, module: nn.Module) -> dict[str, Place]:
    """Places of attention that methods do not set, and of the MLP in its block."""
    parts, dot = guessed(module), f"{name}." if name else ""
    children = {one: part for one, part in module.named_children() if isinstance(part, nn.Linear | nn.Conv2d)}
    like = bool(parts) or bool(ATTENTION.search(type(module).__name__))
    proj = next((one for one in PROJ if like and one in children), None)
    placed = {f"{dot}{proj}": Place("proj")} if proj else {}
    if not parts:
        return placed
    for part in (parts[one] for one in ("query", "key", "value")):
        linear = part.weight.removesuffix(".weight")
        weights = children[linear].weight.unflatten(0, (part.of, -1))
        by_head = part.of == 3 and bool(vars(module).get("head_first"))
        placed[f"{dot}{linear}"] = Place("qkv", part.of, _heads(module, list(weights)), by_head=by_head)
    home, width = name.rpartition(".")[0], children[parts["query"].weight.removesuffix(".weight")].weight.shape[1]
    beside = linears_beside(name, module, model.get_submodule(home) if home else None)
    return {**_of_mlp(as_mlp(beside, width)), **placed}


def _of_mlp(linears: Iterable[str]) -> dict[str, Place]:
    """The places of the Linears of an MLP, in their order; none where there is none."""
    *inner, last = linears or ["", ""]
    return {**dict.fromkeys(inner, Place("mlp_in")), last: Place("mlp_out")} if last else {}


def classifiers(model: nn.Module) -> dict[str, str]:
    """Each module that is called a head, from the model of a known family on, with the last Linear in it."""
    paths = [f"{family.path}." for family in families(model) if family.path]
    last: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            home = next((path for path in paths if name.startswith(path)), "")
            parts = name.removeprefix(home).split(".")
            depth = next((depth for depth, part in enumerate(parts, 1) if HEAD.fullmatch(part)), None)
            if depth and not _repeated(model, home, parts[: depth - 1]):
                path = home + ".".join(parts[:depth])
                if isinstance(model.get_submodule(path), nn.ModuleList):  # of several heads
                    path += f".{parts[depth]}"
                last[path] = name
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    called_fc = {f"{home}fc" for home in ["", *paths]} & set(linears[-1:])  # as in torchvision's other models
    return last or {name: name for name in called_fc}


def _repeated(model: nn.Module, home: str, parts: list[str]) -> bool:
    """Return True where a path goes through one of several like modules side by side, as blocks are."""
    for depth, part in enumerate(parts):
        beside = model.get_submodule(".".join([*home.split(".")[:-1], *parts[:depth]]))
        kind = type(beside.get_submodule(part))
        if part.isdigit() and sum(type(child) is kind for child in beside.children()) > 1:
            return True
    return False


def _in_mlp(name: str, mixing: set[str]) -> Role:
    """Return the role of a Linear beside attention. One that mixes tokens alone is the last of its branch."""
    if name.rpartition(".")[2] in mixing:
        return "mlp_out"
    mlp = MLP.search(name)
    return "other" if not mlp else "mlp_out" if mlp[1] == "2" else "mlp_in"


def _rule(name: str, known: list[Family]) -> Rule | None:
    """Return the rule of a parameter in a model; None where there is none."""
    rule: Rule | None = TIMM.get(name.rpartition(".")[2])
    for family in known:
        inside = name.removeprefix(f"{family.path}.") if family.path else name
        if not family.path or inside != name:
            rule = family.adapter.rule(inside)
    return rule


def _rule_of(name: str, parameter: Tensor, module: nn.Module, known: list[Family]) -> Rule | None:
    """Return the rule of a parameter of a model, by its name or by the norm that it is in."""
    rule = _rule(name, known)
    if rule is None and "norm" in type(module).__name__.lower() and parameter.ndim == 1:  # of all libraries
        rule = NORM.get(name.rpartition(".")[2])
    return rule


class WholeModel(Initializer):
    """A base. Norms get weight 1 and bias 0, weights are set matrix by matrix, biases are 0, gates 1.

    A convolution counts as the Linear from all that it sees at once to its output channels.
    """

    kind: ClassVar[Literal["base", "method"]] = "base"
    touches: ClassVar[tuple[str, ...]] = ("*",)

    @abstractmethod
    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Set a weight, or one matrix of those in its rows: outputs x inputs."""

    def matrices(self, place: Place) -> int:
        """Return the number of matrices that the rows of a weight are taken as: by default those that they are."""
        return place.matrices

    def joins(self) -> bool:
        """Return True where W_q, W_k and W_v of unknown attention are drawn as one matrix: by `matrices`."""
        return self.matrices(Place("qkv", 3)) == 1

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: torch.Generator) -> None:
        """Set a bias."""
        bias_O.zero_()

    def convolution(self, module: Convolution, place: Place, generator: torch.Generator) -> None:
        """Set weight and bias of one convolution, as of a Linear."""
        weight_OI = torch.empty(len(module.weight), module.weight[0].numel())
        self._rows(weight_OI, place, generator)
        module.weight.copy_(weight_OI.view(module.weight.shape))
        if module.bias is not None:
            self.bias(module.bias, weight_OI.shape[1], place, generator)

    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set a learned position embedding (`pos_embed`) to N(0, 0.02^2), a class token (`cls_token`) to 0."""
        if name == "pos_embed":
            draw_normal_(parameter, 0.02, generator)
        else:
            parameter.zero_()

    def probe(self, parameter: Tensor, generator: torch.Generator) -> None:
        """Set the learned tokens by which a pooling head looks at the others: N(0, 1/D)."""
        draw_normal_(parameter, parameter.shape[-1] ** -0.5, generator)

    def check(self, model: nn.Module) -> None:
        """Refuse a model with a parameter that no rule covers."""
        self.without_rule(model)

    def without_rule(self, model: nn.Module) -> list[str]:
        """Return the parameters that are left as they were built: of a model by name, those that no rule covers.

        Raises:
            VitinitError: there are such parameters, and the model is no model by name.
        """
        left: list[str] = []
        for _ in self._draws(model, left):
            pass
        return left

    def notes(self, model: nn.Module) -> list[str]:
        """Name position embeddings that are fixed."""
        known = families(model)
        learned = [name for name, _ in model.named_parameters() if _rule(name, known) == "position"]
        fixed = [name for name in learned if not model.get_parameter(name).requires_grad]
        return [f"fixed positions (requires_grad is False) are left as they are: {', '.join(fixed)}"] if fixed else []

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Set every parameter but position embeddings that are fixed, at one seed to the same numbers in every library.

        Class token and position embedding are drawn first, then the rest in the order of the modules; W_q, W_k and W_v
        as one matrix, whether they are one or three.

        Raises:
            VitinitError: the model has a parameter that no rule covers.
        """
        for _, draw in sorted(self._draws(model, []), key=lambda draw: draw[0]):
            draw(generator)

    def _draws(self, model: nn.Module, left: list[str]) -> Iterator[tuple[int, Draw]]:
        """Each with its place in the order; `left` takes the names of parameters that stay as they were built."""
        by_name = bool(getattr(model, BY_NAME, False))
        known, done, at = families(model), set[int](), places(model)
        scaling = {id(parameter) for parameter in layer_scales(model)}
        first = next((one for one in model.modules() if isinstance(one, nn.Conv2d)), None)
        width = first.out_channels if first else 0
        for path, module in model.named_modules():
            kind = kind_of(module)
            unknown = guessed(module) if self.joins() else {}
            parts = apart(module, kind if isinstance(kind, Attention) else unknown)
            if parts:
                done |= {id(found(module, name)) for part in parts for name in (part.weight, part.bias)}
                yield REST, partial(self._joined, module, parts)
            every = dict(module.named_parameters(recurse=False))
            own = {name: parameter for name, parameter in every.items() if id(parameter) not in done}
            # another module has these too, and has set them; scales are not set
            kept = [one for one in every.values() if id(one) in done or id(one) in scaling]
            done |= {id(parameter) for parameter in own.values()}
            draw: Draw | None = None
            if isinstance(module, nn.Linear):
                draw = partial(self._linear, module, at[path])
            elif isinstance(module, Convolution):
                place = at.get(path, Place())
                draw = partial(self.convolution, module, place if place.role == "qkv" else Place())
            elif isinstance(module, NORMS):
                draw = partial(_reset_, module)
            if draw and own:
                yield REST, _keeping(kept, draw)
            for name, parameter in own.items():
                if draw and name in ("weight", "bias"):
                    continue
                full = f"{path}.{name}" if path else name
                rule = _rule_of(full, parameter, module, known)
                if rule is None and by_name:
                    left.append(full)
                elif rule is None:
                    raise VitinitError(f"base {self.name!r} has no rule for the parameter {full!r}; {HELP}")
                else:
                    yield self._single(rule, parameter, width)

    def _single(self, rule: Rule, parameter: nn.Parameter, width: int) -> tuple[int, Draw]:
        """A parameter of no Linear, convolution or norm, or one that these do not have."""
        if rule in ("layer_scale", "keep") or (rule == "position" and not parameter.requires_grad):
            return REST, lambda _: None
        if rule in FIRST:
            called, value = FIRST[rule], parameter.data
            if value.ndim == 4 and value.shape[-1] != width == value.shape[1]:  # as a picture: 1 x D x H x W
                value = value.movedim(1, -1)
            return list(FIRST).index(rule), lambda generator: self.embedding(called, value, generator)
        if rule == "probe":
            return REST, lambda generator: self.probe(parameter, generator)
        if isinstance(rule, Normal):
            std = parameter.shape[-1] ** -0.5 if rule.std is None else rule.std
            return REST, lambda generator: draw_normal_(parameter, std, generator)
        number = float(rule)
        return REST, lambda _: parameter.fill_(number)

    def _linear(self, module: nn.Linear, place: Place, generator: torch.Generator) -> None:
        """Set every matrix, then the bias."""
        self._rows(module.weight, place, generator)
        if module.bias is not None:
            self.bias(module.bias, module.in_features, place, generator)

    def _rows(self, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        count = self.matrices(place)
        by_head = place.by_head and count > 1
        shape = (place.heads, place.matrices, -1)
        joined = weight.unflatten(0, shape).transpose(0, 1).flatten(0, 2) if by_head else weight
        wholes = joined.split(place.rows) if place.rows and count % place.matrices == 0 else (joined,)
        for whole in wholes:
            for weight_OI in whole.unflatten(0, (count // len(wholes), -1)):
                self.matrix(weight_OI, place, generator)
        if by_head:
            weight.copy_(joined.view(place.matrices, place.heads, -1, weight.shape[1]).transpose(0, 1).flatten(0, 2))

    def _joined(self, module: nn.Module, parts: list[Part], generator: torch.Generator) -> None:
        """Set W_q, W_k and W_v as one Linear has them."""
        kind = kind_of(module)
        weights, biases = [], []
        for part in parts:
            held = found(module, part.weight), found(module, part.bias)
            weights.append(held[0].unflatten(0, (part.of, -1))[part.index])
            shared = held[1] is not None and len(held[1]) == len(held[0])
            biases.append(held[1].unflatten(0, (part.of, -1))[part.index] if shared else held[1])
        heads = found(module, kind.heads) if isinstance(kind, Attention) else _heads(module, weights)
        rows, biased = [len(weight) for weight in weights], any(bias is not None for bias in biases)
        linear = nn.utils.skip_init(nn.Linear, weights[0].shape[1], sum(rows), bias=biased)
        unequal = tuple(rows) if len(set(rows)) > 1 else ()
        self._linear(linear, Place("qkv", len(parts), heads, unequal), generator)
        for weight, drawn in zip(weights, linear.weight.split(rows), strict=True):
            weight.copy_(drawn)
        for bias, drawn in zip(biases, linear.bias.split(rows) if biased else (), strict=False):
            if bias is not None:
                bias.copy_(drawn)


def _heads(module: nn.Module, weights: list[Tensor]) -> int:
    """Number of heads of attention that no adapter knows; 1 where it does not say, or the rows do not fit."""
    heads = next((count for one in HEADS if isinstance(count := vars(module).get(one), int) and count > 0), 1)
    return heads if all(len(weight) % heads == 0 for weight in weights) else 1


def _keeping(kept: list[nn.Parameter], draw: Draw) -> Draw:
    """A draw that leaves these parameters, which another module has too and has set, as they are."""

    def drawn(generator: torch.Generator) -> None:
        before = [parameter.clone() for parameter in kept]
        draw(generator)
        for parameter, value in zip(kept, before, strict=True):
            parameter.copy_(value)

    return drawn if kept else draw


def _reset_(norm: Any, _: torch.Generator) -> None:
    norm.reset_parameters()


def draw_xavier_uniform_(weight_OI: Tensor, generator: torch.Generator) -> None:
    """Fill with U(+-sqrt(6 / (inputs + outputs)))."""
    draw_uniform_(weight_OI, math.sqrt(6 / sum(weight_OI.shape)), generator)


def apart(module: nn.Module, kind: Attention | dict[str, Part]) -> list[Part]:
    """W_q, W_k and W_v where they are not the rows of one Linear with its bias; else none."""
    if not kind:
        return []
    parts = [kind.query, kind.key, kind.value] if isinstance(kind, Attention) else [kind[one] for one in JOINED]
    home, _, _ = parts[0].weight.rpartition(".")
    gated = isinstance(kind, Attention) and kind.gated
    if gated or (parts[0].of == 3 and home and parts[0].bias in ("", f"{home}.bias")):
        return []
    widths = {found(module, part.weight).shape[1] for part in parts}
    return parts if len(widths) == 1 else []


JOINED = ("query", "key", "value")
