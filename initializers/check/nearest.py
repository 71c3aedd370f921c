"""The nearest named base of each group of tensors, by distribution and structure."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.initializers import registry
from vitinit.initializers.adapters.registry import layer_scales
from vitinit.initializers.attention import position_name
from vitinit.initializers.check.report import Group
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import stream
from vitinit.initializers.threads import one_thread
from vitinit.initializers.whole_model import NORMS, Place, WholeModel, classifiers, places

MOST = 1 << 14
"""Numbers of a tensor that are compared: differences of 5 % in scale are then seen."""
RARE = 1e-4
"""Probability below which two samples count as of different distributions."""
CLOSE = 0.02
"""Largest distance of a sample, however large, from a distribution by whose name it is still called: what a cut at two
or three standard deviations, or rounding to 16 bits, moves."""
LARGEST = 1 << 22
"""Elements of a matrix of which the structure is looked at."""
GROUPS = {
    "qkv": "attention",
    "proj": "attention",
    "mlp_in": "MLP",
    "mlp_out": "MLP",
    "head": "head",
    "pre_head": "head",
    "patches": "patch embedding",
    "convolution": "convolutions",
    "other": "other Linears",
    "position": "position embedding",
    "token": "class token",
    "norm": "norms",
}
POSITION = re.compile(r"(^|[._])pos(ition)?(al)?_?(emb|enc)", re.IGNORECASE)
TOKEN = re.compile(r"(^|\.)(cls_token|class_token|class_embedding)$")


@dataclass(frozen=True)
class Purpose:
    """Purpose of a tensor, and all that its distribution may depend on."""

    role: str
    place: Place
    shape: tuple[int, ...]
    bias: bool = False
    fan_in: int = 0
    """Fan-in of the weight that a bias belongs to."""
    groups: int = 1


def purposes(model: nn.Module) -> dict[str, Purpose]:
    """Return the purpose of each parameter of Linears, convolutions, norms, positions and class tokens, by name."""
    at, heads = places(model), set(classifiers(model).values())
    scales = {id(one) for one in layer_scales(model)}
    position = position_name(model)
    convolutions = [name for name, one in model.named_modules() if isinstance(one, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    found: dict[str, Purpose] = {}
    for path, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            name = f"{path}.{own}" if path else own
            shape, bias = tuple(parameter.shape), own.endswith("bias")
            place = at.get(path) or Place("head" if path in heads else "other")
            if id(parameter) in scales:
                continue
            if own.endswith("in_proj_weight") and name in at:
                found[name] = Purpose("qkv", at[name], shape)
            elif isinstance(module, nn.Linear):
                fan = module.in_features
                found[name] = Purpose(place.role, place, (*shape, fan) if bias else shape, bias, fan)
            elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
                role = "patches" if path == convolutions[0] else "convolution"
                if at.get(path) and at[path].role != "other":
                    role = at[path].role
                whole = tuple(module.weight.shape)
                found[name] = Purpose(role, place, whole, bias, module.weight[0].numel(), module.groups)
            elif name == position or POSITION.search(name):
                found[name] = Purpose("position", place, shape)
            elif TOKEN.search(name):
                found[name] = Purpose("token", place, shape)
            elif (isinstance(module, NORMS) or "norm" in type(module).__name__.lower()) and parameter.ndim == 1:
                found[name] = Purpose("norm", place, shape, bias)
    return found


@lru_cache(maxsize=1024)
def _drawn(cls: type[WholeModel], purpose: Purpose, seed: int) -> tuple[Tensor, str, Tensor | None]:
    """Return some numbers of a sample, its structure and, where the structure says more than they do, all of it."""
    drawn = sample(cls(), purpose, seed)
    form = structure(drawn, purpose.place.matrices if not purpose.bias else 1)
    return some(drawn), form, drawn.clone() if form in ("constant", "sparse") else None


@torch.no_grad()
def sample(base: WholeModel, purpose: Purpose, seed: int = 0) -> Tensor:
    """Draw what a base gives such a tensor."""
    generator = stream(seed, f"check/{base.name}")
    if purpose.role in ("position", "token"):
        drawn = torch.zeros(purpose.shape)
        base.embedding("pos_embed" if purpose.role == "position" else "cls_token", drawn, generator)
        return drawn
    if purpose.role in ("patches", "convolution") or len(purpose.shape) > 2 + purpose.bias:
        convolution = _convolution(purpose)
        base.convolution_at(
            Place(purpose.place.role if purpose.place.role == "qkv" else "other"), convolution, generator
        )
        return (convolution.bias if purpose.bias else convolution.weight).detach()
    rows, columns = (purpose.shape[0], purpose.fan_in) if purpose.bias else purpose.shape
    place, share = purpose.place, 1
    if purpose.role == "qkv" and place.matrices == 1:  # W_q, W_k or W_v alone: a base draws them as one matrix
        share, place = 3, Place("qkv", 3, place.heads)
    linear = nn.utils.skip_init(nn.Linear, columns, rows * share, bias=True).requires_grad_(False)
    base.linear_at(place, linear, generator)
    return (linear.bias if purpose.bias else linear.weight).detach()[:rows]


def _convolution(purpose: Purpose) -> Any:
    kinds: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
    outputs, inputs, *kernel = purpose.shape
    made = kinds[len(purpose.shape)](
        inputs * purpose.groups, outputs, tuple(kernel), stride=tuple(kernel), groups=purpose.groups
    )
    return made.requires_grad_(False)


def some(values: Tensor, most: int = MOST) -> Tensor:
    """Return up to so many of the numbers of a tensor, evenly spread over it."""
    flat = values.detach().flatten().float().cpu()
    if len(flat) <= most:
        return flat
    return flat[torch.linspace(0, len(flat) - 1, most, dtype=torch.float64).long()]


def kolmogorov_smirnov(left: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the two-sample statistic and its asymptotic probability under one distribution."""
    left, right = (one.sort().values for one in (left, right))
    both = torch.cat([left, right])
    shares = [torch.searchsorted(one, both, right=True).double() / len(one) for one in (left, right)]
    gap = float((shares[0] - shares[1]).abs().max())
    scaled = math.sqrt(len(left) * len(right) / (len(left) + len(right))) * gap
    return gap, kolmogorov_tail(scaled)


