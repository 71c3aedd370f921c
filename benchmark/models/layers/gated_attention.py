"""ConViT's two attentions through `scaled_dot_product_attention`: timm's weights and names, less time and memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from timm.models.convit import GPSA, MHSA, ConVit
from torch import Tensor
from torch.nn import functional as F

Term = Literal["content", "position"]


class FusedGPSA(GPSA):
    """timm's gated positional self-attention, without storing an image's attention: a head's output is linear in it.

    The output of a head is (1 - s) A v + s P v with s = sigmoid(gate), A the content attention and P the positional one
    (arXiv 2103.10697, equations 6 and 7). timm mixes A and P first, for every image anew, and divides by their sum,
    which is 1. P is the same for every image, and depends on offsets between tokens alone.
    """

    same_attention = True
    left_out: Term | None = None
    """One of the two terms: the other then has all of the attention. See `leaving_out`."""

    def forward(self, x_BND: Tensor) -> Tensor:
        """B x N x D in and out."""
        batch, tokens, width = x_BND.shape
        query, key = self.qk(x_BND).view(batch, tokens, 2, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        value_BHNd = self.v(x_BND).view(batch, tokens, self.num_heads, -1).transpose(1, 2)
        position_HNN = self.pos_proj(self.rel_indices[0]).permute(2, 0, 1).softmax(-1)
        share_H = self.gating_param.sigmoid()  # of positional attention
        if self.left_out:
            share_H = torch.full_like(share_H, float(self.left_out == "content"))
        gate_HNN = share_H[:, None, None]
        content_BHNd = F.scaled_dot_product_attention(query, key, value_BHNd)
        local_BHNd = torch.einsum("hnm,bhmd->bhnd", gate_HNN * position_HNN, value_BHNd)
        mixed_BHNd = (1 - gate_HNN) * content_BHNd + local_BHNd
        return self.proj_drop(self.proj(mixed_BHNd.transpose(1, 2).reshape(batch, tokens, width)))


class FusedMHSA(MHSA):
    """timm's self-attention of ConViT's last layers."""

    same_attention = True

    def forward(self, x_BND: Tensor) -> Tensor:
        """B x N x D in and out."""
        batch, tokens, width = x_BND.shape
        query, key, value = self.qkv(x_BND).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        attended_BHNd = F.scaled_dot_product_attention(query, key, value)
        return self.proj_drop(self.proj(attended_BHNd.transpose(1, 2).reshape(batch, tokens, width)))


def fuse_attention(model: ConVit) -> ConVit:
    """Give the attention layers of a model these forward passes; returns it.

    The offsets between tokens are set here and not, as timm's are, by the first forward pass: from one that evaluates
    they would be unfit for training.
    """
    for block in model.blocks:
        attention = block.attn
        attention.__class__ = FusedGPSA if block.use_gpsa else FusedMHSA
        if isinstance(attention, FusedGPSA):
            attention.rel_indices = attention.get_rel_indices(model.patch_embed.num_patches)
    return model


@contextmanager
def leaving_out(model: ConVit, term: Term, layers: int) -> Iterator[None]:
    """Evaluate without one term of attention in the first GPSA layers (arXiv 2103.10697, Table 6).

    Without content a head attends by position alone, without position by content alone. Attention maps and probes that
    are read meanwhile are those of the whole model.

    Args:
        model: one of `fuse_attention`.
        term: what is left out.
        layers: of so many GPSA layers, from the input on.
    """
    gated = [module for module in model.modules() if isinstance(module, FusedGPSA)][:layers]
    for attention in gated:
        attention.left_out = term
    try:
        yield
    finally:
        for attention in gated:
            attention.left_out = None
