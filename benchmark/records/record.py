"""The record of a run: one JSON, the only thing that `analysis` ever reads. Imports no torch.

`to_bytes` and `from_bytes` are the way into a file and out of it. The last line of a file is a digest of what stands
above it, so that a flipped bit that leaves valid JSON is noticed too::

     "digest": "blake2b over every byte before the comma that ends the line above"
    }

A file without it is no record. It is no signature: whoever changes a number and computes the digest anew has made
another record, and only what does not fit together gives it away (`RunRecord`), or repeating the run (`vitinit
reproduce`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticSerializationError

from vitinit.benchmark.fields import FolderName, Fraction, Frozen, Sha256
from vitinit.benchmark.metrics import registry as metrics
from vitinit.benchmark.metrics.registry import AVERAGED
from vitinit.benchmark.records.epoch import RESULTS, EpochRow, Percent, results
from vitinit.benchmark.spec import SCHEMA_VERSION, RunSpec
from vitinit.initializers.errors import VitinitError, explain
from vitinit.initializers.report import InitReport, Share

PerHead = list[list[NonNegativeFloat | None]]
"""None: no number, as of a query that gives all its attention to the class token."""


def _share_of(percent: float, images: int) -> bool:
    """Return True if a number of whole images can have this share, up to rounding."""
    count = percent * images / 100
    return abs(count - round(count)) < 1e-6


def _is_bitmap(text: str, percent: float, images: int) -> bool:
    """Check a bitmap of correct images: its length, the bits beyond the last image, and the share of those set."""
    try:
        packed = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    beyond, bits = -images % 8, int.from_bytes(packed, "big")
    whole = 8 * len(packed) == images + beyond and not bits & ((1 << beyond) - 1)
    return whole and abs(100 * bits.bit_count() / images - percent) < 1e-6


def _finite(values: Any) -> Any:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, dict | list):
            _finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"holds {value}, which JSON cannot")
    return values


Details = Annotated[dict[str, Any], AfterValidator(_finite)]
"""Free fields, for people and for export."""


class Probe(Frozen):
    """Attention after an epoch, on a few test images that are the same in every run on a dataset.

    Lists have one entry per layer, from the input on; in it one per head, or a number. Attention is that among patch
    tokens: where there is a class token, its column is left out and rows are divided by what remains. Distances are in
    tokens; those of attention in windows are within a window, in tokens of their stage.
    """

    epoch: NonNegativeInt
    """Counted from 1; 0 is before the first."""
    images: PositiveInt
    nonlocality: PerHead
    """Mean distance of a query's attention: sum over i, j of `A_ij |i - j| / N` (arXiv 2103.10697, equation 8)."""
    nonlocality_reference: PerHead | None = None
    """The same of what the released ConViT code feeds to every layer: the patch embedding, without position, LayerNorm
    or the layers before. None where attention is in windows."""
    attention_entropy: PerHead
    """In nats, of a query's attention in one image; ln N where it is uniform."""
    effective_receptive_field: list[NonNegativeFloat] | None = None
    """Effective receptive field of the central token, in this block: mean distance weighted by
    the absolute gradient with respect to the pixels. Of `receptive_field_images` images."""
    receptive_field: list[NonNegativeFloat] | None = None
    """In records of before, in its place: the same of the plain sum over features, which no LayerNorm lets through."""
    receptive_field_images: PositiveInt
    impulse_mass: list[list[Share | None]] | None = None
    """Attention left on the method's target, a mean over the queries that have one inside the grid; of the layers that
    have a target, which come first. None where the method, or a head, has none."""
    gating: list[list[Fraction]] | None = None
    """Sigmoid of the gate: share of positional attention; of the GPSA layers, which come first. None without them."""
    more: dict[str, list[float | None] | list[list[float | None]]] = Field(default_factory=dict)
    """Values of probes that have no field here, by name: numbers by layer, or by layer and head. None: not finite."""
    seconds: NonNegativeFloat
    """Seconds that the probes took; not part of the epoch's."""


