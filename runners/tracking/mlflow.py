"""Tracker `mlflow`: the server that MLFLOW_TRACKING_URI names, or a file store beside the records."""

from __future__ import annotations

import fcntl
import os
from typing import ClassVar, Literal

from vitinit.runners.tracking.tracker import TrackedRun, Tracker

STATUS = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MLflow(Tracker):
    """A run named by its run_id, in the experiment `vitinit/STUDY`."""

    name: ClassVar[str] = "mlflow"
    library: ClassVar[str] = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient

        run.folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions refuse one otherwise
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or (run.folder / "mlruns").absolute().as_uri())
        name = f"vitinit/{run.study}"
        with (run.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # runs of a study begin at once, and two would create it
            experiment = self.client.get_experiment_by_name(name)
            place = experiment.experiment_id if experiment else self.client.create_experiment(name)
        same = self.client.search_runs([place], f"tags.mlflow.runName = '{run.run_id}'")
        if same and run.first > 1:
            self.id = same[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            for old in same:
                self.client.delete_run(old.info.run_id)
            self.id = self.client.create_run(place, run_name=run.run_id).info.run_id
            for key, value in run.config.items():
                self.client.log_param(self.id, key, value)
        held = self.client.get_metric_history(self.id, "train/loss")
        self.held = max((each.step for each in held), default=0)

    def log(self, epoch: int, values: dict[str, float]) -> None:
        """Write metrics by step; what is held already, of a session that was killed, is not written twice."""
        if epoch > self.held:
            for name, value in values.items():
                self.client.log_metric(self.id, name, value, step=epoch)

    def close(self, status: Literal["done", "failed", "stopped"]) -> None:
        """Set the status."""
        self.client.set_terminated(self.id, STATUS[status])
