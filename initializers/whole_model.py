"""Traversal that the bases share: it visits every parameter of a model once, and knows the role of each Linear."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from vitinit.initializers.adapter import Normal, Rule, resolve
from vitinit.initializers.adapters import families
from vitinit.initializers.attention import AttentionLayer, survey
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job
from vitinit.initializers.threads import one_thread

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def draw_uniform_(tensor: Tensor, bound: float, generator: Generator) -> None:
    """Fill with U(-bound, bound), drawn where the generator lives, so that every device gets the same numbers."""
    tensor.copy_(torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator))


def draw_normal_(tensor: Tensor, std: float, generator: Generator) -> None:
    """Fill with N(0, std^2); with 0, drawing nothing, where std is 0."""
    if not std:
        tensor.zero_()
        return
    tensor.copy_(torch.empty(tensor.shape).normal_(0.0, std, generator=generator))


def draw_trunc_normal_(tensor: Tensor, std: float, generator: Generator, cut: float = 2.0) -> None:
    """Fill with N(0, std^2) cut at the absolute bounds -2 and 2, as timm and PyTorch do by default.

    At std 0.02 the cut is at 100 standard deviations: a plain normal in effect.
    """
    tensor.copy_(nn.init.trunc_normal_(torch.empty(tensor.shape), std=std, a=-cut, b=cut, generator=generator))


def singular_vectors(rows: int, columns: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """U and V^T of a Gaussian matrix, float64: orthonormal, as many as the shorter side."""
    drawn = torch.empty(rows, columns).normal_(generator=generator).double()
    with one_thread():
        u, _, vh = torch.linalg.svd(drawn, full_matrices=False)
    return u, vh


def pytorch_default_(module: Convolution, generator: Generator) -> None:
    """PyTorch's own default of convolutions: weight and bias both U(+-1/sqrt(fan_in)).

    `kaiming_uniform_(a=sqrt(5))` in torch.nn comes to exactly this bound.
    """
    bound = 1 / math.sqrt(module.weight[0].numel())
    draw_uniform_(module.weight, bound, generator)
    if module.bias is not None:
        draw_uniform_(module.bias, bound, generator)


DEFAULT_RULES: dict[str, Rule] = {"pos_embed": "position", "cls_token": "class_token"}
"""Default where no adapter says otherwise."""
NORM = {"weight": 1.0, "gamma": 1.0, "g": 1.0, "scale": 1.0, "bias": 0.0, "beta": 0.0}
"""By the names that the parameters of norms have."""
NORMS = nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.RMSNorm

Role = Literal["qkv", "proj", "mlp_in", "mlp_out", "head", "other"]
"""Role of a Linear. In attention: W_q, W_k and W_v, in one Linear or in several, and W_proj. In an MLP: all but its
last, and that one. The classifier."""


@dataclass(frozen=True)
class Place:
    """Role and layout of one Linear."""

    role: Role = "other"
    matrices: int = 1
    """In the rows of its weight: 3 where W_q, W_k and W_v are in one."""
    heads: int = 1
    """In the rows of each of these matrices."""


BY_NAME = "vitinit_by_name"
"""Attribute of a model that a grid has by its name: what no rule covers stays as its library builds it."""
HEAD = re.compile(r"(?!.*(embed|\bstem).*\.fc$)((?!\d+\.)[^.]+\.)*?((\w+_)?heads?(_dist)?|[^.]*classifier|fc)(?=\.|$)")
"""The path of a module that is a classifier, or holds one, and is in no numbered block; `multi_head_attn` does not, and
a `fc` that embeds patches is none."""
MLP = re.compile(r"\.mlp[^.]*\.fc(\d)|\.linear_tokens$")
"""Linears of the MLP in a block without attention that methods set, such as a Mixer's; in ResMLP, of the one Linear
that mixes tokens."""


def places(model: nn.Module) -> dict[str, Place]:
    """Return the role of every Linear, by its name; the same where the model is a part of another.

    The Linears of attention that methods leave alone are Linears like others.
    """
    heads, roles = classifiers(model), dict[str, Place]()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            mlp = MLP.search(name)
            role: Role = "other" if mlp is None else "mlp_in" if mlp[1] == "1" else "mlp_out"
            roles[name] = Place("head" if name in heads else role)
    layers, pools, _ = survey(model)
    for layer in layers + pools:
        for part in ("query", "key", "value", "proj"):
            place = Place("proj") if part == "proj" else Place("qkv", getattr(layer.paths, part).of, layer.heads)
            roles |= {tensor.removesuffix(".weight"): place for tensor in layer.names_of(part)}
        *inner, last = layer.mlp or [""]
        roles |= {**dict.fromkeys(inner, Place("mlp_in")), last: Place("mlp_out")}
    return roles


def classifiers(model: nn.Module) -> set[str]:
    """Return the last Linear of each module that is called a head, from the model of a known family on."""
    homes = [family.inside for family in families(model)[::-1]]
    last = {}
    for name, module in model.named_modules():
        home = next(filter(name.startswith, homes), "")
        head = HEAD.match(name.removeprefix(home))
        if head and isinstance(module, nn.Linear):
            last[home + head[0]] = name
    return set(last.values())


def set_alike(model: nn.Module) -> list[str]:
    """Say how much of a convolutional model is in convolutions."""
    convolutions = [module.weight.numel() for module in model.modules() if isinstance(module, Convolution)]
    share = sum(convolutions) / max(1, sum(parameter.numel() for parameter in model.parameters()))
    if share < 0.5:
        return []
    return [f"{share:.0%} of the numbers are in convolutions, which kaiming_uniform and trunc_normal set alike"]


def _advice(model: nn.Module, unknown: Mapping[str, Tensor]) -> str:
    """Return the call that registers rules which leave or start these parameters as a library would."""
    rules = {}
    for name, parameter in unknown.items():
        *_, home, last = "", *name.split(".")
        pattern = name if "." not in name else f"*.{last}" if home.isdigit() else f"*{home}.{last}"
        named = pattern if last in NORM else last  # token_mixer.attention_biases is no token
        rules[pattern] = "'keep'"  # which is never wrong where the library has set it
        if re.search(r"layer_?scale|res_?scale|gamma|lambda|(^|\.)ls_?\d", pattern):
            rules[pattern] = "'layer_scale'"
        elif parameter.ndim > 1 and re.search(r"pos(?!t)", named) and not re.search(r"rel|bias", pattern):
            rules[pattern] = "'position'"
        elif parameter.ndim > 1 and re.search("token|class|cls|query|latent|probe|prompt", named):
            rules[pattern] = "vitinit.adapters.Normal(0.02)"
    cls, told = type(model), ", ".join(f"{pattern!r}: {rule}" for pattern, rule in rules.items())
    return (
        f"vitinit.adapters.register(vitinit.adapters.Adapter(name={cls.__name__!r}, "
        f"models=('{cls.__module__}.{cls.__qualname__}',), parameters={{{told}}}))"
    )


Rules = dict[str, tuple[nn.Parameter, Rule | Literal["matrix"] | None]]


def _rules(model: nn.Module) -> Rules:
    """Return every parameter by its name, each once, with its rule: by its name, or by the norm that it is in.

    W_q, W_k and W_v are left out, which a base sets as one matrix.
    """
    known, modules, left_out = families(model), dict(model.named_modules()), set[int]()
    for layer in _plain_layers(model).values():
        for part in layer.paths.qkv:
            left_out |= {id(resolve(layer.module, part.weight)), id(resolve(layer.module, part.bias))}
    rules = {}
    for name, parameter in model.named_parameters():
        if not parameter.numel() or id(parameter) in left_out:
            continue
        home, _, last = name.rpartition(".")
        module = modules[home]
        called_norm = parameter.ndim == 1 and "norm" in type(module).__name__.lower()
        of_norm = last in NORM and (called_norm or isinstance(module, NORMS))
        rule = DEFAULT_RULES.get(last, NORM[last] if of_norm else None)
        for family in reversed(known):  # what a wrapper says of a model inside comes last, and holds
            if name.startswith(family.inside):
                told = family.adapter.rule(name.removeprefix(family.inside), of_norm)
                rule = rule if told is None else told
        of_matrix = isinstance(module, nn.Linear | Convolution) and last in ("weight", "bias")
        rules[name] = parameter, "matrix" if of_matrix and rule != "layer_scale" else rule
    return rules


def layer_scales(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a model by which its family scales what a branch adds."""
    return [parameter for parameter, rule in _rules(model).values() if rule == "layer_scale"]


