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
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from vitinit.benchmark.fields import Count, FolderName, Fraction, Frozen, Sha256, WholeNumber, finite, once
from vitinit.benchmark.metrics import registry as metrics
from vitinit.benchmark.metrics.registry import AVERAGED, OF_LABELS, OF_MASKS, metric_label
from vitinit.benchmark.spec import SCHEMA_VERSION, RunSpec
from vitinit.initializers.errors import VitinitError, explain
from vitinit.initializers.report import InitReport, Share

Percent = Annotated[float, Field(ge=0, le=100)]
PerHead = list[list[NonNegativeFloat | None]]
"""None: no number, as of a query that gives all its attention to the class token."""
RESULTS = ["test_loss", "test_top1", "test_miou", "val_loss", "val_top1", "val_miou", "ema_loss", "ema_score"]
"""Fields of an epoch that are measured after it."""

NOT_REPEATED: dict[str, Any] = {
    **dict.fromkeys(("written", "seconds", "sessions", "notes", "files"), True),
    "init": {"seconds", "start"},
    "dataset": {"stamp"},
    "history": {"__all__": {"seconds", "images_per_s"}},
    "probes": {"__all__": {"seconds"}},
    "environment": {"gpu_usage"},
}
"""Fields of a record that no repetition has again; `init.start`, the attention, is taken no longer."""


class Facts(BaseModel):
    """Free fields that are read again."""

    commit: str | None = None
    dirty: bool | None = None
    source: str | None = None
    initializers: dict[str, str] = Field(default_factory=dict)
    gpu: str | None = None
    processor: str | None = None
    cpu: dict[str, Any] | None = None
    device: str | None = None
    threads: Count = 1
    processes: Count = 1
    micro_batch: Count | None = None
    deterministic: bool = False
    compiled: bool = False


def _free(values: dict[str, Any]) -> dict[str, Any]:
    Facts.model_validate(values, strict=True)
    return finite(values)


Details = Annotated[dict[str, Any], AfterValidator(_free)]
"""Free fields, for people and for export."""


class _Recorded(Frozen):
    """Fields that are None are left out of a record."""

    @model_serializer(mode="wrap")
    def _as_recorded(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in fields_of(self).items() if value is not None}


class EpochRow(_Recorded):
    """One epoch; `epoch` counts from 1."""

    epoch: Count
    lr: NonNegativeFloat
    train_loss: NonNegativeFloat
    test_loss: NonNegativeFloat | None = None
    """None, as is `test_top1`, after an epoch without evaluation, and where the run is evaluated on `val`."""
    test_top1: Percent | None = None
    val_loss: NonNegativeFloat | None = None
    """On the part of the training split that is held out for validation; None where the run is evaluated on `test`."""
    val_top1: Percent | None = None
    test_miou: Percent | None = None
    """Mean over classes of intersection over union, in percent: of a dataset with masks, in place of top-1."""
    val_miou: Percent | None = None
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    """All other metrics of the same images, by name: see `benchmark/metrics/`."""
    headline: str | None = None
    """The one of `metrics` that is the dataset's main metric; None where that is top-1 or mean IoU."""
    ema_loss: NonNegativeFloat | None = None
    """Loss of the moving average of the weights, on the same images; None where the recipe has no `ema`."""
    ema_score: Percent | None = None
    """Score of the same, as `score`."""
    seconds: NonNegativeFloat
    images_per_s: NonNegativeFloat | None = None
    """Training images a second, loading included, evaluation not; None in records of before this was taken."""

    @property
    def field(self) -> str:
        """The metric that has a field: mean IoU of masks, otherwise top-1."""
        return OF_LABELS if self.test_miou is None and self.val_miou is None else OF_MASKS

    @property
    def metric(self) -> str:
        """The main metric; top-1 where nothing is measured."""
        return self.headline or self.field

    @property
    def score(self) -> float | None:
        """The main metric on test images, or on the validation part, in percent."""
        return self.value(self.metric)

    def value(self, metric: str) -> float | None:
        """Return a metric by its name; None where it was not measured."""
        if metric == AVERAGED + "loss":
            return self.ema_loss
        if metric == AVERAGED + self.metric:
            return self.ema_score
        if metric not in ("loss", self.field):
            return self.metrics.get(metric)
        values = [getattr(self, f"{split}_{metric}") for split in ("test", "val")]
        return values[1] if values[0] is None else values[0]

    def scored(self, digits: int = 1) -> str:
        """The score for people, `top-1 54.3%`; empty where there is none."""
        return "" if self.score is None else f"{metric_label(self.metric)} {self.score:.{digits}f}%"


