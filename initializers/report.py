"""InitReport: what an initialisation did, and how close its attention is to the method's aim. Imports no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1.0001)]
"""A share of 1; the slack is float32 rounding of sums of attention weights."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Fidelity(_Frozen):
    """How close the first layer's attention is to its targets `H`."""

    mse: NonNegative
    """Mean squared error between attention map and H, over all heads and cells."""
    mass: Share
    """Mean attention mass on the target token, over the queries that have one inside the grid."""
    argmax: Share
    """Share of those queries whose largest entry is the target."""


class LayerNorms(_Frozen):
    """Frobenius norms of W_q and W_k of one attention layer, one value a head."""

    layer: str
    query: list[NonNegative]
    key: list[NonNegative]


class InitReport(_Frozen):
    """What initialisation did to one model."""

    seconds: NonNegative
    """Base and method together, measuring left out; of a solution that was read, what solving took when it was done."""
    cached: bool = False
    """Whether a solution was read that an earlier run had computed from the same inputs."""
    method_parameters: list[str]
    """Names of the parameters and buffers whose values the method changed; the base set all of them."""
    norms: list[LayerNorms]
    pseudo_input: Fidelity | None = None
    """On the pseudo-input that the method solved on, else on the LayerNormed position embedding; without biases, as
    the solvers see it. None where there is no target."""
    real_images: Fidelity | None = None
    """On what the first attention layer gets from real images (LayerNormed content plus position embedding), biases
    included. None where there is no target or no image was given."""
    images: int = 0
    """How many images `real_images` and `offset_maps` are averaged over."""
    offset_maps: list[list[list[Share]]] | None = None
    """heads x (2r+1) x (2r+1): mean mass that a query of the first layer puts on the token at each (row, column)
    offset, on the images; a mean over the queries whose token at that offset is inside the grid."""