def _plain_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return attention without gates by its name."""
    return {layer.name: layer for layer in survey(model).layers if not layer.gated}


class WholeModel(Initializer):
    """A base. Norms get weight 1 and bias 0, weights are set matrix by matrix, biases are 0, gates 1.

    A convolution counts as the Linear from all that it sees at once to its output channels.
    """

    kind = "base"
    touches = ("*",)
    every_linear_alike: ClassVar[bool] = False
    """True where a Linear is drawn in one way, whatever it is for."""
    own_head: ClassVar[bool] = False
    """True where the classifier is drawn in a way of its own."""
    mlp_bias_std: ClassVar[float] = 0.0
    """Standard deviations, of a normal distribution; 0: the number 0."""
    class_token_std: ClassVar[float] = 0.0

    @abstractmethod
    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Set a weight, or one matrix of those in its rows: outputs x inputs."""

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: Generator) -> None:
        """Set a bias."""
        draw_normal_(bias_O, self.mlp_bias_std if place.role in ("mlp_in", "mlp_out") else 0.0, generator)

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """Set weight and bias of one convolution, as of a Linear; the bias is 0 already."""
        self.fill([module.weight], [module.bias], Place(), generator)

    def position(self, parameter: Tensor, generator: Generator) -> None:
        """Set a learned position embedding."""
        draw_normal_(parameter, 0.02, generator)

    def check(self, model: nn.Module) -> None:
        """Refuse a model with a parameter that no rule covers, or with attention whose matrices are not known."""
        unknown = {name: parameter for name, (parameter, rule) in _rules(model).items() if rule is None}
        if unknown and not getattr(model, BY_NAME, False):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise VitinitError(
                f"base {self.name!r} has no rule for the parameter {next(iter(unknown))!r}{more}; say how each starts: "
                f"{_advice(model, unknown)}"
            )
        attention = survey(model).unknown
        if attention and not self.every_linear_alike:
            raise VitinitError(
                f"base {self.name!r} sets W_q, W_k, W_v and W_proj as what they are (kaiming_uniform and trunc_normal "
                f"set every Linear alike): {attention[0]}"
            )

    def notes(self, model: nn.Module) -> list[str]:
        """Name fixed positions, an unknown MLP or classifier, and how much of the model is in convolutions."""
        fixed = [
            name
            for name, (parameter, rule) in _rules(model).items()
            if rule == "position" and not parameter.requires_grad
        ]
        alone = [layer.name for layer in survey(model).layers if not (layer.mlp or self.every_linear_alike)]
        remarks = []
        if fixed:
            remarks.append(f"fixed positions (requires_grad is False) are left as they are: {', '.join(fixed)}")
        if alone:
            remarks.append(f"no MLP is known beside attention {', '.join(alone)}: its Linears are set as any other")
        if self.own_head and places(model) and not classifiers(model):
            remarks.append(
                "a classifier, if there is one, starts as any other Linear (none is called head, classifier or fc)"
            )
        return remarks + set_alike(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Set every parameter but position embeddings that are fixed, at one seed to the same numbers in every library.

        Class token and position embedding are drawn first, then the rest in the order of the modules; W_q, W_k and W_v
        as one matrix, whether they are one or three.

        What no rule covers stays: `check` refuses it, but in a model that a grid has by its name.
        """
        roles, rules, layers = places(model), _rules(model), _plain_layers(model)
        for parameter, rule in rules.values():
            if rule == "class_token":
                draw_normal_(parameter, self.class_token_std, generator)
        for parameter, rule in rules.values():
            if rule == "position" and parameter.requires_grad:
                self.position(parameter, generator)
        for path, module in model.named_modules():
            names = {f"{path}.{name}".lstrip("."): name for name in module._parameters}
            own = {names[name]: rules[name] for name in names if name in rules}
            matrices = {name: parameter for name, (parameter, rule) in own.items() if rule == "matrix"}
            weight, bias = matrices.get("weight"), matrices.get("bias")
            if isinstance(module, nn.Linear) and not module.in_features and bias is not None:
                bias.zero_()
            elif isinstance(module, nn.Linear) and (weight is not None or bias is not None):
                drawn = torch.empty_like(module.weight) if weight is None else weight  # None: that of a Linear before
                self.fill([drawn], [bias], roles[path], generator)
            elif isinstance(module, Convolution) and weight is not None:
                if bias is not None:
                    bias.zero_()
                self.convolution(module, generator)
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.reset_running_stats()
            for parameter, rule in own.values():
                if isinstance(rule, Normal):
                    draw_normal_(parameter, rule.std, generator)
                elif isinstance(rule, float):
                    parameter.fill_(rule)
            if path in layers:
                layer = layers[path]
                qkv = layer.paths.qkv
                self.fill([*map(layer.weight, qkv)], [*map(layer.bias, qkv)], Place("qkv", 3, layer.heads), generator)

    def fill(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], place: Place, generator: Generator
    ) -> None:
        """Set weights as the rows of one, matrix by matrix, then their biases likewise.

        An attribute or parameter `qkv` selects what is drawn as one matrix: each of W_q, W_k and W_v (`per_matrix`, the
        default), each head of each (`per_head`), or all three together (`fused`).
        """
        counts = {"per_matrix": place.matrices, "per_head": place.matrices * place.heads, "fused": 1}
        rows, count = [len(weight) for weight in weights], counts[getattr(self, "qkv", "per_matrix")]
        drawn_OI = torch.empty(sum(rows), weights[0][0].numel())
        wholes = drawn_OI.split(rows) if count >= len(rows) else (drawn_OI,)
        for whole in wholes:
            for weight_OI in whole.unflatten(0, (count // len(wholes), -1)):
                self.matrix(weight_OI, place, generator)
        for weight, values in zip(weights, drawn_OI.split(rows), strict=True):
            weight.copy_(values.view(weight.shape))
        if any(bias is not None for bias in biases):
            drawn_O = torch.empty(sum(rows))
            self.bias(drawn_O, drawn_OI.shape[1], place, generator)
            for bias, values in zip(biases, drawn_O.split(rows), strict=True):
                if bias is not None:
                    bias.copy_(values)
