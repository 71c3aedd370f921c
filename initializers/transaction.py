"""A copy of a model to work on: what changed is written into the model at the end, or nothing is."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize

from vitinit.initializers.errors import VitinitError, plain

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


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name, each once."""
    return dict(chain(model.named_parameters(), model.named_buffers()))


def same(a: Tensor, b: Tensor) -> bool:
    """Return True where two tensors of one size have the same values; NaN equals NaN."""
    return torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True))


@contextmanager
def scratch(model: nn.Module) -> Iterator[Any]:
    """Yield a float32 copy; afterwards write what changed into `model`, each tensor rounded once.

    On any error, be it Ctrl-C, the model is as it was: until the end it is not touched.

    Raises:
        VitinitError: a model that cannot be copied or written to, or numbers that its types do not hold.
    """
    refuse(model)
    with usual_settings(model):
        copied = copy_of(model)
        before = {name: tensor.clone() for name, tensor in named_tensors(copied).items()}
        yield copied
        now = named_tensors(copied)
        new = {
            name: _rounded(name, value, before[name], now[name])
            for name, value in named_tensors(model).items()
            if not same(before[name], now[name])
        }
        _write(named_tensors(model), new)


def copy_of(model: nn.Module) -> Any:
    """Return a float32 copy, in which activations that modules keep are without their graph.

    Raises:
        VitinitError: something in it cannot be copied.
    """
    own = [value for module in model.modules() for value in vars(module).values()]
    kept: dict[int, Any] = {id(one): one.detach() for one in own if isinstance(one, Tensor) and one.grad_fn is not None}
    try:
        return copy.deepcopy(model, kept).float()
    except Exception as error:  # of anyone's modules
        why = plain(f"{type(error).__name__}: {error}", 200)
        raise VitinitError(f"{type(model).__name__} cannot be copied to work on: {why}") from error


def _rounded(name: str, original: Tensor, before: Tensor, new: Tensor) -> Tensor:
    """Return the value in the type of the original; entries that did not change keep their digits."""
    rounded = new.to(original.dtype)
    if original.is_floating_point() and (new.isfinite() & ~rounded.isfinite()).any():
        dtype, most = str(original.dtype).removeprefix("torch."), torch.finfo(original.dtype).max
        given = f"numbers up to {float(new.abs().max()):g}"
        raise VitinitError(f"{name!r} would be given {given}, and {dtype} has none beyond {most:g}")
    return torch.where(new == before, original, rounded) if original.dtype == torch.float64 else rounded


@torch.no_grad()
def _write(tensors: dict[str, Tensor], new: dict[str, Tensor]) -> None:
    """Write, compare, and on any error put everything back: parameters, or elements of one, may share their memory."""
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    try:
        for name, value in new.items():
            tensors[name].copy_(value)
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter) and not same(tensor, new.get(name, before[name])):
                raise VitinitError(
                    f"{name!r} is another view of numbers of another parameter, as a transposed one: give it memory "
                    "of its own"
                )
    except BaseException as error:
        for name in reversed(new):
            with suppress(RuntimeError):
                tensors[name].copy_(before[name])
        if isinstance(error, RuntimeError):  # elements of one are the same number in memory, as after expand
            raise VitinitError(f"a parameter cannot be written to: {error}") from error
        raise


@contextmanager
def usual_settings(model: nn.Module) -> Iterator[None]:
    """Set aside what somebody has set for this thread: autocast, inference mode, default device.

    Raises:
        VitinitError: the default type, which all threads share, is not float32.
    """
    if torch.get_default_dtype() != torch.float32:
        raise VitinitError("first torch.set_default_dtype(torch.float32): numbers are drawn in the default type")
    kinds = {"cpu", *(one.device.type for one in named_tensors(model).values())} - {"meta"}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for kind in kinds:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


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
            raise VitinitError(f"{f'{name}: {path!r}, a {kind}' if path else name}: {WRAPPERS[kind]}")
        if parametrize.is_parametrized(module) or isinstance(vars(module).get("weight"), Tensor):
            raise VitinitError(
                f"{name}: the weight of {path!r} is computed from others (a parametrisation, pruning, sharding): "
                "initialise the model before that"
            )
    for path, tensor in named_tensors(model).items():
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            why = "has no shape yet: run the model once, then initialise it"
        elif tensor.is_meta:
            why = (
                "is on the meta device and holds nothing: initialise the model before accelerate offloads it; or first "
                "model.to_empty(device='cpu'), then initialise with a base, layer_scale=... if it has layer scales, "
                "and set buffers as the library does"
            )
        elif tensor.is_inference():
            why = "was made in inference mode: make the model outside of it"
        elif type(tensor.data) is not Tensor or hasattr(tensor, "_fsdp_flattened"):
            why = f"is a {type(tensor.data).__name__}: initialise the model before it is sharded or quantised"
        else:
            continue
        raise VitinitError(f"{name}: {path!r} {why}")
