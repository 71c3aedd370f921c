"""Softmax attention of any model, caught where PyTorch computes it: nothing has to be known of the model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

SOFTMAX = F.softmax, torch.softmax, Tensor.softmax
See = Callable[[Tensor, Tensor, int], None]
"""Called with logits, their softmax, and the dimension that it is over, counted from the end."""


class Softmaxes(TorchFunctionMode):
    """Context in which every softmax of this thread is shown, also that of fused attention.

    With a mode of this kind PyTorch leaves out the fast path of `nn.MultiheadAttention`, which shows none.
    """

    def __init__(self, see: See) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry a function out; show it, where it has a softmax."""
        named = kwargs or {}
        out = func(*args, **named)
        if func in SOFTMAX:
            given = {**dict(zip(("input", "dim"), args, strict=False)), **named}
            logits, dim = given["input"], given.get("dim")
            if dim is not None:  # which PyTorch then guesses
                self.see(logits.detach(), out.detach(), dim % logits.ndim - logits.ndim)
        elif func is F.scaled_dot_product_attention:
            self._fused(*args, **named)
        elif func is F.multi_head_attention_forward:
            with torch.no_grad():
                whole = {**named, "training": False, "need_weights": True, "average_attn_weights": False}
                attention: Any = func(*args, **whole)[1]
            self.see(attention.log(), attention, -1)
        return out

    @torch.no_grad()
    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones_like(logits, dtype=torch.bool).tril()
        if attn_mask is not None:
            free = attn_mask.dtype == torch.bool
            logits = logits.masked_fill(~attn_mask, -torch.inf) if free else logits + attn_mask
        self.see(logits, logits.softmax(-1), -1)
