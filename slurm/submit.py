"""Submitting: one job per argument, in one job array; asking the cluster before that; and the call that a job makes."""

import os
import pickle
import re
import shlex
import signal
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from submitit.helpers import TorchDistributedEnvironment
from submitit.slurm.slurm import _make_sbatch_string

from vitinit.slurm.jobs import SCRIPT, SlurmError, call, preempted_current, refusal, requeue_current, restarts
from vitinit.slurm.profiles import Profile

CALL = "call.pickle"
"""Name of the file with the pickled call of a submission."""
OWN_CODE = (
    '[ "$(find .. -maxdepth 0 -uid $UID ! -perm /077)" ] || { echo "error: $PWD is not yours alone"; exit 1; }; '
    "export PYTHONPATH=/proc/self/cwd${PYTHONPATH:+:$PYTHONPATH}; exec "
)
"""Shell that goes on only where the folder above belongs to this user alone."""
MAIN = "import sys; sys.path = [*filter(None, sys.path)]; from vitinit.slurm.submit import main; main(*sys.argv[1:])"
"""Python of a job. Imports by the name of its folder, as an empty entry of the path means them, might find another."""
OF_THE_USER = "account", "partition", "qos", "constraint"
"""Fields for which, where the profile leaves them out, variables of the shell stand."""


def submit(
    function: Callable[[Any], object], argument: Any, number: int, profile: Profile, folder: Path, name: str
) -> list[str]:
    """Have the cluster call `function` in a number of jobs, an array if they are several.

    The function sets handlers of its own for SIGUSR2 (its time is nearly up, or a preemption) and SIGTERM (cancelled,
    preempted, or another process of the job has failed). While it has not, either signal ends the job, and requeues it
    where it would have come back or gone on: nothing is lost before work starts.

    Args:
        function: importable; called in every process of a job, what it returns is dropped.
        argument: picklable.
        number: of jobs; at most `max_array_size()`.
        profile: what each job asks for.
        folder: on a disk that every node sees, of mode 0700; the pickled call, the script and the logs go there. Python
            imports first from its folder `code`, which must stay as it is until the last job has ended.
        name: of the jobs, as squeue shows it.

    Returns:
        The ids of the jobs, as squeue writes them.

    Raises:
        SlurmError: the folder's name cannot be used, or the cluster does not answer or take the jobs: then it has none.
    """
    if "%" in str(folder):
        raise SlurmError(f"{folder}: SLURM replaces what follows a % in the names of its logs; use another folder")
    content, file = pickle.dumps((function, argument)), folder / SCRIPT
    (folder / CALL).write_bytes(content)
    file.touch(0o600)  # a profile may hold keys
    file.write_text(script(profile, number, folder, name, sha256(content).hexdigest()))
    done = call("sbatch", str(file), environment=_environment(profile))
    job_id = re.search(r"\d+", done.stdout)
    if done.returncode or not job_id:
        lines = [line for line in done.stderr.splitlines() if line.startswith("sbatch:")]
        raise SlurmError(" ".join(lines)) if lines else refusal(done)
    return [f"{job_id[0]}_{task}" for task in range(number)] if number > 1 else [job_id[0]]


