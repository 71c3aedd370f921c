"""InitReport: what an initialisation did, and how close its attention is to the method's aim. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1.0001)]
"""A share of 1; the slack is float32 rounding of sums of attention weights."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Fidelity(_Frozen):
    """Fidelity of the first layer's attention to its targets `H`."""

    mse: NonNegative
    """Mean squared error between attention map and H, over all heads and cells."""
    mass: Share
    """Mean attention mass on the target token, over the queries that have one inside the grid."""
    argmax: Share
    """Share of those queries whose largest entry is the target."""


class LayerNorms(_Frozen):
    """Frobenius norms of W_q and W_k of one attention layer, one value per head."""

    layer: str
    query: list[NonNegative]
    key: list[NonNegative]


class Spectra(_Frozen):
    """Spectrum of one product of weights of a layer, one value per head; or of one weight, one value."""

    norm: list[NonNegative]
    """Frobenius norm of each head."""
    rank: list[int]
    """Singular values above rounding."""
    condition: list[NonNegative | None]
    """The largest singular value over the smallest above rounding; None of a zero matrix."""


class LayerStart(_Frozen):
    """One attention layer as training finds it. Entropy and distance are those of patch tokens; None without images."""

    layer: str
    query_key: Spectra
    """Spectrum of W_q^T W_k of a head, D x D."""
    value_path: Spectra
    """Spectrum of W_proj W_v of a head, D x D."""
    entropy: list[NonNegative | None] | None = None
    """Entropy of attention on the images, in nats, mean over queries and images, one value per head."""
    distance: list[NonNegative | None] | None = None
    """Mean distance between query and key on the images, weighted by attention, in tokens, one value per head."""


class MatchedEntropy(_Frozen):
    """Match of a placebo's attention entropy to that of its method in one layer, on training images."""

    layer: str
    scale: NonNegative
    """Times the method's norm: W_q and W_k of the placebo, as far as the method sets them."""
    method: NonNegative
    """Entropy in nats, mean over heads, queries and images."""
    placebo: NonNegative


class ReplacedWeight(_Frozen):
    """A weight outside attention that a placebo replaced, as a matrix of (out, rest)."""

    name: str
    method: Spectra
    placebo: Spectra


class PlaceboReport(_Frozen):
    """Method that a placebo stands for, and what the placebo did to its tensors."""

    of: dict[str, Any]
    keep: str
    treated: dict[str, str]
    """Treatment of each tensor that the method changed: `rotated`, `gaussian`, or `kept` as the method set it."""
    method: list[LayerStart]
    """The method itself, measured as `InitReport.start` is: the placebo's."""
    matched: list[MatchedEntropy] = []
    weights: list[ReplacedWeight] = []
    """Weights of `treated` that were replaced and that `method` does not measure, in older records."""


class InitReport(_Frozen):
    """Report of the initialisation of one model."""

    seconds: NonNegative
    """Base and method together, measuring left out; of a solution that was read, what solving took when it was done."""
    cached: bool = False
    """True where a solution was read that an earlier run had computed from the same inputs."""
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
    """Number of images that `real_images` and `offset_maps` are averaged over."""
    offset_maps: list[list[list[Share]]] | None = None
    """heads x (2r+1) x (2r+1): mean mass that a query of the first layer puts on the token at each (row, column)
    offset, on the images; a mean over the queries whose token at that offset is inside the grid."""
    start: list[LayerStart] = []
    """Statistics of every attention layer, on the same images."""
    placebo: PlaceboReport | None = None
