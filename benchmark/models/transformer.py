"""Fields, arithmetic and position embeddings of ViT-like families. Imports no torch before it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitinit.benchmark.fields import Count, Positive, Rate
from vitinit.benchmark.models.family import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor, nn


class Transformer(ModelSpec):
    """Blocks of multi-head attention and an MLP; no family by itself."""

    kind: ClassVar[str] = "transformer"
    telling: ClassVar[tuple[str, ...]] = ("width", "heads")
    later: ClassVar[Mapping[str, Any]] = {"proj_drop_rate": 0.0, "attn_drop_rate": 0.0}

    heads: Count
    mlp_ratio: Positive = 4.0
    qkv_bias: Annotated[bool, Field(strict=True)] = True
    position: Literal["sincos", "learned"] = "sincos"
    """Position embedding."""
    pool: Literal["avg", "token"] = "avg"
    drop_rate: Rate = 0.0
    """Dropout before the classifier."""
    drop_path_rate: Rate = 0.0
    proj_drop_rate: Rate = 0.0
    """Dropout behind every projection of attention and every Linear of an MLP."""
    attn_drop_rate: Rate = 0.0
    """Dropout of attention between tokens."""

    @model_validator(mode="after")
    def _consistent(self) -> Transformer:
        if self.hidden < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio:g} of width {self.width} leaves the MLP no feature")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.position == "sincos" and self.width % 4:
            raise ValueError(f"position 'sincos' needs a width divisible by 4, not {self.width}")
        return self

    def timm_arguments(self, classes: int) -> dict[str, Any]:
        """The arguments that timm's ViT-like models have in common."""
        return {
            "img_size": self.image_size,
            "patch_size": self.patch_size,
            "num_classes": classes,
            "embed_dim": self.width,
            "depth": self.depth,
            "num_heads": self.heads,
            "mlp_ratio": self.mlp_ratio,
            "qkv_bias": self.qkv_bias,
            "drop_rate": self.drop_rate,
            "drop_path_rate": self.drop_path_rate,
            "proj_drop_rate": self.proj_drop_rate,
            "attn_drop_rate": self.attn_drop_rate,
        }

    def describe(self) -> str:
        """The model in one phrase; also positions, class token and bias where they are not usual in its family."""
        words = {"position": f"{self.position} positions", "pool": "class token", "qkv_bias": "no QKV bias"}
        if self.pool == "avg":
            words["pool"] = "average pool"
        if self.qkv_bias:
            words["qkv_bias"] = "QKV bias"
        return ", ".join([super().describe(), *(words[n] for n in words if getattr(self, n) != self._usual(n))])

    @classmethod
    def _usual(cls, field: str) -> Any:
        """The value of a field in all presets of the family; where these differ, or there are none, its default."""
        default = cls.model_fields[field].default
        values = {preset.get(field, default) for preset in cls.presets.values()}
        return values.pop() if len(values) == 1 else default

    @property
    def hidden(self) -> int:
        """Features between the two layers of an MLP."""
        return int(self.width * self.mlp_ratio)

    @property
    def layer_tokens(self) -> list[int]:
        """Return the number of tokens that each block sees, from the input on, a class token included."""
        return [self.tokens + (self.pool == "token")] * self.depth

    @property
    def reads_patches(self) -> bool:
        """Not where it answers by a class token that the last layer has."""
        return self.layer_tokens[-1] <= self.tokens

    @property
    def size(self) -> int:
        """Count the parameters of patch embedding, positions, and every block's W_q, W_k, W_v, W_proj and MLP."""
        return self.width * (3 * self.patch_size**2 + self.tokens + self.depth * (4 * self.width + 2 * self.hidden))

    def forward_operations(self, classes: int) -> float:
        """Count the operations of the same, of attention and of the head."""
        outside = self.tokens * 3 * self.patch_size**2 * self.width + self.width * classes
        weights = 4 * self.width + 2 * self.hidden
        return 2.0 * (outside + sum(n * self.width * weights + 2 * n**2 * self.width for n in self.layer_tokens))

    @property
    def mixing(self) -> str:
        """Its heads."""
        return f"{self.heads} heads"

    @property
    def attention_maps(self) -> tuple[int, int, int, int]:
        """Between patches."""
        return self.depth, self.heads, self.tokens, self.tokens


def sincos(grid: int, width: int) -> Tensor:
    """The sin-cos position embedding, 1 x N x D, tokens in row-major order.

    Features [sin(y b), sin(x b), cos(y b), cos(x b)] with bands b_i = 10000^(-i/(D/4)).
    """
    from timm.layers import build_sincos2d_pos_embed

    return build_sincos2d_pos_embed([grid, grid], width)[None]


def tokens_in_memory_order(model: nn.Module) -> None:
    """Copy the patch embedding's output: without that every later addition and norm goes against the grain.

    It comes transposed from the convolution, and sums keep that order. Only rounding differs. On two CPU cores a step
    of ViT-T takes 3 to 7 % less time.
    """
    embedding: Any = model.patch_embed
    embedding.register_forward_hook(_contiguous)


def _contiguous(_: nn.Module, __: tuple[Tensor], tokens_BND: Tensor) -> Tensor:
    return tokens_BND.contiguous()
