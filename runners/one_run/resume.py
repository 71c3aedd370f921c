"""Starting point of a run in a session: its newest usable checkpoint, the same in all its processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitinit.benchmark.records.record import Session
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.report import InitReport
from vitinit.runners.basics.environment import differences
from vitinit.runners.basics.gpu import out_of_memory
from vitinit.runners.training.checkpoint import Checkpoints, pack, unpack
from vitinit.runners.training.distributed import World
from vitinit.runners.training.train import Training

SHARING = {"processes": 1, "nodes": 1, "micro_batch": None, "compiled": False}
"""Execution settings that affect rounding, beside the environment, with their values in runs of
before this was recorded. A change of the loader, which gives the same images, is reported too."""


@dataclass(frozen=True)
class Begun:
    """A run at the beginning of a session."""

    training: Training
    init: InitReport
    sessions: list[Session] = field(default_factory=list)
    """Those before."""
    changes: list[dict[str, Any]] = field(default_factory=list)
    """Changes between sessions, this one included: after one, bitwise equality cannot be promised."""
    resumed: str = ""
    """Step that it resumes from, and the changes since it was stopped."""
    targets_LHNN: Tensor | None = None
    """Targets of the method's attention, for a run that begins."""
    observed: dict[str, Any] | None = None
    """State of the observer of a resumed run; empty where it had none."""


def resume(
    checkpoints: Checkpoints,
    run_id: str,
    checksum: str,
    environment: dict[str, Any],
    execution: dict[str, Any],
    new_training: Callable[[], Training],
) -> Begun | None:
    """The run as its newest checkpoint that can be used left it.

    Args:
        checkpoints: of the run.
        run_id: of the run.
        checksum: of the images.
        environment: of this session.
        execution: of this session.
        new_training: makes a training for the state to go into.

    Raises:
        VitinitError: the images are not those that the run began with.
    """
    for state in checkpoints.newest_first():
        try:
            if state["run_id"] != run_id:
                raise ValueError(f"it belongs to run {state['run_id']}")
            past = _begun(state, environment, execution, new_training)
            began_with = str(state["checksum"])
        except Exception as error:  # what torch raises for a state of another model is of many types
            if out_of_memory(error):
                raise
            checkpoints.report(f"a checkpoint in {checkpoints.folder} is passed over: {plain(str(error), 300)}")
            continue
        if began_with != checksum:
            raise VitinitError(
                f"the images have changed since the run was stopped (checksum {began_with[:12]}, now {checksum[:12]}); "
                f"put them back, or begin anew with --force {run_id}"
            )
        checkpoints.goes_on(past.training.total_steps)
        return past
    return None


def _begun(
    state: dict[str, Any],
    environment: dict[str, Any],
    execution: dict[str, Any],
    new_training: Callable[[], Training],
) -> Begun:
    training = new_training()
    training.load_state_dict(state["training"])
    changes, resumed = list(state["changes"]), f"epoch {training.epoch + 1}, step {training.step}"
    before = {"loader": execution["loader"], **state.get("execution", {})}
    of_before = {"initializers": environment["initializers"]}  # of checkpoints that do not hold it
    then = {**of_before, **state["environment"], "execution": _sharing(before)}
    found = differences(then, {**environment, "execution": _sharing(execution)})
    if found:
        what = {key: list(values) for key, values in found.items()}
        changes.append({"from_step": training.total_steps, "changed": what})
        resumed += f" (changed since then: {', '.join(found)})"
    return Begun(
        training=training,
        init=InitReport.model_validate(state["init"]),
        sessions=[Session.model_validate(session) for session in state["sessions"]],
        changes=changes,
        resumed=resumed,
        observed=dict(state.get("observed", {})),
    )


def share_state(training: Training, world: World) -> None:
    """Give all processes the training of rank 0, by way of its state: one of them reads or initialises, once."""
    if world.size > 1:
        content = world.broadcast(None if world.rank else bytes(pack(training.state_dict())))
        if world.rank:
            training.load_state_dict(unpack(content))


def _sharing(execution: dict[str, Any]) -> dict[str, Any]:
    shared = {key: execution.get(key, default) for key, default in SHARING.items()}
    return {**shared, "loader": execution["loader"]}
