"""What specs and records are made of: frozen models, and numbers and texts with bounds. Imports no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Strict, so that `true` is no 1. Bounded, so that what is computed with a number holds it: of floats, float32.
Count = Annotated[int, Field(strict=True, gt=0, le=10**12)]
WholeNumber = Annotated[int, Field(strict=True, ge=0, le=10**12)]
Positive = Annotated[float, Field(strict=True, gt=0, le=1e30)]
NotNegative = Annotated[float, Field(strict=True, ge=0, le=1e30)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=1)]
Rate = Annotated[float, Field(strict=True, ge=0, lt=1)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FOLDER_NAME = r"^[\w.-]*\w[\w.-]*$"
"""Pattern of names that become folders and cannot lead out of the one that they are in."""


class Frozen(BaseModel):
    """Immutable, strict about unknown fields, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