class Probe(Frozen):
    """Attention after an epoch, on a few test images that are the same in every run on a dataset.

    Lists have one entry per layer, from the input on; in it one per head, or a number. Attention is that among patch
    tokens: where there is a class token, its column is left out and rows are divided by what remains. Distances are in
    tokens; those of attention in windows are within a window, in tokens of their stage.
    """

    epoch: WholeNumber
    """Counted from 1; 0 is before the first."""
    images: Count
    nonlocality: PerHead | None = None
    """Mean distance of a query's attention: sum over i, j of `A_ij |i - j| / N` (arXiv 2103.10697, equation 8)."""
    nonlocality_reference: PerHead | None = None
    """The same of what the released ConViT code feeds to every layer: the patch embedding, without position, LayerNorm
    or the layers before. None where attention is in windows."""
    attention_entropy: PerHead | None = None
    """In nats, of a query's attention in one image; ln N where it is uniform."""
    effective_receptive_field: list[NonNegativeFloat] | None = None
    """Effective receptive field of the central token, in this block: mean distance weighted by
    the absolute gradient with respect to the pixels. Of `receptive_field_images` images."""
    receptive_field: list[NonNegativeFloat] | None = None
    """In records of before, in its place: the same of the plain sum over features, which no LayerNorm lets through."""
    receptive_field_images: Count
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
    layers: Count
    images: Count
    """Number of images of the test split, the same in every run on a dataset."""
    top1: Percent
    top1_whole: Percent
    """Top-1 of the unchanged model, on the same images."""


class DatasetInfo(_Recorded):
    """Dataset as it was read."""

    train: Count
    test: Count | None = None
    """Images that accuracy was measured on; None where it was on `val`."""
    val: Count | None = None
    classes: Count
    checksum: Sha256
    """sha256 over pixels and labels of the images trained on and of those that accuracy was measured on, before
    augmentation; of files that are decoded when they are used, over the digests of the files and the labels."""
    stamp: Sha256 | None = None
    """sha256 over names, sizes and times of the files of a folder of one's own; None of other datasets."""
    unread: dict[str, Count] | None = None
    """Number of files in that folder that are passed over, by the ending of their names."""


class Session(Frozen):
    """One uninterrupted stretch of a run: a run that was stopped and resumed has several."""

    started: str
    """UTC, ISO 8601."""
    from_step: WholeNumber
    """Optimiser steps that were behind it when it began."""
    seconds: NonNegativeFloat


class _Outcome(_Recorded):
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    study: FolderName
    row: Annotated[str, Field(min_length=1, max_length=1_000)]
    """Row label given by the grid. A name only: not part of the identity."""
    spec: RunSpec
    written: str
    """UTC, ISO 8601."""
    edited: str | None = None
    """Change made after the record was written, and its reason."""
    notes: list[str] | None = None
    """Lines that the run said on its way: where it went on from, and problems that did not end it. None if nothing."""

    @model_validator(mode="after")
    def _id_matches_spec(self) -> _Outcome:
        if self.run_id != self.spec.run_id:
            raise ValueError(f"run_id {self.run_id} is not the hash of the spec ({self.spec.run_id})")
        return self