def kolmogorov_tail(scaled: float) -> float:
    """Return the probability that the Kolmogorov statistic is larger."""
    if scaled < 0.2:  # where the series converges slowly, and the answer is 1 to 12 digits
        return 1.0
    total = sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * total))


def structure(values: Tensor, matrices: int = 1) -> str:
    """Say in one word what kind of tensor it is: `zero`, `constant`, `sparse`, `orthogonal` or `dense`."""
    values = values.detach()
    few = some(values, 1 << 10)
    if not bool(few.any()) and not bool(values.any()):
        return "zero"
    if values.numel() > 1 and bool((few == few[0]).all()) and bool((values == values.flatten()[0]).all()):
        return "constant"
    if values.ndim < 2 or values.flatten(1).shape[1] < 2:
        return "dense"
    matrix = values.flatten(1).float()
    if (few != 0).float().mean() < 0.5:
        return "sparse"
    if matrix.numel() <= LARGEST and min(matrix.shape) > 1:
        parts = [matrix, *(matrix.chunk(matrices) if matrices > 1 and len(matrix) % matrices == 0 else ())]
        if _orthogonal(parts[0]) or (len(parts) > 1 and all(map(_orthogonal, parts[1:]))):
            return "orthogonal"
    return "dense"


def _orthogonal(matrix: Tensor) -> bool:
    """Return True where rows, or columns where these are fewer, are orthogonal and of one length."""
    matrix = matrix.T if len(matrix) > matrix.shape[1] else matrix
    few = matrix[:8] @ matrix.T  # of a random matrix already these are not
    if not _diagonal(few):
        return False
    return _diagonal(matrix @ matrix.T)


def _diagonal(gram: Tensor) -> bool:
    diagonal = gram.diagonal()
    off = gram.clone()
    off.diagonal().zero_()
    scale = diagonal.abs().max()
    return bool(off.abs().max() <= 1e-3 * scale) and bool((diagonal - diagonal.mean()).abs().max() <= 1e-3 * scale)


def looks(values: Tensor, form: str) -> str:
    """Describe a distribution: `normal, std 0.02`, `uniform within 0.05`, `all 0`."""
    if form == "zero":
        return "all 0"
    if form == "constant":
        return f"all {float(values.detach().flatten()[0]):.3g}"
    flat = some(values)
    if not bool(flat.isfinite().all()):
        return "not finite"
    std, mean = float(flat.std()) if len(flat) > 1 else 0.0, float(flat.mean())
    about = f"std {std:.3g}" + (f" about {mean:.3g}" if abs(mean) > 0.1 * std and len(flat) > 100 else "")
    if form != "dense":
        return f"{form}, {about}"
    if len(flat) < 64 or std == 0:
        return about
    standard = ((flat - mean) / std).double()
    gaps = {name: _gap(standard, cdf) for name, cdf in SHAPES.items()}
    name = min(gaps, key=lambda one: gaps[one])
    if gaps[name] > max(CLOSE, 2.2 / math.sqrt(len(flat))):
        return about
    return f"uniform within {std * math.sqrt(3):.3g}" if name == "uniform" else f"{name}, {about}"


