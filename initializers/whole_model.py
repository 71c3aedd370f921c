"""Traversal that the bases share: it visits every parameter of a model once, and knows the role of each Linear."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.adapter import Normal, Rule, found
from vitinit.initializers.adapters import Family, families, layer_scales
from vitinit.initializers.attention import HELP, AttentionLayer, survey
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job
from vitinit.initializers.threads import one_thread


def draw_uniform_(tensor: Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill with U(-bound, bound), drawn where the generator lives, so that every device gets the same numbers."""
    tensor.copy_(torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator))


def draw_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2)."""
    tensor.copy_(torch.empty(tensor.shape).normal_(0.0, std, generator=generator))


def draw_trunc_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2) cut at the absolute bounds -2 and 2, as timm and PyTorch do by default.

    At std 0.02 the cut is at 100 standard deviations: a plain normal in effect.
    """
    tensor.copy_(nn.init.trunc_normal_(torch.empty(tensor.shape), std=std, generator=generator))


def singular_vectors(rows: int, columns: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """U and V^T of a Gaussian matrix, float64: orthonormal, as many as the shorter side."""
    drawn = torch.empty(rows, columns).normal_(generator=generator)
    with one_thread():
        u, _, vh = torch.linalg.svd(drawn.double(), full_matrices=False)
    return u, vh


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
REST = len(FIRST)
TIMM: dict[str, Rule] = {"pos_embed": "position", "cls_token": "class_token"}
"""In a model that no adapter knows."""
NORM = {"weight": 1.0, "gamma": 1.0, "g": 1.0, "scale": 1.0, "bias": 0.0, "beta": 0.0}
"""By the names that the parameters of norms have."""
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.RMSNorm)


Role = Literal["qkv", "proj", "mlp_in", "mlp_out", "head", "other"]
"""Role of a Linear. In attention: W_q, W_k and W_v, in one Linear or in several, and W_proj. In an MLP: all but its
last, and that one. The classifier."""


@dataclass(frozen=True)
class Place:
    """A Linear's."""

    role: Role = "other"
    matrices: int = 1
    """In the rows of its weight: 3 where W_q, W_k and W_v are in one."""
    heads: int = 1
    """In the rows of each of these matrices."""


BY_NAME = "vitinit_by_name"
"""Attribute of a model that a grid has by its name: what no rule covers stays as its library builds it."""
HEAD = re.compile(r"((?!\d+\.)[^.]+\.)*?((\w+_)?heads?(_dist)?|[^.]*classifier|fc)(?=\.|$)")
"""The path of a module that is a classifier, or holds one, and is in no numbered block; `multi_head_attn` does not."""
MLP = re.compile(r"\.mlp[^.]*\.fc(\d)|\.linear_tokens$")
"""Linears of the MLP in a block without attention that methods set, such as a Mixer's; in ResMLP, of the one Linear
that mixes tokens."""


def places(model: nn.Module) -> dict[str, Place]:
    """Return the role of every Linear, by its name; the same where the model is a part of another.

    The Linears of attention that methods leave alone are Linears like others.
    """
    heads, found = classifiers(model), dict[str, Place]()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            mlp = MLP.search(name)
            role: Role = "other" if mlp is None else "mlp_in" if mlp[1] == "1" else "mlp_out"
            found[name] = Place("head" if name in heads else role)
    for layer in survey(model)[0]:
        for part in ("query", "key", "value", "proj"):
            place = Place("proj") if part == "proj" else Place("qkv", getattr(layer.kind, part).of, layer.heads)
            found |= {tensor.removesuffix(".weight"): place for tensor in layer.names_of(part)}
        *inner, last = layer.mlp or [""]
        found |= {**dict.fromkeys(inner, Place("mlp_in")), last: Place("mlp_out")}
    return found


