"""A pretended GPU: tensors that say `cuda:0`, hold their numbers in main memory and refuse what CUDA refuses.

A tensor is on the pretended GPU if its storage is in a list, so types, parameters and views stay what they are. Every
operation goes by a dispatch mode, which raises `Refused` where CUDA would raise, and notes what makes the host wait,
what is sent from pageable memory, and what may be read or written too early because streams do not wait for each other.
Modes belong to a thread: in others nothing can be put on the GPU.
"""

from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
READING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "bincount", "repeat_interleave"}
"""Operations whose result, or its shape, the host must know before it goes on."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
COPYING = {"copy_", "_to_copy", "_foreach_copy_"}
"""Operations between devices."""


class Refused(RuntimeError):
    """CUDA would raise an error."""


class Stream:
    """A stream: the number of its last operation, and after which ones of other streams the next one comes."""

    def __init__(self, device=None):
        self.seen = Counter()

    def record_event(self):
        event = Stream()
        event.wait_event(self)
        return event

    def wait_event(self, event):
        self.seen |= event.seen

    wait_stream = wait_event


class Storages(dict):
    """Storages, which it does not keep alive: the stream in which each was made, and who has used it when."""

    def add(self, tensor, stream):
        ref = StorageWeakRef(tensor.untyped_storage())  # while it is here, no other storage has its address
        self.setdefault(ref.cdata, SimpleNamespace(ref=ref, owner=stream, used=Counter(), recorded=set()))
        return tensor

    def of(self, tensor):
        return self.get(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else None

    def __contains__(self, tensor):
        return self.of(tensor) is not None


class Generator(torch._C.Generator):
    """A generator on the GPU."""


class PretendedGpu(TorchDispatchMode):
    """The device, while the mode is active.

    Attributes:
        faults: what made the host wait for the device, or was sent from memory that is not page-locked, or came before
            what it needs, since this was last cleared.
        stream: the current one.
    """

    def __init__(self):
        super().__init__()
        self.here, self.pinned = Storages(), Storages()
        self.faults = []
        self.host, self.stream = Stream(), Stream()
        self.shared = []
        """Storages that another stream than their own has used."""
        self.sending = []
        """Page-locked tensors of which a copy is under way, and what was in them when it began."""
        self.leaving = False
        """A copy to main memory is under way, by `moved`; C++ takes that for where its tensors are anyway."""

    def device_of(self, tensor):
        return GPU if tensor in self.here else CPU

    def wait(self, why):
        """The host waits for the current stream: all that it launches from now on comes after."""
        self.faults.append(f"waits for the GPU: {why}")
        self.sending.clear()
        self.host.wait_event(self.stream)

    def uses(self, name, memory):
        """Note that an operation of the current stream reads or writes; it must come after those of other streams."""
        if any(number > self.stream.seen[stream] for stream, number in memory.used.items()):
            self.faults.append(f"{name} does not wait for another stream")
        memory.used[self.stream] = self.stream.seen[self.stream]
        if self.stream is not memory.owner:
            self.shared.append(memory)

    def check(self):
        """Note memory that was freed, or changed, before what uses it is done."""
        if any((now != then).any() for now, then in self.sending):
            self.faults.append("page-locked memory was changed as it was sent")
        for memory in [memory for memory in self.shared if memory.ref.expired()]:
            self.shared.remove(memory)
            if any(memory.used[stream] > memory.owner.seen[stream] for stream in {*memory.used} - memory.recorded):
                self.faults.append("memory was freed while another stream may use it")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func._schema.name.removeprefix("aten::")
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        ours = [tensor for tensor in tensors if tensor in self.here]
        others = [tensor for tensor in tensors if tensor not in self.here and tensor.dim()]
        asked = kwargs.get("device")
        # formulas of gradients make tensors on the device that C++ sees
        of_gradient = not tensors and torch._C._current_autograd_node() is not None
        on_gpu = (ours and not self.leaving) or of_gradient or (asked is not None and asked.type != "cpu")
        target = GPU if on_gpu else CPU
        if asked is not None and asked.type == GPU.type:
            kwargs["device"] = CPU
        pinned = bool(kwargs.pop("pin_memory", False))
        if name in COPYING:
            self._copied(args, target, kwargs.get("non_blocking", False) or (name == "copy_" and True in args[2:]))
        elif ours and others:
            self._mixed(name, args, others)
        if on_gpu and any(type(leaf) is torch._C.Generator for leaf in leaves):
            raise Refused(f"{func}: Expected a 'cuda' device type for generator but found 'cpu'")
        if ours and not func.is_view:
            self.check()
            self.stream.wait_event(self.host)
            self.stream.seen[self.stream] += 1
            for tensor in ours:
                self.uses(name, self.here.of(tensor))
        by_mask = name in INDEXING and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if ours and (name in READING or by_mask):
            self.wait(name)
        result = func(*args, **kwargs)
        for output in tree_leaves(result):
            if isinstance(output, Tensor) and on_gpu and not (name == "copy_" and args[0] not in self.here):
                self.uses(name, self.here.of(self.here.add(output, self.stream)))
            elif isinstance(output, Tensor) and pinned:
                self.pinned.add(output, self.stream)
        return result

    def _mixed(self, name, args, others):
        """Refuse operands on two devices, as long as they are no indices, which are sent first."""
        if (
            name in INDEXING
            and args[0] in self.here
            and not any(other is each for other in others for each in args[2:3])
        ):
            self.wait(f"{name} by numbers on the CPU")
        else:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in others)
            raise Refused(f"{name}: all tensors must be on the same device, but these are on the CPU: {shapes}")

    def _copied(self, args, target, non_blocking):
        """Note copies that go from one device to the other."""
        source = args[1] if isinstance(args[1:2] and args[1], Tensor) else args[0]
        into = self.device_of(args[0]) if source is not args[0] else target
        if isinstance(source, Tensor) and self.device_of(source) != into:
            if into != CPU and source not in self.pinned:
                self.faults.append(f"{tuple(source.shape)} is not page-locked")
            if into == CPU or not non_blocking:
                self.wait(f"copy of {tuple(source.shape)} to {into}")
            else:
                self.sending.append((source, source.clone()))


def moved(gpu, tensor, *args, copy=False, **kwargs):
    """`Tensor.to`."""
    other = kwargs.pop("other", args[0] if args else None)
    if isinstance(other, Tensor):
        device, dtype, non_blocking, memory_format = other.device, other.dtype, kwargs.get("non_blocking", False), None
    else:
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    how = {"dtype": dtype or tensor.dtype, "memory_format": memory_format}
    if device is None or device.type == gpu.device_of(tensor).type:
        return TO(tensor, copy=copy, **how)
    gpu.leaving = device.type == "cpu"
    try:
        return torch.ops.aten._to_copy(tensor, device=device, non_blocking=non_blocking, **how)
    finally:
        gpu.leaving = False


TO, DEEPCOPY, NUMPY, TOLIST, TENSOR, AUTOCAST, GROUPS = (
    Tensor.to,
    Tensor.__deepcopy__,
    Tensor.numpy,
    Tensor.tolist,
    torch.tensor,
    torch.autocast,
    torch._C._group_tensors_by_device_and_dtype,
)


@contextmanager
def pretended_gpu():
    """`cuda` is there, within."""
    gpu = PretendedGpu()

    def to_numpy(tensor, **kwargs):
        if tensor in gpu.here:
            raise Refused("can't convert cuda:0 device type tensor to numpy")
        return NUMPY(tensor, **kwargs)

    def to_list(tensor):
        if tensor in gpu.here:
            gpu.wait("tolist")
        return TOLIST(tensor)

    def deepcopied(tensor, memo):
        new = DEEPCOPY(tensor, memo)
        return gpu.here.add(new, gpu.stream) if tensor in gpu.here else new

    def from_numbers(data, *, device=None, **kwargs):
        return moved(gpu, TENSOR(data, **kwargs), device or CPU)

    def one_hot(labels, classes=-1):
        """Does not look at the values, as on CUDA."""
        zeros = labels.new_zeros((*labels.shape, classes))
        return zeros.scatter_(-1, labels[..., None], 1)

    def generator(device=CPU):
        return Generator() if torch.device(device).type == GPU.type else torch._C.Generator(device)

    def groups(tensors, with_indices=False):
        by_dtype = GROUPS(tensors, with_indices).items()
        return {(gpu.device_of(group[0][0][0]), dtype): group for (_, dtype), group in by_dtype}

    @contextmanager
    def stream(other):
        before, gpu.stream = gpu.stream, other
        yield
        gpu.stream = before

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "to": lambda tensor, *args, **kwargs: moved(gpu, tensor, *args, **kwargs),
            "cpu": lambda tensor: moved(gpu, tensor, CPU),
            "device": property(gpu.device_of),
            "is_cuda": property(lambda tensor: tensor in gpu.here),
            "is_pinned": lambda tensor: tensor in gpu.pinned,
            "pin_memory": lambda tensor: tensor if tensor in gpu.pinned else gpu.pinned.add(tensor.clone(), gpu.stream),
            "record_stream": lambda tensor, stream: gpu.here.of(tensor).recorded.add(stream),
            "numpy": to_numpy,
            "tolist": to_list,
            "__deepcopy__": deepcopied,
        }.items():
            patch.setattr(Tensor, name, value, raising=False)
        for name, value in {
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda device: None,
            "is_initialized": lambda: True,
            "_lazy_init": lambda: None,
            **dict.fromkeys(("manual_seed", "manual_seed_all"), lambda seed: None),
            "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda state, device=None: None,
            "synchronize": lambda device=None: gpu.wait("synchronize"),
            "Stream": Stream,
            "stream": stream,
            "current_stream": lambda device=None: gpu.stream,
            "is_current_stream_capturing": lambda: False,
            "is_bf16_supported": lambda including_emulation=True: True,
            "get_device_name": lambda device=None: "Pretended GPU",
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_properties": lambda device=None: SimpleNamespace(total_memory=2**36, uuid="12-34"),
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.accelerator, "is_available", lambda: False)
        patch.setattr(torch._C, "_group_tensors_by_device_and_dtype", groups)
        patch.setattr(torch, "tensor", from_numbers)
        patch.setattr(torch, "Generator", generator)
        patch.setattr(torch, "autocast", lambda device_type, *args, **kwargs: AUTOCAST("cpu", *args, **kwargs))
        patch.setattr(F, "one_hot", one_hot)
        with gpu:
            yield gpu