class Masked(Frozen):
    """Top-1 of a trained ConViT in whose first GPSA layers one term of attention is left out; nothing is trained."""

    term: Literal["content", "position"]
    """Term that is left out: of the first, only the positional attention remains (arXiv 2103.10697, Table 6)."""
    layers: PositiveInt
    images: PositiveInt
    """Number of images of the test split, the same in every run on a dataset."""
    top1: Percent
    top1_whole: Percent
    """Top-1 of the unchanged model, on the same images."""


class DatasetInfo(Frozen):
    """Dataset as it was read."""

    train: PositiveInt
    test: PositiveInt | None = None
    """Images that accuracy was measured on; None where it was on `val`."""
    val: PositiveInt | None = None
    classes: PositiveInt
    checksum: Sha256
    """sha256 over pixels and labels of the images trained on and of those that accuracy was measured on, before
    augmentation; of files that are decoded when they are used, over the digests of the files and the labels."""


class Session(Frozen):
    """One uninterrupted stretch of a run: a run that was stopped and resumed has several."""

    started: str
    """UTC, ISO 8601."""
    from_step: NonNegativeInt
    """Optimiser steps that were behind it when it began."""
    seconds: NonNegativeFloat


class _Outcome(Frozen):
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    study: FolderName
    row: str
    """Row label given by the grid. A name only: not part of the identity."""
    spec: RunSpec
    written: str
    """UTC, ISO 8601."""

    @model_validator(mode="after")
    def _id_matches_spec(self) -> _Outcome:
        if self.run_id != self.spec.run_id:
            raise ValueError(f"run_id {self.run_id} is not the hash of the spec ({self.spec.run_id})")
        return self


LATER = ("correct", "ema_weights")
"""Fields of a finished run that are left out where there is nothing in them."""


