"""Base model and field types of specs and records: frozen models, bounded numbers and texts. Imports no torch."""

import json
import unicodedata
from collections import Counter
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vitinit.initializers.errors import explain

# Strict, so that `true` is no 1. Bounded, so that what is computed with a number holds it: of floats, float32.
Count = Annotated[int, Field(strict=True, gt=0, le=10**12)]
Size = Annotated[int, Field(strict=True, gt=0, le=10_000)]
WholeNumber = Annotated[int, Field(strict=True, ge=0, le=10**12)]
Positive = Annotated[float, Field(strict=True, gt=0, le=1e30)]
NotNegative = Annotated[float, Field(strict=True, ge=0, le=1e30)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=1)]
Rate = Annotated[float, Field(strict=True, ge=0, lt=1)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FolderName = Annotated[str, Field(pattern=r"^[\w.-]*\w[\w.-]*$")]
"""A name that becomes a folder, and cannot lead out of the one that it is in."""


def printable(text: str) -> str:
    """Return a name as `spelled`.

    Raises:
        ValueError: it is empty, or no printable text on one line.
    """
    if not text.strip() or not text.isprintable():
        raise ValueError("is to be printable text on one line, not empty")
    return spelled(text)


def spelled(text: str) -> str:
    """Return a text with its letters in one spelling (Unicode NFC) and single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


Name = Annotated[str, Field(max_length=80), AfterValidator(printable)]
"""Name of a row, for tables, figures and file names."""


def once(values: list[Any], noun: str) -> list[Any]:
    """Refuse duplicates: each would be counted once."""
    try:
        counts = Counter(values).most_common(1)
    except TypeError:  # lists or mappings
        counts = [(value, values.count(value)) for value in values]
    for value, times in counts:
        if times > 1:
            raise ValueError(f"{noun} {value!r} is there {times} times")
    return values


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Refuse NaN and infinities."""
    try:
        json.dumps(values, allow_nan=False, default=str)
    except ValueError:
        raise ValueError("holds a number that is infinite or none") from None
    return values


def is_folder_name(text: str) -> bool:
    """Return True if a name may become a folder: by pydantic, to which ² is no letter."""
    try:
        TypeAdapter(FolderName).validate_python(text)
    except ValidationError:
        return False
    return True


class Frozen(BaseModel):
    """Immutable, strict about unknown fields, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Model = TypeVar("Model", bound=BaseModel)


def parsed(model: type[Model], fields: Any, where: str) -> Model:
    """Return a model of some fields.

    Raises:
        VitinitError: they are not its; one line, which begins with `where`.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise explain(error, where, model) from None


def named(value: Any) -> Any:
    """Return `mimetic`, `{name: mimetic, parts: qk}` or `{python: FILE}` as a mapping with a name; else what it is.

    Raises:
        ValueError: it is a mapping without a name, or with two.
    """
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        return value
    name = value.get("name", value.get("python"))
    if not isinstance(name, str):
        raise ValueError("needs a name: NAME, or {name: NAME, ...}")
    if "name" in value and "python" in value:
        raise ValueError(f"name {value['name']!r} and python {value['python']!r} are two names of one thing; give one")
    return {"name": name, **{key: field for key, field in value.items() if key not in ("name", "python")}}