def script(profile: Profile, number: int, folder: Path, name: str, digest: str = "SHA256") -> str:
    """Return the script that `submit` hands to sbatch; needs no cluster.

    Who can write to the results folder cannot change what a job executes. The command, which SLURM keeps, has each
    process check that nobody else can write to the submission's folder that it is in, import from that very folder,
    whatever takes its place meanwhile, and compare the digest of the pickled call.
    """
    folder, options = folder.absolute(), dict(profile.sbatch)
    # a cluster's own default may be either
    options["requeue" if options.pop("requeue", "true") == "true" else "no-requeue"] = "true"
    if profile.gpus:
        gpus = profile.gpus * (profile.nodes if profile.gpu_option == "gpus" else 1)
        resource = "gpu" if profile.gpu_option == "gres" else None
        asked = ":".join(filter(None, [resource, profile.gpu_type, str(gpus)]))
        # beside others, such as gres: lscratch:100
        options[profile.gpu_option] = ",".join(filter(None, [asked, options.get(profile.gpu_option)]))
    python = shlex.join([sys.executable, "-u", "-c", MAIN, str(folder / CALL), digest])
    return _make_sbatch_string(
        shlex.join(["bash", "-c", OWN_CODE + python]),
        folder,
        name,
        **profile.model_dump(include={*OF_THE_USER, "time", "nodes"}),
        mem=profile.memory,
        ntasks_per_node=profile.processes_per_node,
        cpus_per_task=profile.cpus,
        signal_delay_s=profile.signal_seconds,
        map_count=number if number > 1 else None,
        array_parallelism=number,
        wckey=None,  # type: ignore[arg-type]
        additional_parameters={key: value == "true" or value for key, value in options.items() if value != "false"},
        stderr_to_stdout=True,
        setup=[
            *profile.setup,
            *(f"export {key}={shlex.quote(value)}" for key, value in profile.environment.items()),
            f"cd {shlex.quote(str(folder / 'code'))} || exit 1",
        ],
        srun_args=[
            "--open-mode=append",
            "--export=ALL",
            "--kill-on-bad-exit=1",
            f"--cpus-per-task={profile.cpus}",  # since SLURM 22.05 steps do not inherit it
        ],
    )


def max_array_size() -> int:
    """The most jobs that an array of this cluster may have.

    Raises:
        SlurmError: the cluster does not answer.
    """
    done = call("scontrol", "show", "config")
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.MULTILINE)
    if done.returncode or size is None:
        raise refusal(done)
    return max(1, int(size[1]))


def ignored_variables(profile: Profile) -> list[str]:
    """Return the variables of this shell that sbatch would heed rather than the profile."""
    heeded = {f"SBATCH_{field.upper()}" for field in OF_THE_USER if not getattr(profile, field)}
    return sorted(key for key in os.environ if key.startswith("SBATCH_") and key not in heeded)


def _environment(profile: Profile) -> dict[str, str]:
    """Return the environment that jobs are to inherit.

    Without the variables of the job that this process may run in, which a new job would take for its own, and
    `ignored_variables`. Entries of PYTHONPATH are folders from anywhere.
    """
    unwanted = "SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_", *ignored_variables(profile)
    kept = {key: value for key, value in os.environ.items() if key == "SLURM_CONF" or not key.startswith(unwanted)}
    if path := kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in path.split(os.pathsep))
    return kept


REQUEUES = 3
"""Maximum requeues for a job that never started work: with a limit that is too short it never would."""


def export_ranks() -> int:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in a job, as torchrun would.

    Returns:
        How many processes the job has.
    """
    # Which GPUs a process sees is for the cluster to say.
    return int(TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True).world_size)


def _requeue_or_end(number: int, frame: object) -> None:
    """Have the job start again, unless it is ending anyway: SIGTERM also comes when another process has failed."""
    if os.environ.get("SLURM_PROCID", "0") != "0":
        return  # what rank 0 does ends this process too; to end before it would end the job as failed
    again = number == signal.SIGUSR2 and restarts() < REQUEUES
    requeued = (again or preempted_current()) and requeue_current()
    print(f"{signal.Signals(number).name} while nothing was at work; requeued: {requeued}", file=sys.stderr)
    sys.exit(0 if requeued else 1)


def main(file: str, digest: str) -> None:
    """Make the call that was submitted, in a job, where only `requeue_current` and the function itself requeue.

    Signals can come while the function is being imported, which takes long where disks are slow: so it is unpickled
    only when handlers are set.
    """
    signals = signal.SIGUSR2, signal.SIGTERM
    for number in signals:
        signal.signal(number, _requeue_or_end)
    content = Path(file).read_bytes()
    if sha256(content).hexdigest() != digest:
        sys.exit(f"error: {file} is not what was submitted")
    function, argument = pickle.loads(content)
    try:
        function(argument)
    finally:  # the end is near anyway; what has ended must not be requeued
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