class RunRecord(_Outcome):
    """A finished run. The headline is the last epoch; the best epoch is kept because the papers report it."""

    status: Literal["done"] = "done"
    seconds: NonNegativeFloat
    """Wall time of the whole run, initialisation and evaluation included, time between sessions not."""
    sessions: list[Session] = Field(default_factory=list)
    """Empty in records of before runs could be resumed."""
    parameters: Count
    """Trainable parameters of the model."""
    dataset: DatasetInfo
    init: InitReport
    history: Annotated[list[EpochRow], Field(min_length=1)]
    probes: list[Probe] = Field(default_factory=list)
    """Before the first epoch and after each evaluated one, but for those that a part of the run with --no-probes
    ended; empty without attention, with --no-probes from the start, or where old."""
    masked: list[Masked] = Field(default_factory=list)
    """After the last epoch of a ConViT; empty where `probes` is."""
    correct: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$")] | None = None
    """Images of the test split, or of the validation part, that are classified correctly after the last epoch: one bit
    each, in the order of the split, the first one the highest bit of the first byte; base64. None where masks are
    predicted, and in records of before this was taken, which do not have the field."""
    weights: Sha256 | None = None
    """sha256 over every parameter and buffer after the last step; None in records of before this was taken."""
    ema_weights: Sha256 | None = None
    """The same of the averaged weights; None, and left out, where the recipe has no `ema`, and in older records."""
    files: dict[Literal["maps", "weights", "ema_weights"], Sha256] = Field(default_factory=dict)
    """sha256 of each file that was kept beside the record: `maps`, `weights`, `ema_weights`."""
    execution: Details
    """Settings that change speed or place only: device, threads, executor."""
    environment: Details
    """Provenance: commit, versions, processor."""

    @model_validator(mode="after")
    def _as_the_spec_says(self) -> RunRecord:
        recipe, on = self.spec.recipe, self.spec.dataset.evaluate_on
        if [row.epoch for row in self.history] != list(range(1, recipe.epochs + 1)):
            raise ValueError(f"history does not hold epochs 1 to {recipe.epochs}")
        if [name for name in ("test", "val") if getattr(self.dataset, name)] != [on]:
            raise ValueError(f"dataset does not hold the number of images of {on!r} alone, which it is evaluated on")
        images, evaluated = getattr(self.dataset, on), recipe.evaluated_epochs
        headline, name = self.last.headline, self.spec.dataset.name
        if headline:
            from vitinit.benchmark.datasets.registry import REGISTRY

            metrics.main_metric(headline, self.last.field == OF_MASKS, self.dataset.classes)
            dataset = REGISTRY.by_name().get(name)
            if dataset and dataset.metric != headline:
                raise ValueError(f"headline {headline} is not the metric of dataset {name}")
        averaged = [] if recipe.ema is None else ["ema_loss", "ema_score"]
        percent = {metric.name for metric in metrics.REGISTRY.entries() if metric.percent}
        for row in self.history:
            results = [*averaged, f"{on}_loss", f"{on}_{self.last.field}"] if row.epoch in evaluated else []
            held = {name for name in RESULTS if getattr(row, name) is not None}
            scored = row.headline == headline and row.score is not None and 0 <= row.score <= 100
            fits = scored if results else not row.metrics
            if held != {*results} or not fits:
                raise ValueError(
                    f"history does not hold {', '.join(sorted(results)) or 'no result'} of epoch {row.epoch}, as its "
                    "spec says, and no more"
                )
            shares = [value for name, value in row.metrics.items() if {name, re.sub(r"_\d+$", "", name)} & percent]
            if shares and not 0 <= min(shares) <= max(shares) <= 100:
                raise ValueError(f"metrics of epoch {row.epoch} are no shares in percent")
            right = (row.value("top1") or 0) * images / 100
            if row.metrics.get("top5", 100) < (row.value("top1") or 0):
                raise ValueError(f"top5 of epoch {row.epoch} is less than top1")
            if abs(right - round(right)) > 1e-6:
                raise ValueError(f"{on}_top1 {row.value('top1')} of epoch {row.epoch} is no share of {images} images")
        if self.correct is not None:
            bits = "".join(f"{byte:08b}" for byte in base64.b64decode(self.correct))
            if not 0 <= len(bits) - images < 8 or bits[:images].count("1") != round(right):
                raise ValueError(
                    f"correct does not hold the {self.last.value('top1')} % of {images} images that {on}_top1 has"
                )
        probed = [row.epoch for row in self.probes]
        if probed != sorted({*probed} & {0, *evaluated}):
            raise ValueError("probes are of other epochs than 0 and those that are evaluated")
        return self

    def without_times(self, *but: str, **options: Any) -> dict[str, Any]:
        """The record less times and files: what one that was killed and resumed shares with one that was not.

        Args:
            but: other fields that are left out.
            options: of pydantic's `model_dump`.
        """
        return self.model_dump(mode="json", exclude={**NOT_REPEATED, **dict.fromkeys(but, True)}, **options)

    @property
    def sources(self) -> dict[str, str]:
        """The hash of the source file of each of its initialisers, by name; empty in older records."""
        return Facts.model_validate(self.environment).initializers

    @property
    def last(self) -> EpochRow:
        """The last epoch."""
        return self.history[-1]

    _metric: str | None = None

    def by(self, metric: str) -> RunRecord:
        """Return the same record with another metric as its `score`, for tables and figures.

        Args:
            metric: its name; `ema_score` is the main metric of the averaged weights.

        Raises:
            VitinitError: it does not hold this metric after its last epoch.
        """
        if metric == "ema_score":
            metric = AVERAGED + self.last.metric
        if self.last.value(metric) is None:
            raise VitinitError(
                f"run {self.run_id} holds no {metric}; it holds {', '.join([self.last.field, *self.last.metrics])}"
            )
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
    body = outcome.model_dump_json(indent=1).encode()
    try:
        OUTCOME.validate_json(body, strict=True)
    except ValidationError as error:
        raise explain(error, f"refusing to write {outcome.status} run {outcome.run_id}") from None
    return seal(body)


