"""timm's Swin Transformer, the first version (arXiv 2103.14030); the sizes are timm's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitinit.benchmark.fields import Count, Positive, Rate
from vitinit.benchmark.models.family import ModelSpec

if TYPE_CHECKING:
    from torch import nn

USUAL_WINDOW = 7
"""Tokens a side of timm's at 224 pixels."""


class Swin(ModelSpec):
    """Stages of attention in windows, shifted in every other block; tokens are merged 2 x 2 between stages.

    `width` and `heads` are those of the first stage; each stage has twice as many as the one before. Windows fill the
    token grid of every stage: where they do not, timm would pad it with zeros that tokens attend to, and the spec is
    refused here. A stage that is smaller than a window is one window.
    """

    label: ClassVar[str] = "Swin"
    kind: ClassVar[str] = "attention in windows"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "swin_micro": {"width": 24, "depths": [2, 2], "heads": 2},  # CPU-sized, ours
        "swin_tiny": {"width": 96, "depths": [2, 2, 6, 2], "heads": 3},
        "swin_small": {"width": 96, "depths": [2, 2, 18, 2], "heads": 3},
        "swin_base": {"width": 128, "depths": [2, 2, 18, 2], "heads": 4},
    }
    telling: ClassVar[tuple[str, ...]] = ("width", "heads", "window_size")
    later: ClassVar[Mapping[str, Any]] = {"proj_drop_rate": 0.0, "attn_drop_rate": 0.0}

    arch: Literal["swin"] = "swin"
    depths: Annotated[tuple[Count, ...], Field(min_length=1, max_length=12)]
    """Blocks of each stage. `depth`, their sum, need not be given."""
    heads: Count
    window_size: Count
    """Tokens a side. If it is not given: the most of at most 7 that fill every stage's grid, 4 of 8 x 8 tokens; where
    none does, the whole grid, so that attention is among all tokens."""
    mlp_ratio: Positive = 4.0
    qkv_bias: Annotated[bool, Field(strict=True)] = True
    drop_rate: Rate = 0.0
    """Dropout before the classifier."""
    drop_path_rate: Rate = 0.0
    proj_drop_rate: Rate = 0.0
    """Dropout behind every projection of attention and every Linear of an MLP."""
    attn_drop_rate: Rate = 0.0
    """Dropout of attention between tokens."""

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = dict(given)
        depths, image_size, patch_size = (fields.get(name) for name in ("depths", "image_size", "patch_size"))
        if "depth" not in fields and isinstance(depths, list | tuple) and all(type(depth) is int for depth in depths):
            fields["depth"] = sum(depths)
        if "window_size" not in fields and isinstance(image_size, int) and isinstance(patch_size, int) and patch_size:
            first = max(image_size // patch_size, 1)
            grids = [first // 2**stage for stage in range(len(depths) if isinstance(depths, list | tuple) else 1)]
            sides = (side for side in range(USUAL_WINDOW, 1, -1) if first % side == 0)
            fits = (side for side in sides if all(grid <= side or grid % side == 0 for grid in grids))
            fields["window_size"] = next(fits, first)
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> Swin:
        if self.depth != sum(self.depths):
            raise ValueError(f"depth {self.depth} is not the sum of depths {list(self.depths)}; leave it out")
        if self.hidden(0) < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio:g} of width {self.width} leaves the MLP no feature")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        for stage, grid in enumerate(self.grids, 1):
            if stage < len(self.depths) and grid % 2:
                raise ValueError(f"stage {stage} has {grid} x {grid} tokens, which cannot be merged two by two")
            if grid > self.window_size and grid % self.window_size:
                raise ValueError(f"window_size {self.window_size} does not divide the side {grid} of stage {stage}")
        return self

    @property
    def grids(self) -> list[int]:
        """Side of the token grid of each stage."""
        return [self.grid // 2**stage for stage in range(len(self.depths))]

    @property
    def windows(self) -> list[int]:
        """Side of the windows of each stage."""
        return [min(grid, self.window_size) for grid in self.grids]

    def hidden(self, stage: int) -> int:
        """Features between the two layers of a stage's MLP."""
        return int(self.width * 2**stage * self.mlp_ratio)

    def _weights(self, stage: int) -> int:
        """Count the parameters of a block's W_q, W_k, W_v, W_proj and MLP."""
        width = self.width * 2**stage
        return 4 * width**2 + 2 * width * self.hidden(stage)

    def _merging(self, stage: int) -> int:
        """Weights that merge tokens into those of a stage."""
        return 8 * (self.width * 2 ** (stage - 1)) ** 2 if stage else 0

    @property
    def size(self) -> int:
        """Count the parameters of patch embedding, merging, relative position biases, and every block's weights."""
        stages = enumerate(zip(self.depths, self.windows, strict=True))
        return 3 * self.patch_size**2 * self.width + sum(
            depth * (self._weights(stage) + (2 * window - 1) ** 2 * self.heads * 2**stage) + self._merging(stage)
            for stage, (depth, window) in stages
        )

    def forward_operations(self, classes: int) -> float:
        """Count the operations of the same, of attention and of the head."""
        head = self.width * 2 ** (len(self.depths) - 1) * classes
        operations = self.tokens * 3 * self.patch_size**2 * self.width + head
        for stage, (depth, grid, window) in enumerate(zip(self.depths, self.grids, self.windows, strict=True)):
            attention = 2 * window**2 * self.width * 2**stage
            operations += grid**2 * (depth * (self._weights(stage) + attention) + self._merging(stage))
        return 2.0 * operations

    @property
    def mixing(self) -> str:
        """Heads and windows of the first stage."""
        return f"{self.heads} heads in windows of {self.windows[0]} x {self.windows[0]}"

    def build(self, classes: int) -> nn.Module:
        """Timm's model."""
        from timm.models.swin_transformer import SwinTransformer

        return SwinTransformer(
            img_size=self.image_size,
            patch_size=self.patch_size,
            num_classes=classes,
            embed_dim=self.width,
            depths=self.depths,
            num_heads=tuple(self.heads * 2**stage for stage in range(len(self.depths))),
            window_size=self.window_size,
            mlp_ratio=self.mlp_ratio,
            qkv_bias=self.qkv_bias,
            drop_rate=self.drop_rate,
            drop_path_rate=self.drop_path_rate,
            proj_drop_rate=self.proj_drop_rate,
            attn_drop_rate=self.attn_drop_rate,
            weight_init="skip",
        )
