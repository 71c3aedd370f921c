"""InitReport: what an initialisation did, and how close its attention is to the method's aim. Imports no torch."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1.0001)]
"""A share of 1; the slack is float32 rounding of sums of attention weights."""


class _Frozen(BaseModel):
    # extra: older records hold what nothing reads any more
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Fidelity(_Frozen):
    """Fidelity of the first layer's attention to its targets `H`."""

    mass: Share
    """Mean attention mass on the target token, over the queries that have one inside the grid."""


class LayerNorms(_Frozen):
    """Frobenius norms of W_q of one attention layer, one value per head."""

    layer: str
    query: list[NonNegative]


class InitReport(_Frozen):
    """Report of the initialisation of one model."""

    seconds: NonNegative
    """Base and method together, measuring left out."""
    norms: list[LayerNorms]
    pseudo_input: Fidelity | None = None
    """On the pseudo-input that the method solved on, else on the LayerNormed position embedding; without biases, as
    the solvers see it. None where there is no target."""
    real_images: Fidelity | None = None
    """On what the first attention layer gets from real images (LayerNormed content plus position embedding), biases
    included. None where there is no target or no image was given."""
    images: int = 0
    """Number of images that `real_images` and `offset_maps` are averaged over."""
    offset_maps: list[list[list[Share]]] | None = None
    """heads x (2r+1) x (2r+1): mean mass that a query of the first layer puts on the token at each (row, column)
    offset, on the images; a mean over the queries whose token at that offset is inside the grid."""
    start: list[dict[str, Any]] = []
    """Older records only: entropy and distance of every attention layer, which the first probe holds now."""
    remarks: list[str] = []
    """Remarks of base and method on what they set, as that most of a model is in convolutions."""