def from_bytes(data: bytes) -> Outcome:
    """The outcome in a file's content.

    Raises:
        VitinitError: what is wrong with it, in one line.
    """
    body = unseal(data)
    if body == data:
        raise VitinitError("has no digest: cut short, or not written by vitinit")
    outcome = from_json(OUTCOME, body)
    if "schema_version" not in outcome.model_fields_set:
        raise VitinitError("has no schema_version")
    return outcome


T = TypeVar("T")


def from_json(adapter: TypeAdapter[T], body: bytes) -> T:
    """Return what a JSON document holds. No field is there twice: one reader would take the first, another the last.

    Raises:
        VitinitError: what is wrong with it, in one line.
    """
    try:
        value = adapter.validate_json(body, strict=True)
        json.loads(body, object_pairs_hook=lambda pairs: once([name for name, _ in pairs], "field"))
        return value
    except ValidationError as error:
        raise VitinitError(str(explain(error, "")).removeprefix(": ")) from None
    except ValueError as error:
        raise VitinitError(str(error)) from None


def seal(body: bytes) -> bytes:
    """Return a JSON document with its digest as the last field."""
    content = body.removesuffix(b"\n}")
    return content + _MARK + _digest(content) + _END


def unseal(data: bytes) -> bytes:
    """Return a JSON document without its digest, if it has one.

    Raises:
        VitinitError: the digest does not match.
    """
    content, mark, end = data.rpartition(_MARK)
    if mark and end != _digest(content) + _END:
        raise VitinitError("the digest does not match: damaged, or changed after it was written")
    return content + b"\n}\n" if mark else data


def _digest(content: bytes) -> bytes:
    # On processors without instructions for SHA, blake2b takes half of sha256's time.
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()
