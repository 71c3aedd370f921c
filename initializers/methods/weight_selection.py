"""Method `weight_selection`: every tensor is a part of the one of that name in a larger model's checkpoint."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from vitinit.initializers.adapter import found
from vitinit.initializers.attention import attention_layers, has_attention, position_name
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Progress, register
from vitinit.initializers.whole_model import classifiers

INSIDE = ("state_dict", "model")
"""Under one of these a checkpoint may have its tensors, among other things."""

FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types by their names in safetensors."""


class WeightsFile(BaseModel):
    """A file of tensors by name, from `torch.save` or safetensors. Given as its path; it counts by its content.

    A run's identity holds the sha256 and not the path (`benchmark.spec`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="before")
    @classmethod
    def _from_its_path(cls, given: Any) -> Any:
        if not isinstance(given, str | os.PathLike):
            return given
        path = str(Path(given).absolute())
        try:
            return {"path": path, "sha256": hashlib.sha256(_content(path)).hexdigest()}
        except VitinitError as error:
            raise ValueError(str(error)) from None

    def tensors(self) -> Mapping[str, Tensor]:
        """Read all tensors, on the CPU.

        Raises:
            VitinitError: it cannot be read, is not what it was, or holds anything else.
        """
        return _tensors(self.path, self.sha256)


def _content(path: str) -> bytes:
    file = Path(path)
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for, a device has no end
            raise VitinitError(f"cannot read {path}: is not a file")
        return file.read_bytes()
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise VitinitError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


@lru_cache(maxsize=1)
def _tensors(path: str, sha256: str) -> Mapping[str, Tensor]:
    content = _content(path)
    found_sha256 = hashlib.sha256(content).hexdigest()
    if found_sha256 != sha256:
        raise VitinitError(
            f"weights: {path} is another file now: its sha256 begins with {found_sha256[:12]}, not {sha256[:12]}"
        )
    try:
        held = _loaded(content, path)
    except Exception as error:  # readers raise anything on damaged bytes
        raise VitinitError(
            f"weights: {path} is damaged, or holds more than tensors ({type(error).__name__}); write "
            "torch.save(model.state_dict(), FILE), or safetensors as FILE.safetensors"
        ) from None
    for key in INSIDE:
        if isinstance(held, Mapping) and isinstance(held.get(key), Mapping):
            held = held[key]
    if not isinstance(held, Mapping) or not any(isinstance(value, Tensor) for value in held.values()):
        raise VitinitError(f"weights: {path} holds no tensors by name, also not under {' or '.join(INSIDE)}")
    return {str(name): value for name, value in held.items() if isinstance(value, Tensor)}


def _loaded(content: bytes, path: str) -> Any:
    if not path.endswith(".safetensors"):
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    # the length of a JSON header, the header, then the numbers of all tensors
    start = 8 + int.from_bytes(content[:8], "little")
    header, numbers = json.loads(content[8:start]), memoryview(content)[start:]
    return {
        name: torch.frombuffer(bytearray(numbers[slice(*entry["data_offsets"])]), dtype=FLOATS[entry["dtype"]]).view(
            entry["shape"]
        )
        for name, entry in header.items()
        if entry.get("dtype") in FLOATS
    }


@register
class WeightSelection(Initializer):
    """Weight selection (Xu et al., arXiv 2311.18823, and its released code) from a local checkpoint of a larger model.

    Every tensor of the model but those of the classifier is made of evenly spaced elements of the checkpoint's tensor
    of the same name, in each of its dimensions: of T elements the S at 0, T/S, 2 T/S ... where S divides T, otherwise
    at k (T - 1) / (S - 1), rounded, halves to the even number. So of a deeper model the first blocks are selected.

    Traps. A checkpoint does not say how many heads it is of: with as many features a head as the larger model, a head
    gets every second feature of two heads of a model twice as wide. Of larger patches every so many-th pixel is taken.
    Fixed position embeddings are selected too, and those of another number of tokens are refused. The released code
    ran up to T at first, which failed; since its pull request 8 it ends at T - 1, as here.
    """

    name: ClassVar[str] = "weight_selection"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    deterministic: ClassVar[bool] = True
    condition: ClassVar[str] = "with a checkpoint of a larger model of the family: --weights FILE"

    weights: WeightsFile | None = None
    """The checkpoint: a path. It must be given."""
    qkv: Literal["fused", "per_matrix"] = "fused"
    """Selection where one tensor holds W_q, W_k and W_v: of its rows as one, as in the released code; or (ours) in each
    of the three alike, which differs where the width does not divide that of the larger model."""

    def check(self, model: nn.Module) -> None:
        """Refuse a model of which the checkpoint lacks a tensor, or has a smaller one."""
        larger = self._larger()
        places, own = position_name(model), _selected(model)
        for name, tensor in own.items():
            if name not in larger:
                raise self._refused(model, f"has no {name}: it is of another kind of model, or of fewer blocks")
            theirs, ours = tuple(larger[name].shape), tuple(tensor.shape)
            if len(theirs) != len(ours) or any(t < s for t, s in zip(theirs, ours, strict=True)):
                raise self._refused(
                    model, f"has {name} of {_sizes(theirs)}, which must be no smaller than {_sizes(ours)}"
                )
            if not larger[name].is_floating_point():
                raise self._refused(model, f"has {name} as {larger[name].dtype}: weights of a float type are needed")
            if name == places and theirs[-2] != ours[-2]:
                raise self._refused(model, f"has positions of {theirs[-2]} tokens, and the model has {ours[-2]}")
        if not own:
            raise self._refused(model, "is of no use: the model has a classifier alone")

    def _larger(self) -> Mapping[str, Tensor]:
        if self.weights is None:
            raise VitinitError(
                "method 'weight_selection' needs a checkpoint of a larger model: weights=FILE, on the command line "
                "--weights FILE"
            )
        return self.weights.tensors()

    def _refused(self, model: nn.Module, why: str) -> VitinitError:
        where = self.weights.path if self.weights else ""
        return VitinitError(f"method 'weight_selection' on {type(model).__name__}: {where} {why}")

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> None:
        """Overwrite everything but the classifier."""
        larger = self._larger()
        joined = _joined(model) if self.qkv == "per_matrix" else {}
        for name, tensor in _selected(model).items():
            chosen = larger[name]
            for dimension, size in enumerate(tensor.shape):
                parts = joined.get(name, 1) if dimension == 0 else 1
                kept = evenly(chosen.shape[dimension] // parts, size // parts)
                step = chosen.shape[dimension] // parts
                chosen = chosen.index_select(dimension, torch.cat([part * step + kept for part in range(parts)]))
            tensor.copy_(chosen)


def evenly(larger: int, smaller: int) -> Tensor:
    """Return the indices of the elements that are selected, as the released code computes them, in float32."""
    if larger % smaller == 0:
        return torch.arange(smaller) * (larger // smaller)
    return torch.round(torch.linspace(0, larger - 1, smaller)).long()


def _selected(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of numbers, without the classifier; writing into them changes the model."""
    heads = tuple(f"{path}." for path in classifiers(model))
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and not name.startswith(heads)
    }


def _joined(model: nn.Module) -> dict[str, int]:
    """The tensors that hold W_q, W_k and W_v, or their biases, and how many of them."""
    parts: dict[str, int] = {}
    for layer in attention_layers(model) if has_attention(model) else ():
        for part in (layer.kind.query, layer.kind.key, layer.kind.value):
            weight, bias = (found(layer.module, path) for path in (part.weight, part.bias))
            joined = [part.weight, part.bias] if bias is not None and len(bias) == len(weight) else [part.weight]
            parts |= {f"{layer.name}.{path}".lstrip("."): part.of for path in joined}
    return parts


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
