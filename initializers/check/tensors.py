"""Warnings that the values of parameters and buffers alone give: before any image is seen."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from vitinit.initializers.adapters.registry import layer_scales
from vitinit.initializers.check.nearest import Purpose, kolmogorov_smirnov, some, structure
from vitinit.initializers.check.report import Finding
from vitinit.initializers.whole_model import NORMS

SINUSOIDAL = 0.5**0.5
"""Root mean square of a fixed sin-cos embedding, the largest position embedding of any published start."""
POSITION = 1.1 * SINUSOIDAL
OUTLIER = 20.0
"""Standard deviations. Of 10^9 normal numbers the largest is at 6.1, of uniform ones at 1.7."""
BOUND = 2.0
"""Bound of `trunc_normal_` by default."""
TINY = 1e-30
"""Below it a number is what unused memory holds, not what anybody draws: the smallest start of any library is 1e-6."""
FACTOR = 1.5
"""Scale by depth, as timm's BEiT and GPT-2 have it, changes from one layer to the next by up to sqrt(2)."""
UNLIKELY = 1e-6
EPS = 1e-3
"""Epsilon of a norm. PyTorch's is 1e-5, JAX's 1e-6, BatchNorm's in some libraries 1e-3."""

SYMMETRY = "outputs that start equal get equal gradients (Goodfellow, Bengio, Courville: Deep Learning, 8.4)"
RESET = "call its reset_parameters(), or vitinit.initialize(model, base='trunc_normal')"
PYTORCH = "PyTorch: torch.empty and Module.to_empty leave memory as it is; dinov2 PR 476"
ZERO = "a path through two zero matrices gets no gradient; one zero matrix at its end is usual (arXiv 1706.02677, 5.1)"


def tensor_findings(model: nn.Module, known: dict[str, Purpose]) -> Iterator[Finding]:
    """Yield what is wrong with single tensors, then with those that differ from their neighbours in depth."""
    ill = set[str]()
    named = {name: one.detach() for name, one in (*model.named_parameters(), *model.named_buffers())}
    parameters = dict(model.named_parameters())
    for name, value in named.items():
        if finding := _values(name, value, known.get(name), name in parameters):
            ill.add(name)
            yield finding
    yield from _eps(model)
    for name, purpose in known.items():
        if purpose.role == "position" and name not in ill and not purpose.bias:
            size = float(named[name].float().square().mean().sqrt())
            if size > POSITION:
                ill.add(name)
                yield Finding(
                    "position-too-large",
                    name,
                    f"root mean square {size:.3g}, above {POSITION:.2g}: positions may drown the patches",
                    "nn.init.trunc_normal_(positions, std=0.02), as timm, torchvision and Hugging Face have it",
                    "sin-cos positions have sqrt(1/2), the most of any published start; lucidrains/vit-pytorch 12, 152",
                )
    yield from _odd_ones(named, known, ill)


def _values(name: str, value: Tensor, purpose: Purpose | None, parameter: bool) -> Finding | None:
    if not value.is_floating_point() or not value.numel():
        return None
    if not bool(torch.isfinite(value.sum())) and (bad := int((~value.isfinite()).sum())):
        # buffers may hold -inf as a mask
        if not parameter and not bool(value.isnan().any()):
            return None
        return Finding("not-finite", name, f"{bad:,} of {value.numel():,} numbers are NaN or infinite", RESET, PYTORCH)
    if not parameter:
        return None
    largest = float(value.abs().max())
    if 0 < largest < TINY or largest > 1e6:
        return Finding(
            "uninitialised",
            name,
            f"its numbers are up to {largest:.3g}, as those of memory that nobody has set",
            RESET,
            PYTORCH,
        )
    if value.ndim < 2 or value.shape[0] == 1 or value[0].numel() < 2 or (purpose and purpose.role == "position"):
        return None
    matrix = value.flatten(1)
    form = structure(value) if min(matrix.shape) > 1 else "dense"
    if form == "constant":
        return Finding("constant", name, f"all its numbers are {largest:.3g}", RESET, SYMMETRY)
    if purpose is None or purpose.bias:
        return None
    if form == "zero":
        return _zero(name, purpose)
    if form == "dense":
        std = float(value.float().std())
        # PyTorch's trunc_normal_ gives one number in some millions its bound, which is 2 in timm: 100 times std
        if largest > OUTLIER * std > 0 and largest != BOUND and value.numel() >= 1000:
            return Finding(
                "outliers",
                name,
                f"its largest number is at {largest / std:.0f} standard deviations",
                RESET,
                "of 10^9 normal numbers the largest is at 6 standard deviations",
            )
        for what, side in (("rows", matrix), ("columns", matrix.T)):
            if what == "columns" and purpose.role not in ("qkv", "proj", "mlp_in", "mlp_out", "head", "other"):
                continue
            if equal := _equal(side):
                return Finding(
                    f"equal-{what}",
                    name,
                    f"{equal:,} of {len(side):,} {what} are copies of others",
                    RESET,
                    SYMMETRY,
                )
    return None


def _equal(matrix: Tensor) -> int:
    """Return the number of rows that are equal to another one."""
    weights = torch.linspace(1, 2, matrix.shape[1], dtype=torch.float64).sin_()
    sums = (matrix.double() @ weights).sort()
    close = (sums.values.diff().abs() <= 1e-12 * sums.values.abs().max()).nonzero().flatten().tolist()
    order = sums.indices
    return sum(bool(torch.equal(matrix[order[at]], matrix[order[at + 1]])) for at in close)


