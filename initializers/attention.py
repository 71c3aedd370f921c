"""One view on the attention of every supported model: timm's ViT and DeiT (fused qkv) and ConViT (GPSA and SA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from initializers.errors import VitinitError

AT_ONCE = 8
"""Images whose attention maps are held at once: those of all would not fit where there are many tokens."""


@dataclass(frozen=True)
class AttentionLayer:
    """Weights of one attention layer as views: writing into them (under `torch.no_grad`) changes the model.

    H heads of d features, width D = H d. A token x is a row: queries are x W_q^T, and the layer maps x to
    sum over heads of A_h x W_v,h^T W_proj,h^T.
    """

    name: str
    module: Any
    """timm's Attention, MHSA or GPSA."""

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return int(self.module.num_heads)

    @property
    def gated(self) -> bool:
        """Whether this is gated positional self-attention (ConViT)."""
        return hasattr(self.module, "gating_param")

    def _stacked(self) -> tuple[Tensor, int]:
        linear = self.module.qk if self.gated else self.module.qkv
        return linear.weight, 2 if self.gated else 3

    @property
    def query_HdD(self) -> Tensor:
        """W_q, heads x d x D."""
        weight, parts = self._stacked()
        return weight.view(parts, self.heads, -1, weight.shape[1])[0]

    @property
    def key_HdD(self) -> Tensor:
        """W_k, heads x d x D."""
        weight, parts = self._stacked()
        return weight.view(parts, self.heads, -1, weight.shape[1])[1]

    @property
    def value_DD(self) -> Tensor:
        """W_v, D x D; rows h*d to (h+1)*d belong to head h."""
        if self.gated:
            return self.module.v.weight
        weight, parts = self._stacked()
        return weight.view(parts, -1, weight.shape[1])[2]

    @property
    def proj_DD(self) -> Tensor:
        """W_proj, D x D; columns h*d to (h+1)*d belong to head h."""
        return self.module.proj.weight

    @torch.no_grad()
    def attention(self, x_BND: Tensor) -> Tensor:
        """The layer's own attention map on its input, biases and gating included: B x H x N x N."""
        if self.gated:
            if self.module.rel_indices.shape[1] != x_BND.shape[1]:
                self.module.rel_indices = self.module.get_rel_indices(x_BND.shape[1])
            return self.module.get_attention(x_BND)
        batch, tokens, _ = x_BND.shape
        query, key, _ = self.module.qkv(x_BND).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if hasattr(self.module, "q_norm"):
            query, key = self.module.q_norm(query), self.module.k_norm(key)
        return (query @ key.transpose(-1, -2) * self.module.scale).softmax(-1)


def has_attention(model: nn.Module) -> bool:
    """Whether the model has attention layers, of a known kind or not; a ConvMixer has none."""
    return any(hasattr(module, "num_heads") for module in model.modules())


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Every attention layer of a model, from the input on.

    Raises:
        VitinitError: the model has none of a known kind.
    """
    layers = [
        AttentionLayer(name, module)
        for name, module in model.named_modules()
        if hasattr(module, "num_heads")
        and hasattr(module, "proj")
        and (hasattr(module, "qkv") or hasattr(module, "qk"))
    ]
    if not layers:
        raise VitinitError(f"{type(model).__name__} has no attention layer of a known kind (timm ViT, DeiT or ConViT)")
    return layers


def token_grid(model: nn.Module) -> tuple[int, int]:
    """Rows and columns of the token grid."""
    patch_embed: Any = model.patch_embed
    rows, columns = patch_embed.grid_size
    return int(rows), int(columns)


def position_embedding(model: nn.Module, class_row: bool = False) -> Tensor:
    """The position embedding of the patch tokens, N x D, row-major over the token grid; a view.

    With `class_row` the row of the class token, where there is one, stands before them.

    Raises:
        VitinitError: the model has none.
    """
    embedding = getattr(model, "pos_embed", None)
    if not isinstance(embedding, Tensor):
        raise VitinitError(f"{type(model).__name__} has no absolute position embedding")
    rows, columns = token_grid(model)
    return embedding.detach()[0, 0 if class_row else embedding.shape[1] - rows * columns :]


@contextmanager
def evaluated(model: nn.Module, hooks: Sequence[RemovableHandle] = ()) -> Iterator[None]:
    """The model in evaluation mode; afterwards it is as it was, without the hooks."""
    training = model.training
    try:
        model.eval()
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)


class _Reached(Exception):
    """Ends a forward pass where its input to a layer is known."""


@torch.no_grad()
def attention_input(model: nn.Module, images_BCHW: Tensor, layer: int = 0) -> Tensor:
    """What an attention layer, by default the first, receives from these images: B x N x D, class token left out."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0].detach())
        raise _Reached  # the rest of a large model would take minutes

    hook = attention_layers(model)[layer].module.register_forward_pre_hook(keep)
    with evaluated(model, [hook]), suppress(_Reached):
        model(images_BCHW)
    rows, columns = token_grid(model)
    return seen[0][:, seen[0].shape[1] - rows * columns :]


@torch.no_grad()
def each_attention(model: nn.Module, images_BCHW: Tensor, see: Callable[[int, AttentionLayer, Tensor], None]) -> None:
    """Show the attention of every layer while the model sees these images, a few of them at a time.

    Args:
        model: evaluated; it is left as it was.
        images_BCHW: all of them, on the model's device.
        see: called as see(number of the layer, layer, its map b x H x N x N, class token included).
    """
    hooks = [
        layer.module.register_forward_pre_hook(
            lambda _, inputs, number=number, layer=layer: see(number, layer, layer.attention(inputs[0]))
        )
        for number, layer in enumerate(attention_layers(model))
    ]
    with evaluated(model, hooks):
        for few_BCHW in images_BCHW.split(AT_ONCE):
            model(few_BCHW)


def mean_attention(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Attention of all layers between patch tokens, mean over these images: layers x heads x N x N, float32.

    As the model computes it: where there is a class token, what the tokens give to it is missing from their rows.
    """
    layers = attention_layers(model)
    rows, columns = token_grid(model)
    tokens = rows * columns
    sums_LHNN = torch.zeros(len(layers), layers[0].heads, tokens, tokens, device=images_BCHW.device)

    def add(number: int, _: AttentionLayer, attention_bHNN: Tensor) -> None:
        sums_LHNN[number] += attention_bHNN[:, :, -tokens:, -tokens:].sum(0)

    each_attention(model, images_BCHW, add)
    return sums_LHNN / len(images_BCHW)
