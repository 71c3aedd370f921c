"""Verify a submission: draw starts in a confined process, train from them with our own code, judge by planned looks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from vitinit.benchmark.records import looks
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError, plain
from vitinit.runners.basics.environment import IMPORTED_FROM
from vitinit.runners.launching import rank
from vitinit.runners.submissions import submission
from vitinit.runners.submissions.submission import OUT_OF_TIME, Verdict

SECONDS, MEGABYTES = 900, 256
"""Processor time of all starts together, and what they may write."""
FLAGS = ["--net", "--ipc", "--pid", "--fork", "--kill-child"]


class Invalid(VitinitError):
    """The method could not be judged, by its own fault."""


def fresh_seeds(digest: str, commit: str, count: int) -> list[int]:
    """Return seeds that nobody can have tuned to: from the hash of the submission and the commit that verifies it."""
    texts = (f"{digest}/{commit}/{i}" for i in range(count))
    return [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") + 1000 for text in texts]


def isolated() -> list[str]:
    """Return the command that starts a process without network; empty where this system has none."""
    if shutil.which("unshare") is None:
        return []
    for more in ([], ["--user"]):
        command = ["unshare", *more, *FLAGS]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


def draw(
    method: bytes, name: str, spec: RunSpec, classes: int, seeds: list[int], starts: Path, seconds: int, megabytes: int
) -> list[str]:
    """Let the method set one model per seed in a confined process, and keep the parameters as plain tensors.

    Returns:
        What the system could keep it from.

    Raises:
        Invalid: it failed, took too long, or wrote too much.
    """
    with TemporaryDirectory() as text:
        folder = Path(text).resolve()
        (folder / "method.py").write_bytes(method)
        (folder / "starts").mkdir()
        job = {"spec": spec.model_dump(mode="json"), "classes": classes, "class": name, "seeds": seeds}
        (folder / "job.json").write_text(json.dumps({**job, "seconds": seconds, "megabytes": megabytes}))
        alone = isolated()
        code = rank.OURS.format(str(IMPORTED_FROM), "vitinit.runners.submissions.draw")
        environment = {"PATH": os.defpath, "HOME": text, "TMPDIR": text, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        with (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [*alone, sys.executable, "-c", code, text],
                env=environment,
                cwd=text,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
            try:
                why = _watched(process, folder, seconds, megabytes)
            finally:
                _end(process)
        limits = folder / "limits.json"
        had = json.loads(limits.read_bytes()) if limits.is_file() else []
        if why or process.returncode:
            said = (folder / "errors").read_text(errors="replace").strip().splitlines()[-1:]
            raise Invalid(f"the method {why or 'failed: ' + plain(' '.join(said), 200)}")
        starts.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            file = f"{_of(seed)}.pt"
            if (folder / "starts" / file).is_symlink() or not (folder / "starts" / file).is_file():
                raise Invalid(f"the method left no start of seed {seed}")
            shutil.copyfile(folder / "starts" / file, starts / file)
        return [*(["network", "processes"] if alone else []), *had]


def _of(seed: int) -> int:
    from vitinit.initializers.streams import derive

    return derive(seed, "init/method")


def _watched(process: subprocess.Popen[bytes], folder: Path, seconds: int, megabytes: int) -> str:
    """Wait for a process; return why it was not waited for any longer."""
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        if time.monotonic() - began > 10 * seconds:
            return f"did not end within {10 * seconds} s"
        written = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        if written > 2 * megabytes * 2**20:
            return f"wrote more than {2 * megabytes} MB"
    if process.returncode == OUT_OF_TIME:
        return f"did not end within {seconds} s of processor time"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # what it has started may have outlived it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def verify(
    folder: Path,
    commit: str,
    results: Path,
    data: Path,
    carry_out: Callable[[rank.Ranked, int, int], int],
) -> Verdict:
    """Verify a submission on fresh seeds and write the verdict beside it.

    Args:
        folder: The submission.
        commit: Of the code that verifies.
        results: Where grid and records go.
        data: Where datasets lie.
        carry_out: Carries out seeds of a study, from one place to another; returns the exit code.

    Raises:
        VitinitError: the folder is no submission, or the protocol cannot be run here. Nothing is written then.
    """
    from vitinit.benchmark.grids.grid import load

    claim, method = submission.read(folder)
    if claim.protocol != rank.PROTOCOL:
        raise VitinitError(f"{folder}: claims under protocol {claim.protocol}, and this is protocol {rank.PROTOCOL}")
    if claim.base not in _bases():
        raise VitinitError(f"{folder}: base {claim.base!r} is none of ours; {', '.join(_bases())}")
    digest = submission.digest(folder)
    seeds = fresh_seeds(digest, commit, looks.PLAN[-1][0])
    starts = (results / f"starts-{digest[:8]}-{commit[:8]}").absolute()
    common = {"protocol": rank.PROTOCOL, "rule": looks.RULE, "commit": commit, "digest": digest, "seeds": seeds}
    had: list[str] = []
    try:
        # With a method of ours first: what refuses that, such as data that are missing, is no fault of the submission.
        ours = rank.prepare("mimetic", claim.tier, claim.base, None, results / "setting", data, None, seeds)
        spec = load(str(ours.grid), seeds=seeds[:1]).cells[0].spec
        had = draw(method, claim.method, spec, _classes(spec), seeds, starts, SECONDS, MEGABYTES)
        stored = {"name": "vitinit.runners.submissions.stored:Stored", "folder": str(starts), "digest": digest}
        try:
            ranked = rank.prepare(json.dumps(stored), claim.tier, claim.base, None, results, data, None, seeds)
        except VitinitError as error:
            raise Invalid(f"its starts are refused: {error}") from None
        look = _looked(ranked, results, carry_out)
        answer, reason = submission.judge(claim, look)
        verdict = Verdict(**common, limits=had, valid=True, reason=reason, answer=answer, look=look)
    except Invalid as error:
        verdict = Verdict(**common, limits=had, valid=False, reason=plain(str(error), 300), answer="invalid")
    submission.add_verdict(folder, verdict)
    return verdict


def _looked(ranked: rank.Ranked, results: Path, carry_out: Callable[[rank.Ranked, int, int], int]) -> looks.Look:
    """Carry out seeds until the looks settle.

    Raises:
        Invalid: a run failed, as by a loss that is not finite.
    """
    study, done, plan = ranked.grid.stem, 0, ranked.looks
    while target := plan.target:
        if carry_out(ranked, done, target):
            raise Invalid("a run from its starts failed")
        if rank.call("vitinit.analysis.standing", [study, "--results", str(results), "--brief"]):
            raise VitinitError(f"{results / study}: cannot be judged")
        done, before = target, plan
        plan = looks.read(results / study) or plan
        if plan == before:
            raise Invalid("a run from its starts failed")
    return plan.taken[-1]


def _bases() -> list[str]:
    from vitinit.initializers import registry

    return registry.names("base")


def _classes(spec: RunSpec) -> int:
    from vitinit.benchmark.datasets import registry

    return registry.get(spec.dataset.name).classes or 10
