"""Base, then method, on any model: all of it or nothing."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from itertools import permutations
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize

from vitinit.initializers.adapters.registry import layer_scales
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.foreign import contained
from vitinit.initializers.registry import Aim, Initializer, Progress, Resources, changed_by, same, tensors
from vitinit.initializers.sharing import conflict, entangled, homes, memory

WRAPPERS = {
    "OptimizedModule": "it is compiled: give the model inside (model._orig_mod), whose parameters are the same",
    "DistributedDataParallel": "it is wrapped: give model.module; at one seed all processes get the same weights",
    "DataParallel": "it is wrapped: give model.module",
    "FullyShardedDataParallel": "it is sharded: initialise the model before it is sharded",
    "FSDPModule": "it is sharded: initialise the model before it is sharded",
    "WeightedQuantizedModule": "it is quantised: initialise the model before that",
    "ScriptModule": "it is compiled by TorchScript: initialise the model before that",
    "BaseTunerLayer": "it has adapters of peft, which start as the library has them: initialise the model before",
    "GraphModule": "it is a traced graph, whose layers are no modules: initialise the model before it is traced",
}
"""Wrappers of models by the name of a base class, with what the user should do."""


@dataclass(frozen=True)
class Meant:
    """Method that `vitinit.initialize` has put on a model, and what it means to be so."""

    name: str
    changed: set[str]
    untrained: tuple[str, ...]


METHODS: WeakKeyDictionary[nn.Module, Meant] = WeakKeyDictionary()
"""By model, the last method: its own aim is no warning of `vitinit.check`."""
LOW_RANK = re.compile(r"(^|[._])lora_", re.IGNORECASE)
"""In the names of parameters of low-rank adapters, in peft, loralib and by hand."""


@dataclass(frozen=True)
class Applied:
    """Result of applying base and method."""

    changed: list[list[str]]
    """Names of the parameters and buffers that each of them changed."""
    aim: Tensor | Aim | None
    """Attention that the last of them aims at."""
    seconds: float
    shared: list[list[str]]
    """Paths of the parameters that changed and that several modules share: they were set once."""


def apply(
    model: nn.Module,
    parts: Sequence[Initializer],
    stream: Callable[[str], torch.Generator],
    progress: Progress = lambda done, total: None,
    resources: Resources | None = None,
) -> Applied:
    """Check all parts, then apply them one after the other. Within `all_or_nothing`.

    Raises:
        VitinitError: a part does not fit the model, or changed a parameter that it does not name, or one that several
            modules share and need differently, or replaced more than values, or left a value that is not finite.
    """
    for part in parts:
        with contained(_named(part)):
            part.check(model)
    seconds, changed = 0.0, list[list[str]]()
    aim: Tensor | Aim | None = None
    for part in parts:
        before = {name: value.clone() for name, value in tensors(model).items()}
        start = time.perf_counter()
        try:
            with contained(_named(part)), in_place(model, _named(part)):
                aim = part.apply_with(model, stream(f"init/{part.kind}"), progress, resources or Resources())
        except (RuntimeError, OverflowError) as error:
            if not isinstance(error, OverflowError) and not re.search("^linalg|without overflow", str(error)):
                raise
            raise VitinitError(
                f"{_named(part)}: its numbers leave the range of float32 ({error}): give smaller parameters, or "
                "weights that are finite"
            ) from error
        seconds += time.perf_counter() - start
        changed.append(changed_by(part, model, before))
        if part.kind == "method" and (paths := conflict(model, changed[-1])):
            raise VitinitError(
                f"{_named(part)} would set {paths[0]!r}, which {', '.join(map(repr, paths[1:]))} shares: it is made "
                "for layers with parameters of their own"
            )
    every = {name for names in changed for name in names}
    return Applied(changed, aim, seconds, [paths for paths in homes(model).values() if every & set(paths)])


def _named(part: Initializer) -> str:
    return f"{part.kind} {part.name!r}"


@contextmanager
def in_place(model: nn.Module, what: str) -> Iterator[None]:
    """Parameters and buffers within stay the objects that they are, because an optimiser may hold them.

    The values of one that was replaced by another of its shape are copied into it.

    Raises:
        VitinitError: anything else was added, removed or replaced.
    """
    before = [(path, module, _registered(module)) for path, module in model.named_modules()]
    shapes = {id(one): one.shape for one in (*model.parameters(), *model.buffers())}
    yield
    replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
    for path, module, homes_before in before:
        for home, held in zip(_registered(module, copied=False), homes_before, strict=True):
            for name in dict.fromkeys((*held, *home)):
                old, new = held.get(name), home.get(name)
                if old is new and getattr(old, "shape", None) == shapes.get(id(old)):
                    continue
                at = f"{path}.{name}".lstrip(".")
                if not isinstance(old, Tensor) or not isinstance(new, Tensor) or new.shape != shapes[id(old)]:
                    raise VitinitError(
                        f"{what} adds, removes or replaces {at!r}: a method sets values of parameters and buffers in "
                        "place, as by weight.copy_(values)"
                    )
                replaced.append((home, name, old, new.detach().clone()))
    with torch.no_grad():
        for home, name, old, value in replaced:
            home[name] = old
            old.data = value.to(old)


def _registered(module: nn.Module, copied: bool = True) -> tuple[dict[str, Any], ...]:
    """Parameters, buffers and submodules."""
    dicts: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, module._modules)
    return tuple(dict(one) for one in dicts) if copied else dicts


@contextmanager
def all_or_nothing(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Whatever changes parameters and buffers within does so to copies, in float32 where they are of a float type.

    When all is done, what has changed is written into the model, each tensor rounded once. If anything is raised, be it
    Ctrl-C, the model is as it was, bit for bit, with the attributes and hooks of its modules. Global random state,
    evaluation or training mode, autocast, the default type and device are left as they were; so is `requires_grad`.

    Yields:
        The tensors as they were, by name.

    Raises:
        VitinitError: parameters that cannot be written to, or numbers that their type does not hold; says what to do.
    """
    refuse(model)
    originals = {name: tensor for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    held = [(tensor, tensor.data) for tensor in originals.values()]
    # `.data` of another type would cost a parameter its gradient accumulator, and what hangs there (DDP's all-reduce)
    copies = dict[tuple[object, ...], Tensor]()  # of one memory there is one copy
    with torch.inference_mode(False):
        for original in originals.values():
            if memory(original) not in copies:
                copies[memory(original)] = original.detach().to(_calculated(original), copy=True)
    stand_ins = {
        id(tensor): _stand_in(tensor, copies[memory(tensor)])
        for tensor in originals.values()
        if _calculated(tensor) != tensor.dtype
    }
    attributes = [(module, _attributes(module)) for module in model.modules()]
    homes: list[tuple[dict[str, Any], str, Any]] = [
        (home, name, kept)
        for module in model.modules()
        for home in (module._parameters, module._buffers, vars(module))  # an attribute, which is not registered
        for name, kept in home.items()
        if _stood_in(kept, stand_ins) is not kept
    ]
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    written: list[tuple[Tensor, Tensor]] = []
    try:
        with _plain(model):
            for tensor, original in held:
                if id(tensor) not in stand_ins:
                    tensor.data = copies[memory(original)]
            for home, name, kept in homes:
                home[name] = _stood_in(kept, stand_ins)
            yield {name: original for name, (_, original) in zip(originals, held, strict=True)}
            fresh = [stand_ins.get(id(tensor), tensor).data for tensor, _ in held]
            _put_back(held, homes)
            changed = [  # before any is written: a buffer may be a view of a parameter
                (name, original, new)
                for name, (_, original), new in zip(originals, held, fresh, strict=True)
                if not same(in_its_type(new, original), original)
            ]
            for name, original, new in changed:
                rounded = in_its_type(new, original)
                if (new.isfinite() & ~rounded.isfinite()).any():
                    dtype, most = str(original.dtype).removeprefix("torch."), torch.finfo(original.dtype).max
                    given = f"numbers up to {float(new.abs().max()):g}"
                    raise VitinitError(f"{name!r} would be given {given}, and {dtype} has none beyond {most:g}")
                written.append((original, original.clone()))
                original.copy_(rounded)
    except BaseException:
        for module, kept in attributes:
            _restore(module, kept)
        _put_back(held, homes)
        for original, backup in reversed(written):  # two may share their memory
            original.copy_(backup)
        raise
    finally:
        for parameter, wanted in trained:
            parameter.requires_grad_(wanted)
        for module, mode in modes:
            module.training = mode


def _attributes(module: nn.Module) -> list[tuple[str, Any, Any]]:
    """All that a module holds: by name the object and, of a collection, what is in it."""
    return [
        (name, value, copy(value) if isinstance(value, dict | list | set) else None)
        for name, value in vars(module).items()
    ]


def _restore(module: nn.Module, kept: list[tuple[str, Any, Any]]) -> None:
    vars(module).clear()
    for name, value, inside in kept:
        vars(module)[name] = value
        if isinstance(value, list):
            value[:] = inside
        elif isinstance(value, dict | set):
            value.clear()
            value.update(inside)


def _stand_in(tensor: Tensor, value: Tensor) -> Tensor:
    """To calculate with in its place."""
    return nn.Parameter(value, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


def _stood_in(kept: Any, stand_ins: dict[int, Tensor]) -> Any:
    """A stand-in for a tensor, a list or tuple with them for one in which there are such; all else as it is."""
    if type(kept) in (list, tuple) and any(id(one) in stand_ins for one in kept):
        return type(kept)(stand_ins.get(id(one), one) for one in kept)
    return stand_ins.get(id(kept), kept)


def _put_back(held: list[tuple[Tensor, Tensor]], homes: list[tuple[dict[str, Any], str, Any]]) -> None:
    for home, name, kept in homes:
        home[name] = kept
    for tensor, original in held:
        tensor.data = original


def in_its_type(new: Tensor, original: Tensor) -> Tensor:
    """Return the value for `original`: rounded to its type; in float64, unchanged entries keep their digits."""
    rounded = new.to(original.dtype)
    return torch.where(new == original.to(new), original, rounded) if original.dtype == torch.float64 else rounded


def _calculated(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.is_floating_point() else tensor.dtype


@contextmanager
def _plain(model: nn.Module) -> Iterator[None]:
    """Nothing that somebody has set for all of PyTorch reaches within, and nothing that is drawn within reaches out."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type != "cpu"}
    default, where = torch.get_default_dtype(), torch.get_default_device()
    numpy, drawn = sys.modules.get("numpy"), random.getstate()
    with ExitStack() as stack:
        stack.callback(random.setstate, drawn)
        if numpy:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        stack.callback(_default_device, where)
        stack.callback(torch.set_default_dtype, default)
        stack.enter_context(torch.random.fork_rng([device for device in devices if device.type == "cuda"]))
        stack.enter_context(torch.inference_mode(False))
        for kind in {"cpu", *(device.type for device in devices)}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if where.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        torch.set_default_dtype(torch.float32)
        yield


def _default_device(device: torch.device) -> None:
    if torch.get_default_device() != device:
        torch.set_default_device(device)


def refuse(model: nn.Module) -> None:
    """Refuse a model whose parameters are not there, or are not what they seem.

    Raises:
        VitinitError: says what to do.
    """
    if not isinstance(model, nn.Module):
        raise VitinitError(f"a model is a torch.nn.Module, not {type(model).__name__}")
    name = type(model).__name__
    for path, module in model.named_modules():
        kind = next((parent.__name__ for parent in type(module).__mro__ if parent.__name__ in WRAPPERS), None)
        if kind:
            raise VitinitError(f"{name}: {f'{path!r}, a {kind}' if path else kind}: {WRAPPERS[kind]}")
        if parametrize.is_parametrized(module) or isinstance(vars(module).get("weight"), Tensor):
            raise VitinitError(
                f"{name}: the weight of {path!r} is computed from others (a parametrisation, pruning, sharding): "
                "initialise the model before that"
            )
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise VitinitError(f"{name}: {path!r} has no shape yet: run the model once, then initialise it")
        if tensor.is_meta:
            scaled = " and layer_scale=..." if layer_scales(model) else ""
            raise VitinitError(
                f"{name}: {path!r} is on the meta device and holds nothing: first model.to_empty(device='cpu'), then "
                f"initialise with a base{scaled}, and set buffers as the library does"
            )
        if tensor.is_inference():
            raise VitinitError(f"{name}: {path!r} was made in inference mode: make the model outside of it")
        if type(tensor.data) is not Tensor or getattr(tensor, "_fsdp_flattened", False):
            raise VitinitError(
                f"{name}: {path!r} is a {type(tensor.data).__name__}: initialise the model before it is sharded or "
                "quantised"
            )
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        if isinstance(tensor, nn.Parameter) and any(size > 1 and not step for size, step in steps):
            raise VitinitError(
                f"{name}: elements of {path!r} are one number in memory (expand): give it a parameter that is "
                "contiguous"
            )
    if path := entangled(model):
        raise VitinitError(
            f"{name}: {path!r} is another view of numbers of another parameter, as a transposed one: give it memory of "
            "its own"
        )
    low_rank = [f"{path}.{inner}".lstrip(".") for path, one in model.named_modules() if (inner := _low_rank(one))]
    for path, parameter in model.named_parameters():
        if LOW_RANK.search(path) or path in low_rank:
            raise VitinitError(
                f"{name}: {path!r} is part of a low-rank adapter, which starts as its library has it: initialise the "
                "model before it is added"
            )
        if not parameter.is_floating_point():
            raise VitinitError(f"{name}: {path!r} has type {parameter.dtype}: initialise the model before that")


def _low_rank(module: nn.Module) -> str:
    """Name of the second matrix of a low-rank adapter: B of W + B A, which is 0 at first; empty where there is none."""
    matrices: dict[str, Tensor] = {name: one for name, one in module.named_parameters(recurse=False) if one.ndim == 2}
    matrices |= {f"{name}.weight": one.weight for name, one in module.named_children() if isinstance(one, nn.Linear)}
    for (_, whole), (_, first), (name, second) in permutations(matrices.items()) if len(matrices) == 3 else ():
        sides, inner, outer = (sorted(one.shape) for one in (whole, first, second))
        rank = inner[0]
        if sorted((inner[1], outer[1])) == sides and outer[0] == rank < sides[0] and not second.any():
            return name
    return ""