def classifiers(model: nn.Module) -> set[str]:
    """Return the last Linear of each module that is called a head, from the model of a known family on."""
    homes = [f"{family.path}." for family in families(model) if family.path]
    last: dict[str, str] = {}
    for name, module in model.named_modules():
        home = next((path for path in homes if name.startswith(path)), "")
        head = HEAD.match(name.removeprefix(home))
        if head and isinstance(module, nn.Linear):
            last[home + head[0]] = name
    return set(last.values())


def _rule_of(name: str, parameter: Tensor, module: nn.Module, known: list[Family]) -> Rule | None:
    """Return the rule of a parameter in a model, by its name or by the norm that it is in; None where there is none."""
    last = name.rpartition(".")[2]
    rule: Rule | None = TIMM.get(last)
    for family in known:
        if name.startswith(f"{family.path}.") or not family.path:
            rule = family.adapter.rule(name.removeprefix(f"{family.path}."))
    of_norm = isinstance(module, NORMS) or (parameter.ndim == 1 and "norm" in type(module).__name__.lower())
    return NORM.get(last) if rule is None and of_norm else rule


class WholeModel(Initializer):
    """A base. Norms get weight 1 and bias 0, weights are set matrix by matrix, biases are 0, gates 1.

    A convolution counts as the Linear from all that it sees at once to its output channels.
    """

    kind: ClassVar[Literal["base", "method"]] = "base"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    every_linear_alike: ClassVar[bool] = False
    """True where a Linear is drawn in one way, whatever it is for."""

    @abstractmethod
    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Set a weight, or one matrix of those in its rows: outputs x inputs."""

    def matrices(self, place: Place) -> int:
        """Return the number of matrices that the rows of a weight are taken as: by default those that they are."""
        return place.matrices

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: torch.Generator) -> None:
        """Set a bias."""
        bias_O.zero_()

    def convolution(self, module: Convolution, generator: torch.Generator) -> None:
        """Set weight and bias of one convolution, as of a Linear."""
        weight_OI = torch.empty(len(module.weight), module.weight[0].numel())
        self.fill(weight_OI, module.bias, [len(weight_OI)], Place(), generator)
        module.weight.copy_(weight_OI.view(module.weight.shape))

    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set a learned position embedding (`pos_embed`) to N(0, 0.02^2), a class token (`cls_token`) to 0."""
        if name == "pos_embed":
            draw_normal_(parameter, 0.02, generator)
        else:
            parameter.zero_()

    def check(self, model: nn.Module) -> None:
        """Refuse a model with a parameter that no rule covers, or with attention whose matrices are not known."""
        list(self._draws(model))
        for unknown in () if self.every_linear_alike else survey(model)[1]:
            raise VitinitError(
                f"base {self.name!r} sets W_q, W_k, W_v and W_proj as what they are (kaiming_uniform and trunc_normal "
                f"set every Linear alike): {unknown}"
            )

    def notes(self, model: nn.Module) -> list[str]:
        """Name position embeddings that are fixed, and say how much of a convolutional model is in convolutions."""
        known, remarks = families(model), []
        fixed = [
            name
            for name, parameter in model.named_parameters()
            if not parameter.requires_grad and _rule_of(name, parameter, model, known) == "position"
        ]
        if fixed:
            remarks.append(f"fixed positions (requires_grad is False) are left as they are: {', '.join(fixed)}")
        convolutions = [module.weight.numel() for module in model.modules() if isinstance(module, Convolution)]
        share = sum(convolutions) / sum(parameter.numel() for parameter in model.parameters())
        if share > 0.5:
            remarks.append(
                f"{share:.0%} of the numbers are in convolutions, which kaiming_uniform and trunc_normal set alike"
            )
        return remarks

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Set every parameter but position embeddings that are fixed, at one seed to the same numbers in every library.

        Class token and position embedding are drawn first, then the rest in the order of the modules; W_q, W_k and W_v
        as one matrix, whether they are one or three.

        Raises:
            VitinitError: the model has a parameter that no rule covers.
        """
        for _, draw in sorted(self._draws(model), key=lambda draw: draw[0]):
            draw(generator)

    def _draws(self, model: nn.Module) -> Iterator[tuple[int, Draw]]:
        """Each with its place in the order. What no rule covers stays in a model by name, and is refused in others."""
        known, at = families(model), places(model)
        layers = {layer.name: layer for layer in survey(model)[0] if not layer.gated}
        done = {id(parameter) for parameter in layer_scales(model)}
        for path, module in model.named_modules():
            layer = layers.get(path)
            if layer:
                done |= {id(found(module, name)) for part in layer.kind.qkv for name in (part.weight, part.bias)}
            own = {name: one for name, one in module.named_parameters(recurse=False) if id(one) not in done}
            done |= {id(parameter) for parameter in own.values()}
            if isinstance(module, nn.Linear) and own:
                place, tied = at[path], torch.empty_like(module.weight)
                rows = [module.out_features // place.matrices] * place.matrices
                yield REST, partial(self.fill, own.pop("weight", tied), own.pop("bias", None), rows, place)
            elif isinstance(module, Convolution) and "weight" in own:
                yield REST, partial(self.convolution, module)
                own = {name: one for name, one in own.items() if name not in ("weight", "bias")}
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                yield REST, partial(lambda norm, _: norm.reset_running_stats(), module)
            for name, parameter in own.items():
                full = f"{path}.{name}".lstrip(".")
                rule = _rule_of(full, parameter, module, known)
                if rule is None and not getattr(model, BY_NAME, False):
                    raise VitinitError(
                        f"base {self.name!r} has no rule for the parameter {full!r}; {HELP}, with `parameters` that "
                        f"say how it starts, as {{'*{name}': 0.0}}"
                    )
                if rule in FIRST and (parameter.requires_grad or rule != "position"):
                    yield list(FIRST).index(rule), partial(self.embedding, FIRST[rule], parameter)
                elif isinstance(rule, Normal):
                    yield REST, partial(draw_normal_, parameter, rule.std)
                elif isinstance(rule, float):
                    yield REST, partial(lambda one, number, _: one.fill_(number), parameter, rule)
            if layer:
                yield REST, partial(self._joined, layer)

    def fill(
        self, weight: Tensor, bias: Tensor | None, rows: list[int], place: Place, generator: torch.Generator
    ) -> None:
        """Set every matrix of a weight that has so many rows of each, then the bias."""
        count = self.matrices(place)
        wholes = weight.split(rows) if count >= len(rows) else (weight,)
        for whole in wholes:
            for weight_OI in whole.unflatten(0, (count // len(wholes), -1)):
                self.matrix(weight_OI, place, generator)
        if bias is not None:
            self.bias(bias, weight.shape[1], place, generator)

    def _joined(self, layer: AttentionLayer, generator: torch.Generator) -> None:
        """Set W_q, W_k and W_v as one Linear has them."""
        parts = layer.kind.qkv
        weights, biases = [layer.weight(part) for part in parts], [layer.bias(part) for part in parts]
        rows = [len(weight) for weight in weights]
        weight = torch.empty(sum(rows), weights[0].shape[1])
        bias = torch.empty(sum(rows)) if any(one is not None for one in biases) else None
        self.fill(weight, bias, rows, Place("qkv", 3, layer.heads), generator)
        drawn = [*weight.split(rows), *(bias.split(rows) if bias is not None else ())]
        for held, values in zip((*weights, *biases), drawn, strict=False):
            if held is not None:
                held.copy_(values)


def draw_xavier_uniform_(weight: Tensor, generator: torch.Generator) -> None:
    """Fill with U(+-sqrt(6 / (inputs + outputs))), a convolution's as a Linear's."""
    draw_uniform_(weight, math.sqrt(6 / (len(weight) + weight[0].numel())), generator)