class RunRecord(_Outcome):
    """A finished run. The headline is the last epoch; the best epoch is kept because the papers report it."""

    status: Literal["done"] = "done"
    seconds: NonNegativeFloat
    """Wall time of the whole run, initialisation and evaluation included, time between sessions not."""
    sessions: list[Session] = Field(default_factory=list)
    """Empty in records of before runs could be resumed."""
    parameters: PositiveInt
    """Trainable parameters of the model."""
    dataset: DatasetInfo
    init: InitReport
    history: Annotated[list[EpochRow], Field(min_length=1)]
    probes: list[Probe] = Field(default_factory=list)
    """Before the first epoch and after each evaluated one; empty without attention, with --no-probes, or where old."""
    masked: list[Masked] = Field(default_factory=list)
    """After the last epoch of a ConViT; empty where `probes` is."""
    correct: str | None = None
    """Images of the test split, or of the validation part, that are classified correctly after the last epoch: one bit
    each, in the order of the split, the first one the highest bit of the first byte; base64. `correct_images` unpacks
    it. None where masks are predicted, and in records of before this was taken, which do not have the field."""
    weights: Sha256 | None = None
    """sha256 over every parameter and buffer after the last step; None in records of before this was taken."""
    ema_weights: Sha256 | None = None
    """The same of the averaged weights; None, and left out, where the recipe has no `ema`, and in older records."""
    execution: Details
    """Settings that change speed or place only: device, threads, executor."""
    environment: Details
    """Provenance: commit, versions, processor."""

    @model_serializer(mode="wrap")
    def _as_recorded(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = fields_of(self)
        return {name: value for name, value in fields.items() if value is not None or name not in LATER}

    @model_validator(mode="after")
    def _as_the_spec_says(self) -> RunRecord:
        recipe = self.spec.recipe
        epochs = [row.epoch for row in self.history]
        if epochs != list(range(1, recipe.epochs + 1)):
            raise ValueError(f"history does not hold epochs 1 to {recipe.epochs}")
        evaluated, field = recipe.evaluated_epochs, self.last.field
        on = self.spec.dataset.evaluate_on
        for name, column in zip(RESULTS, zip(*map(results, self.history), strict=True), strict=True):
            wanted = evaluated if name in (f"{on}_loss", f"{on}_{field}") else []
            if [epoch for epoch, value in zip(epochs, column, strict=True) if value is not None] != wanted:
                raise ValueError(
                    f"history does not hold {name} of the epochs that are evaluated on it, and of no other"
                )
        averaged = evaluated if recipe.ema is not None else []
        both = [(row.ema_loss is not None, row.ema_score is not None) for row in self.history]
        if both != [(epoch in averaged,) * 2 for epoch in epochs]:
            raise ValueError("history does not hold ema_loss and ema_score of the evaluated epochs of a run with ema")
        if [name for name in ("test", "val") if getattr(self.dataset, name)] != [on]:
            raise ValueError(
                f"dataset does not hold the number of images that it is evaluated on, those of {on!r} alone"
            )
        for row in self.history:
            if row.metrics and row.epoch not in evaluated:
                raise ValueError(f"history holds metrics of epoch {row.epoch}, which is not evaluated")
            if row.epoch in evaluated and (row.score is None or row.headline != self.last.headline):
                raise ValueError(f"history does not hold {row.metric} of all epochs that are evaluated")
        if self.probes and [row.epoch for row in self.probes] != [0, *evaluated]:
            raise ValueError("probes do not hold epoch 0 and the epochs that are evaluated")
        images = getattr(self.dataset, on)
        for row in self.history:
            if (top1 := row.value("top1")) is not None and not _share_of(top1, images):
                raise ValueError(f"{on}_top1 {top1} of epoch {row.epoch} is no share of {images} images")
        if self.correct is not None and (top1 is None or not _is_bitmap(self.correct, top1, images)):
            raise ValueError(f"correct does not hold the {top1} % of {images} images that {on}_{field} has")
        for masked in self.masked:
            for name in ("top1", "top1_whole"):
                if not _share_of(getattr(masked, name), masked.images):
                    raise ValueError(f"masked: {name} {getattr(masked, name)} is no share of {masked.images} images")
        if self.spec.dataset.train_size not in (None, self.dataset.train):
            raise ValueError(f"{self.dataset.train} training images, but train_size {self.spec.dataset.train_size}")
        return self

    def without_times(self) -> dict[str, Any]:
        """The record less its times: what a run that was killed and resumed has in common with one that was not."""
        times: dict[str, Any] = {"written": True, "seconds": True, "sessions": True, "init": {"seconds", "cached"}}
        times["environment"] = {"gpu_usage"}
        rows: dict[str, Any] = {"history": {"__all__": {"seconds", "images_per_s"}}, "probes": {"__all__": {"seconds"}}}
        return self.model_dump(mode="json", exclude={**times, **rows})

    @property
    def correct_images(self) -> list[bool] | None:
        """One entry for each image that accuracy is measured on: whether it is classified correctly at the end."""
        if self.correct is None:
            return None
        bits = "".join(f"{byte:08b}" for byte in base64.b64decode(self.correct))
        return [bit == "1" for bit in bits[: getattr(self.dataset, self.spec.dataset.evaluate_on)]]

    @property
    def sources(self) -> dict[str, str]:
        """The hash of the source file of each of its initialisers, by name; empty in older records."""
        found = self.environment.get("initializers")
        known = found.items() if isinstance(found, dict) else ()
        return {name: value for name, value in known if isinstance(value, str)}

    @property
    def last(self) -> EpochRow:
        """The last epoch."""
        return self.history[-1]

    _metric: str | None = PrivateAttr(None)

    def by(self, metric: str) -> RunRecord:
        """Return the same record with another metric as its `score`, for tables and figures.

        Args:
            metric: its name; `ema_score` is the main metric of the averaged weights.

        Raises:
            VitinitError: it does not hold this metric after its last epoch.
        """
        averaged = AVERAGED + self.last.metric
        metric = averaged if metric == "ema_score" else metric
        if self.last.value(metric) is None:
            names = dict.fromkeys([self.last.field, *self.last.metrics, averaged])
            held = ", ".join(name for name in names if self.last.value(name) is not None)
            raise VitinitError(f"run {self.run_id} holds no {metric}; it holds {held}")
        other = self.model_copy()
        other._metric = metric
        return other

    @property
    def metric(self) -> str:
        """The main metric: the dataset's, or that of `by`."""
        return self._metric or self.last.metric

    @property
    def score(self) -> float:
        """Its metric in percent after the last epoch, on what the run is evaluated on."""
        score = self.last.value(self.metric)
        assert score is not None  # as the spec says
        return score

    @property
    def best(self) -> tuple[int, float]:
        """The first epoch with the best score, and that. It selects on what it measures: never the headline."""
        best = min if metrics.get(self.metric).lower_is_better else max
        return best(self.evaluated.items(), key=lambda row: row[1])

    @property
    def evaluated(self) -> dict[int, float]:
        """Its metric in percent by epoch."""
        return {row.epoch: score for row in self.history if (score := row.value(self.metric)) is not None}


class FailureRecord(_Outcome):
    """A run that started and did not finish. Never counts as done."""

    status: Literal["failed"] = "failed"
    error: str
    message: str
    traceback: str
    execution: Details
    environment: Details


class SkipRecord(_Outcome):
    """A run that could not start here, with the reason."""

    status: Literal["skipped"] = "skipped"
    reason: str


Outcome = RunRecord | FailureRecord | SkipRecord
OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Annotated[Outcome, Field(discriminator="status")])

