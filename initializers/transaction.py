"""A copy of a model to work on: what changed is written into the model at the end, or nothing is."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize

from vitinit.initializers.errors import VitinitError, cause, plain

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


class Meant(NamedTuple):
    """Tensor that `vitinit.initialize` set on purpose: no warning of `vitinit.check` while it stays as it is."""

    fingerprint: Any
    attention: bool
    """True where a method set W_q or W_k."""
    untrained: bool


MEANT: WeakKeyDictionary[nn.Module, dict[str, Meant]] = WeakKeyDictionary()
"""By model and name of the tensor, from the last call that set it."""


def still_meant(model: nn.Module) -> dict[str, Meant]:
    """Return the marks of tensors that are as `initialize` left them."""
    tensors = named_tensors(model)
    return {
        name: mark
        for name, mark in MEANT.get(model, {}).items()
        if name in tensors and fingerprint(tensors[name]) == mark.fingerprint
    }


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name, each once."""
    return dict(chain(model.named_parameters(), model.named_buffers()))


def bits(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor as whole numbers, row by row; sums of whole words are ten times as fast as of bytes.

    Unlike numbers, the bits of NaN equal themselves.
    """
    flat, rows = tensor.detach().contiguous().flatten(), max(1, len(tensor) if tensor.ndim else 1)
    eight_bytes = flat.numel() * flat.element_size() % (8 * rows) == 0
    return flat.view(torch.int64 if eight_bytes else torch.uint8).view(rows, -1)


def fingerprint(tensor: Tensor) -> tuple[torch.Size, int]:
    """Return shape and a hash of the sums of bits over rows and columns: values that trade places change it.

    It stands in for a copy of the tensor, which may be large.
    """
    return tensor.shape, hash(tuple(tuple(bits(tensor).sum(dim, dtype=torch.int64).tolist()) for dim in (0, 1)))


def fingerprints(model: nn.Module) -> dict[str, tuple[torch.Size, int]]:
    """Return the fingerprint of every parameter and buffer by name."""
    return {name: fingerprint(tensor) for name, tensor in named_tensors(model).items()}


def detached(model: nn.Module) -> dict[int, Any]:
    """Return a memo for `copy.deepcopy`, by which activations that modules keep are copied without their graph."""
    return {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    }


@contextmanager
def scratch(model: nn.Module) -> Iterator[Any]:
    """Yield a float32 copy to work on, apart from what somebody has set for this thread: autocast, inference mode.

    Activations that modules keep are in it without their graph.

    Raises:
        VitinitError: a model that cannot be copied or written to, or a default type, which all threads share, that is
            not float32.
    """
    refuse(model)
    if torch.get_default_dtype() != torch.float32:
        raise VitinitError("first torch.set_default_dtype(torch.float32): numbers are drawn in the default type")
    types = {"cpu", *(tensor.device.type for tensor in named_tensors(model).values())}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for device in types:
            stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        try:
            copied = copy.deepcopy(model, detached(model)).float()
        except Exception as error:  # of anyone's modules
            raise VitinitError(
                f"{type(model).__name__} cannot be copied to work on: {plain(cause(error), 200)}"
            ) from error
        yield copied


def differs(tensor: Tensor, new: Tensor) -> bool:
    """Return True where a tensor of the copy has other bits than that of the model."""
    return not torch.equal(bits(tensor.to(new.dtype)), bits(new))


@torch.no_grad()
def write(model: nn.Module, copied: nn.Module) -> dict[str, Any]:
    """Write into the model what differs in its copy, each tensor rounded once; return the fingerprints of parameters.

    On any error, be it Ctrl-C, the model is as it was. Of each tensor that is written the copy gives way to the values
    of before, so that all takes the memory once.

    Raises:
        VitinitError: the types of the model do not hold these numbers, or parameters share their memory.
    """
    tensors, new = named_tensors(model), named_tensors(copied)
    old, written = dict[str, Tensor](), dict[str, Any]()
    try:
        for name, tensor in tensors.items():
            if differs(tensor, new[name]):
                value, rounded = new[name], new[name].to(tensor.dtype)
                if rounded.dtype != value.dtype and (value.isfinite() & ~rounded.isfinite()).any():
                    raise VitinitError(
                        f"{name!r} would be given numbers up to {float(value.abs().max()):g}, and "
                        f"{str(tensor.dtype)[6:]} has none beyond {torch.finfo(tensor.dtype).max:g}"
                    )
                if tensor.dtype == torch.float64:  # entries that did not change keep their digits
                    rounded = torch.where(value == tensor.to(value.dtype), tensor, rounded)
                old[name] = tensor.detach().clone()
                tensor.copy_(rounded)
                new[name].data = tensor.new_empty(0)
            if isinstance(tensor, nn.Parameter):
                written[name] = fingerprint(tensor)
        for name, expected in written.items():
            if fingerprint(tensors[name]) != expected:
                raise VitinitError(
                    f"{name!r} is another view of numbers of another parameter, as a transposed one: give it memory "
                    "of its own"
                )
    except BaseException as error:
        for name in reversed(old):
            with suppress(RuntimeError):
                tensors[name].copy_(old[name])
        if isinstance(error, RuntimeError):  # elements of one are the same number in memory, as after expand
            raise VitinitError(f"a parameter cannot be written to: {error}") from error
        raise
    return written


def refuse(model: nn.Module) -> None:
    """Refuse a model whose parameters are not there, or are not what they seem.

    Raises:
        VitinitError: says what to do.
    """
    if not isinstance(model, nn.Module):
        raise VitinitError(f"a model is a torch.nn.Module, not {type(model).__name__}")
    name = type(model).__name__
    for path, module in model.named_modules():
        wrapper = next((parent.__name__ for parent in type(module).__mro__ if parent.__name__ in WRAPPERS), None)
        if wrapper:
            raise VitinitError(f"{f'{name}: {path!r}, a {wrapper}' if path else name}: {WRAPPERS[wrapper]}")
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
        elif path.endswith("weight") and tensor.itemsize == 1:
            why = f"is in {tensor.dtype}: initialise the model before it is quantised"
        else:
            continue
        raise VitinitError(f"{name}: {path!r} {why}")
