"""timm's VisionTransformer, never forked; the presets are those of arXiv 2404.01139."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitinit.benchmark.fields import Positive, Rate, Size
from vitinit.benchmark.models.registry import PRESETS, ModelSpec

if TYPE_CHECKING:
    from torch import nn


class Transformer(ModelSpec):
    """Blocks of multi-head attention and an MLP; no family by itself."""

    usual_qkv_bias: ClassVar[bool] = True
    """The value that tables do not mention."""

    heads: Size
    mlp_ratio: Positive = 4.0
    qkv_bias: Annotated[bool, Field(strict=True)] = True
    drop_rate: Rate = 0.0
    """Dropout before the classifier."""
    drop_path_rate: Rate = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Transformer:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        return self

    def timm_arguments(self, classes: int) -> dict[str, Any]:
        """The arguments that timm's ViT-like models have in common."""
        same = "patch_size", "depth", "mlp_ratio", "qkv_bias", "drop_rate", "drop_path_rate"
        named = {"img_size": self.image_size, "embed_dim": self.width, "num_heads": self.heads, "num_classes": classes}
        return named | {name: getattr(self, name) for name in same}

    def describe(self) -> str:
        """The model in one phrase, with what is unusual in its family."""
        return ", ".join([super().describe(), *self.unusual()])

    def unusual(self) -> list[str]:
        """Settings that tables mention."""
        if self.qkv_bias == self.usual_qkv_bias:
            return []
        return ["QKV bias" if self.qkv_bias else "no QKV bias"]

    @property
    def mixing(self) -> str:
        """Its heads."""
        return f"{self.heads} heads"

    @property
    def attention_maps(self) -> tuple[int, int, int, int]:
        """Between patches."""
        return self.depth, self.heads, self.grid**2, self.grid**2


class ViT(Transformer):
    """A Vision Transformer.

    A sin-cos position embedding is a buffer (not a parameter, not trained); the class token, where there is one, has
    then no position. With average pooling the final norm comes after the pool. With LayerScale (arXiv 2103.17239) what
    attention and MLP add is multiplied, feature by feature, by trained weights that start at `layer_scale`; bases and
    methods leave them there.
    """

    label = "ViT"
    presets = PRESETS["vit"]
    dense = True

    arch: Literal["vit"] = "vit"
    position: Literal["sincos", "learned"] = "sincos"
    """Position embedding."""
    pool: Literal["avg", "token"] = "avg"
    layer_scale: Positive | None = None
    """The paper's: 0.1 up to 18 blocks, 1e-5 at 24, 1e-6 above. None: there is no LayerScale."""

    @model_validator(mode="after")
    def _position_fits_the_width(self) -> ViT:
        if self.position == "sincos" and self.width % 4:
            raise ValueError(f"position 'sincos' needs a width divisible by 4, not {self.width}")
        return self

    def unusual(self) -> list[str]:
        """Settings that tables mention."""
        settings = [f"{self.position} positions"] if self.position != "sincos" else []
        settings += ["class token"] if self.pool == "token" else []
        settings += super().unusual()
        return [*settings, f"LayerScale {self.layer_scale:g}"] if self.layer_scale else settings

    @property
    def reads_patches(self) -> bool:
        """False where it answers by a class token."""
        return self.pool == "avg"

    def build(self, classes: int) -> nn.Module:
        """Timm's model, with sin-cos positions if they are asked for.

        These are features [sin(y b), sin(x b), cos(y b), cos(x b)] with bands b_i = 10000^(-i/(D/4)), of tokens in
        row-major order.
        """
        from timm.layers import build_sincos2d_pos_embed
        from timm.models.vision_transformer import VisionTransformer

        model = VisionTransformer(
            **self.timm_arguments(classes),
            global_pool=self.pool,
            class_token=self.pool == "token",
            no_embed_class=self.position == "sincos",
            init_values=self.layer_scale,
            weight_init="skip",
        )
        if self.position == "sincos":
            del model.pos_embed
            model.register_buffer("pos_embed", build_sincos2d_pos_embed([self.grid] * 2, self.width)[None])
        tokens_in_memory_order(model)
        return model


def tokens_in_memory_order(model: nn.Module) -> None:
    """Copy the patch embedding's output: without that every later addition and norm goes against the grain.

    It comes transposed from the convolution, and sums keep that order. Only rounding differs. On two CPU cores a step
    of ViT-T takes 3 to 7 % less time.
    """
    embedding: Any = model.patch_embed
    embedding.register_forward_hook(lambda _, __, tokens_BND: tokens_BND.contiguous())