_MARK = b',\n "digest": "'
"""No JSON string holds a raw line feed, and one space of indentation is the outermost level: this is unambiguous."""
_END = b'"\n}\n'


def to_bytes(outcome: Outcome) -> bytes:
    """The content of the outcome's file: its JSON, the digest last.

    Raises:
        VitinitError: the outcome does not validate (it can be made without validation, by `model_copy` say).
    """
    try:
        body = outcome.model_dump_json(indent=1).encode()
        OUTCOME.validate_json(body, strict=True)
    except PydanticSerializationError as error:
        raise VitinitError(f"{outcome.status} run {outcome.run_id}: {error}") from None
    except ValidationError as error:
        raise explain(error, f"{outcome.status} run {outcome.run_id}") from None
    content = body.removesuffix(b"\n}")
    return content + _MARK + _digest(content) + _END


def from_bytes(data: bytes) -> Outcome:
    """The outcome in a file's content.

    Raises:
        VitinitError: what is wrong with it, in one line.
    """
    content, mark, end = data.rpartition(_MARK)
    if mark and end != _digest(content) + _END:
        raise _refusal(data, "the digest does not match: damaged, or changed after it was written")
    body = content + b"\n}\n" if mark else data
    try:
        outcome = OUTCOME.validate_json(body, strict=True)
    except ValidationError as error:
        raise _refusal(body, str(explain(error, "")).removeprefix(": ")) from None
    if "schema_version" not in outcome.model_fields_set:
        raise VitinitError("has no schema_version")
    if not mark:
        raise VitinitError("has no digest: changed after it was written, or not written by vitinit")
    return outcome


def _digest(content: bytes) -> bytes:
    # On processors without instructions for SHA, blake2b takes half of sha256's time.
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def _refusal(data: bytes, why: str) -> VitinitError:
    """Return why a file is no record; another version, or another kind of file, goes before `why`."""
    if not data.strip():
        return VitinitError("is empty")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return VitinitError(why)
    if not isinstance(content, dict) or "spec" not in content:
        return VitinitError("is not a record of a run, but JSON of another kind")
    version = content.get("schema_version", SCHEMA_VERSION)
    if type(version) is int and version > SCHEMA_VERSION:
        return VitinitError(
            f"schema version {version} is newer than this vitinit, which reads {SCHEMA_VERSION}: upgrade"
        )
    if type(version) is not int or version != SCHEMA_VERSION:
        return VitinitError(f"schema version {str(version)[:20]} is unknown; this vitinit reads {SCHEMA_VERSION}")
    if "digest" in content and _MARK not in data:
        why = "the digest cannot be checked: damaged, or written anew by another program"
    return VitinitError(why)