def _gap(values: Tensor, cdf: Callable[[Tensor], Tensor]) -> float:
    """Return the one-sample statistic."""
    ordered = values.sort().values
    at = cdf(ordered)
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(torch.maximum((steps[1:] - at).abs().max(), (at - steps[:-1]).abs().max()))


def _normal(values: Tensor) -> Tensor:
    return torch.special.ndtr(values)


def _cut(values: Tensor) -> Tensor:
    """A normal that is cut at two standard deviations, in units of what is left of its standard deviation."""
    low, high = (float(torch.special.ndtr(torch.tensor(end, dtype=torch.float64))) for end in (-2.0, 2.0))
    return ((torch.special.ndtr((values * 0.87962566103423978).clamp(-2, 2)) - low) / (high - low)).clamp(0, 1)


def _uniform(values: Tensor) -> Tensor:
    return (values / math.sqrt(12) + 0.5).clamp(0, 1)


SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "normal cut at 2 std": _cut,
}
"""Distribution functions at mean 0 and standard deviation 1."""


def bases() -> dict[str, WholeModel]:
    """All bases that can be built without parameters, by name."""
    found: dict[str, WholeModel] = {}
    for name in registry.names("base"):
        try:
            base = registry.get(name)()
        except Exception:  # one that wants parameters, or a plug-in of anyone's
            continue
        if isinstance(base, WholeModel):
            found[name] = base
    return found


@torch.no_grad()
def nearest(tensors: dict[str, Tensor], known: dict[str, Purpose], seed: int = 0) -> tuple[Group, ...]:
    """Return the nearest base of each group of tensors, each group compared purpose by purpose.

    Tensors are finite; others are to be left out.
    """
    grouped: dict[str, dict[Purpose, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    for name, purpose in known.items():
        group = GROUPS[purpose.role]
        if purpose.bias:
            group = "biases"
        if purpose.role != "norm" and name in tensors:
            grouped[group][purpose].append(tensors[name])
    order = [*dict.fromkeys(GROUPS.values()), "biases"]
    candidates = bases()
    with one_thread():  # many small tensors
        return tuple(_group(name, grouped[name], candidates, seed) for name in order if grouped.get(name))


def _group(
    name: str,
    of: dict[Purpose, list[Tensor]],
    candidates: dict[str, WholeModel],
    seed: int,
) -> Group:
    values = {
        purpose: torch.cat([some(one, max(MOST // len(held), 64)) for one in held]) for purpose, held in of.items()
    }
    forms = {
        purpose: [structure(one, purpose.place.matrices if not purpose.bias else 1) for one in held]
        for purpose, held in of.items()
    }
    scores: dict[str, tuple[float, bool]] = {}
    for base_name, base in candidates.items():
        worst, fits = 0.0, True
        for purpose, held in of.items():
            try:
                few, form, whole = _drawn(type(base), purpose, seed)
            except (RuntimeError, ValueError, TypeError, VitinitError):  # it has no rule for such a shape
                worst, fits = 1.0, False
                break
            gap, likely = kolmogorov_smirnov(values[purpose], few)
            alike = all(one == form for one in forms[purpose])
            if not alike:
                fits = False
            elif whole is not None:
                fits &= all(torch.equal(one.detach().float().cpu(), whole) for one in held)
            else:
                fits &= likely >= RARE
            worst = max(worst, gap)
        scores[base_name] = worst, fits
    fitting = sorted((one for one in scores if scores[one][1]), key=lambda one: scores[one][0])
    ranked = sorted(scores, key=lambda one: (not scores[one][1], scores[one][0]))
    others = [scores[one][0] for one in scores if not scores[one][1]]
    described = list(dict.fromkeys(_described(of, forms, values)))
    return Group(
        name=name,
        tensors=sum(map(len, of.values())),
        bases=tuple(fitting),
        nearest=ranked[0] if ranked else "",
        distance=scores[ranked[0]][0] if ranked else 1.0,
        other=min(others, default=1.0),
        looks=", ".join(described[:3]) + (f" and {len(described) - 3} more" if len(described) > 3 else ""),
    )


def _described(
    of: dict[Purpose, list[Tensor]], forms: dict[Purpose, list[str]], values: dict[Purpose, Tensor]
) -> list[str]:
    found = []
    for purpose, held in of.items():
        kinds = dict.fromkeys(forms[purpose])
        for form in kinds:
            of_form = [one for one, kind in zip(held, forms[purpose], strict=True) if kind == form]
            whole = values[purpose] if len(kinds) == 1 and form == "dense" else of_form[0]
            found.append(looks(whole, form))
    return found
