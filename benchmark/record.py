"""What a run leaves behind: one JSON, the only thing that `analysis` ever reads. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from benchmark.spec import SCHEMA_VERSION, Frozen, RunSpec
from initializers.report import InitReport

Percent = Annotated[float, Field(ge=0, le=100)]


class EpochRow(Frozen):
    """One epoch; `epoch` counts from 1."""

    epoch: int
    lr: float
    train_loss: float
    test_loss: float
    test_top1: Percent
    seconds: float


class DatasetInfo(Frozen):
    """What was really read."""

    train: int
    test: int
    classes: int
    checksum: str
    """sha256 over pixels and labels of both splits as the run saw them, before augmentation."""


class Session(Frozen):
    """One uninterrupted stretch of a run: a run that was stopped and resumed has several."""

    started: str
    """UTC, ISO 8601."""
    from_step: Annotated[int, Field(ge=0)]
    """Optimiser steps that were behind it when it began."""
    seconds: float


class _Outcome(Frozen):
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    study: str
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


class RunRecord(_Outcome):
    """A finished run. The headline is the last epoch; the best epoch is kept because the papers report it."""

    status: Literal["done"] = "done"
    seconds: float
    """Wall time of the whole run, initialisation and evaluation included, time between sessions not."""
    sessions: list[Session] = Field(default_factory=list)
    """Empty in records of before runs could be resumed."""
    parameters: int
    """Trainable parameters of the model."""
    dataset: DatasetInfo
    init: InitReport
    history: Annotated[list[EpochRow], Field(min_length=1)]
    weights: str | None = None
    """sha256 over every parameter and buffer after the last step; None in records of before this was taken."""
    execution: dict[str, Any]
    """What changes speed or place only: device, threads, executor."""
    environment: dict[str, Any]
    """Provenance: commit, versions, processor."""

    @model_validator(mode="after")
    def _every_epoch_is_there(self) -> RunRecord:
        if [row.epoch for row in self.history] != list(range(1, self.spec.recipe.epochs + 1)):
            raise ValueError(f"history does not hold epochs 1 to {self.spec.recipe.epochs}")
        return self

    def without_times(self) -> dict[str, Any]:
        """The record less its times: what a run that was killed and resumed has in common with one that was not."""
        times: dict[str, Any] = {"written": True, "seconds": True, "sessions": True, "init": {"seconds"}}
        return self.model_dump(mode="json", exclude={**times, "history": {"__all__": {"seconds"}}})

    @property
    def top1(self) -> float:
        """Test top-1 in percent after the last epoch."""
        return self.history[-1].test_top1

    @property
    def best(self) -> EpochRow:
        """The first epoch with the highest test top-1. It selects on the test split: never the headline."""
        return max(self.history, key=lambda row: row.test_top1)


class FailureRecord(_Outcome):
    """A run that started and did not finish. Never counts as done."""

    status: Literal["failed"] = "failed"
    error: str
    message: str
    traceback: str
    execution: dict[str, Any]
    environment: dict[str, Any]


class SkipRecord(_Outcome):
    """A run that could not start here, with the reason."""

    status: Literal["skipped"] = "skipped"
    reason: str


Outcome = Annotated[RunRecord | FailureRecord | SkipRecord, Field(discriminator="status")]
OUTCOME: TypeAdapter[RunRecord | FailureRecord | SkipRecord] = TypeAdapter(Outcome)