MAY_BE_ZERO = ("head", "pre_head", "proj", "mlp_out", "position", "token", "norm")
"""Ends of branches, heads and embeddings: published starts have zeros there, and the first step changes them."""


def _zero(name: str, purpose: Purpose) -> Finding | None:
    if purpose.role in MAY_BE_ZERO or (purpose.role == "qkv" and purpose.place.matrices == 1):
        return None
    if purpose.role == "other" and "head" in name:
        return None
    return Finding("zero", name, "all its numbers are 0", RESET, ZERO)


def zero_norms(model: nn.Module) -> list[str]:
    """Names of the weights of norms in which there is a 0, layer scales left out."""
    scales = {id(one) for one in layer_scales(model)}
    return [
        f"{path}.weight"
        for path, module in model.named_modules()
        if isinstance(module, NORMS) or "norm" in type(module).__name__.lower()
        if isinstance(weight := getattr(module, "weight", None), Tensor) and weight.ndim == 1
        if id(weight) not in scales and not bool(weight.detach().all())
    ]


def _eps(model: nn.Module) -> Iterator[Finding]:
    for path, module in model.named_modules():
        eps = getattr(module, "eps", None)
        is_norm = isinstance(module, NORMS) or "norm" in type(module).__name__.lower()
        if is_norm and isinstance(eps, float) and eps > EPS:
            yield Finding(
                "norm-eps",
                path,
                f"its eps is {eps:g}, above {EPS:g}: small activations stay small",
                "eps=1e-6, as timm and JAX have it, or PyTorch's 1e-5",
                "eps of norms in timm, torchvision, transformers and JAX: 1e-12 to 1e-3",
            )


def _odd_ones(named: dict[str, Tensor], known: dict[str, Purpose], ill: set[str]) -> Iterator[Finding]:
    """Yield tensors that differ in distribution from the same tensor in the layers before and behind."""
    rows: dict[tuple[str, Purpose], list[str]] = defaultdict(list)
    for name, purpose in known.items():
        if name not in ill and not purpose.bias and purpose.role != "norm" and named[name].ndim > 1:
            rows[re.sub(r"\d+", "*", name), purpose].append(name)
    yield from _copies(named, rows.values())
    for names in rows.values():
        values = [some(named[name], 1 << 12) for name in names]
        if len(names) < 3 or len(values[0]) < 64:
            continue
        stds = [float(one.std()) for one in values]
        forms = [structure(named[name]) for name in names]
        for at, name in enumerate(names):
            beside = [at - 1, at + 1] if 0 < at < len(names) - 1 else [1, 2] if at == 0 else [at - 1, at - 2]
            agree = forms[beside[0]] == forms[beside[1]]
            ratios = [stds[at] / max(stds[other], 1e-12) for other in beside]
            apart = all(one > FACTOR for one in ratios) or all(one < 1 / FACTOR for one in ratios)
            trend = stds[beside[0]] / max(stds[beside[1]], 1e-12)
            if agree and forms[at] != forms[beside[0]]:
                what = f"it is {forms[at]}, and in its neighbours in depth {forms[beside[0]]}"
            elif agree and apart and (0 < at < len(names) - 1 or 1 / FACTOR < trend < FACTOR):
                what = f"its standard deviation is {stds[at]:.3g}, in its neighbours in depth {stds[beside[0]]:.3g}"
            elif agree and forms[at] == "dense" and _other_shape(values, stds, at, beside):
                what = "its numbers have another distribution than in its neighbours in depth"
            else:
                continue
            yield Finding(
                "odd-one-out",
                name,
                what,
                "initialise it as the others: it is left out by the code that sets these",
                "the same tensor of all layers has one distribution, or one that changes slowly, in every library",
            )


def _other_shape(values: list[Tensor], stds: list[float], at: int, beside: list[int]) -> bool:
    if min(stds[one] for one in (at, *beside)) <= 0:
        return False
    own, first, second = (values[one] / stds[one] for one in (at, *beside))
    differs = all(kolmogorov_smirnov(own, other)[1] < UNLIKELY for other in (first, second))
    return differs and kolmogorov_smirnov(first, second)[1] > 1e-3


def _copies(named: dict[str, Tensor], rows: Iterable[list[str]]) -> Iterator[Finding]:
    """Yield one finding where drawn tensors are the same in several layers."""
    equal: list[str] = []
    for names in rows:
        first = named[names[0]]
        same = [name for name in names[1:] if first.numel() >= 64 and torch.equal(named[name], first)]
        if same and structure(first) == "dense" and not _periodic(first):
            equal += same
    if equal:
        yield Finding(
            "copies",
            equal[0],
            f"it starts with the numbers of another layer, and so do {len(equal) - 1} more tensors"
            if len(equal) > 1
            else "it starts with the numbers of another layer",
            "initialise after the layers are made: vitinit.initialize(model, base='trunc_normal')",
            "nn.TransformerEncoder copies its layer; its documentation asks to initialise the copies by hand",
        )


def _periodic(value: Tensor) -> bool:
    """Return True for a grid of sines, which nobody has drawn: its last row is minus a row of before, or 0."""
    matrix = value.flatten(1).float()
    if len(matrix) < 2:
        return False
    sums = (matrix[:-1] + matrix[-1:]).abs().amax(1)
    return bool(torch.minimum(sums.min(), matrix.abs().amax(1).min()) < 1e-5 * matrix.abs().max())
