"""Wrapped, sharded, compiled, not yet there: refused with what to do, nothing changed, and that then works."""

from pathlib import Path

import pytest
import torch
import yaml
import zoo
from small_models import differing, images
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune

import vitinit


@pytest.fixture(scope="module", autouse=True)
def _one_process():
    """A process group of this process alone, which no port is open for."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded(model):
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def sharded_by_block(model):
    """As its documentation has it: the blocks, then all."""
    mesh = init_device_mesh("cpu", (1,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def pruned(model):
    prune.l1_unstructured(model.blocks[0].attn.qkv, "weight", 0.5)
    return model


def parametrised(model):
    nn.utils.parametrizations.orthogonal(model.blocks[0].attn.qkv)
    return model


def quantised(model):
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)


def in_eight_bits(model):
    model.head.weight = nn.Parameter(torch.zeros(10, 48, dtype=torch.int8), requires_grad=False)
    return model


def made_in_inference_mode(_):
    with torch.inference_mode():
        return zoo.build("timm ViT")


def traced(model):
    return torch.jit.trace(model, images(1), check_trace=False)


WRAPPED = {
    "DDP": DistributedDataParallel,
    "DDP in a model": lambda model: nn.Sequential(DistributedDataParallel(model)),
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "FSDP, original parameters": sharded,
    "fully_shard": sharded_by_block,
    "TorchScript": traced,
    "fx": lambda model: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3))),
    "meta": lambda model: model.to("meta"),
    "quantised": quantised,
    "int8": in_eight_bits,
    "inference mode": made_in_inference_mode,
    "pruned": pruned,
    "parametrised": parametrised,
    "lazy": lambda model: nn.Sequential(model, nn.LazyLinear(3)),
}
SAYS = yaml.safe_load(Path(__file__).with_name("wrapped.yaml").read_bytes())


@pytest.mark.filterwarnings("ignore")  # what the wrappers themselves say
@pytest.mark.parametrize("how", WRAPPED)
def test_a_wrapper_is_refused_with_what_to_do(how):
    model = WRAPPED[how](zoo.build("timm ViT"))
    before = values(model)
    for method, base in (("mimetic", None), (None, "trunc_normal")):
        with pytest.raises(vitinit.VitinitError, match=SAYS[how]):
            vitinit.initialize(model, method, base=base)
    assert differing(before, values(model)) == set()


def values(model):
    """All tensors that hold numbers; of sharded ones, what this process has."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    there = {n: p for n, p in tensors if not p.is_meta and not isinstance(p, nn.UninitializedParameter)}
    return {name: (p.to_local() if isinstance(p, DTensor) else p).detach().clone() for name, p in there.items()}
