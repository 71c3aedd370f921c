"""Method `conv_filters`: spatial filters of a ConvMixer that need not be trained."""

from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Generator, nn

from vitinit.initializers.attention import family
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import draw_uniform_


@register
class ConvFilters(Initializer):
    """Depthwise spatial filters of a ConvMixer (Zheng, Li and Lucey, arXiv 2404.01139, and its released code).

    Every filter of f x f entries is drawn on its own:

    - `random`: entries U(+-1/f);
    - `impulse`: one entry sqrt(1/f), the others 0, its place uniform;
    - `box`: `entries` (n) distinct entries sqrt(1/(n f)), the others 0, their places uniform;
    - `gaussian`: exp(-((p - c1)^2 + (q - c2)^2) / (2 variance)) at row p and column q, its centre (c1, c2) a uniform
      place; then all filters of a layer are divided by sqrt(f times the mean of their squared norms).

    Biases of these filters are U(+-1/f). Everything else keeps its base.
    """

    name = "conv_filters"
    touches = ("*.fn.0.weight", "*.fn.0.bias")

    filter: Literal["random", "impulse", "box", "gaussian"] = "impulse"
    frozen: bool = True
    """Filters and their biases stay as they start; only the rest of the model is trained."""
    entries: PositiveInt | None = None
    """Number of entries of a `box`, which needs it: f^2 fills the filter."""
    variance: PositiveFloat | None = None
    """Variance of a `gaussian`, which needs it, in entries squared."""

    @model_validator(mode="after")
    def _consistent(self) -> "ConvFilters":
        for field, owner in (("entries", "box"), ("variance", "gaussian")):
            if (self.filter == owner) != (getattr(self, field) is not None):
                raise ValueError(f"filter {owner!r} needs {field}, and no other filter takes it")
        return self

    def check(self, model: nn.Module) -> None:
        """Refuse models without spatial filters, and a box of more entries than a filter has."""
        filters, known = spatial_filters(model), family(model)
        if not filters or not known or not known.adapter.filters:
            raise VitinitError(
                "method 'conv_filters' sets depthwise convolutions that alone mix the tokens, and "
                f"{type(model).__name__} has none; choose a ConvMixer (in a grid arch 'convmixer')"
            )
        size = filters[0].weight[0].numel()
        if self.entries and self.entries > size:
            raise VitinitError(f"method 'conv_filters': {self.entries} entries do not fit in a filter of {size}")

    def freeze(self, model: nn.Module) -> None:
        """Exclude the filters and their biases from training, where `frozen`."""
        for layer in spatial_filters(model) if self.frozen else ():
            layer.requires_grad_(False)

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Overwrite weight and bias of every depthwise convolution."""
        for layer in spatial_filters(model):
            channels, _, side, _ = layer.weight.shape
            if self.filter == "random":
                draw_uniform_(layer.weight, 1 / side, generator)
            else:
                places_DL = torch.rand(channels, side**2, generator=generator).argsort(1)  # L places, row by row
                if self.filter == "gaussian":
                    row_L, column_L = torch.arange(side**2) // side, torch.arange(side**2) % side
                    squared_LL = (row_L[:, None] - row_L) ** 2 + (column_L[:, None] - column_L) ** 2
                    filters_DL = torch.exp(squared_LL[places_DL[:, 0]] / (-2 * (self.variance or 1)))
                    filters_DL /= (filters_DL.square().sum(1).mean() * side).sqrt()
                else:
                    count = self.entries or 1
                    filters_DL = torch.zeros(channels, side**2).scatter(1, places_DL[:, :count], (count * side) ** -0.5)
                layer.weight.copy_(filters_DL.view_as(layer.weight))
            if layer.bias is not None:
                draw_uniform_(layer.bias, 1 / side, generator)


def spatial_filters(model: nn.Module) -> list[nn.Conv2d]:
    """The depthwise convolutions of a model, from the input on."""
    return [
        layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1
    ]
