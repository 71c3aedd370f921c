"""Studies that go through a real SLURM, and the accidents that befall them."""

import os
import re
import signal
from pathlib import Path

import yaml

from tests.held import HOLD
from tests.processes import call, until
from vitinit.benchmark.records.store import Store
from vitinit.runners.launching.view import jobs_of
from vitinit.runners.one_run import claims

GRID = yaml.safe_load("""
title: runs of six steps an epoch, each session of which waits after two epochs where it is held
rows:
  Held: {base: &held {name: 'tests.held:Held', after: 13}}
  Mimetic: {base: *held, method: mimetic}
blocks:
- datasets: [{name: digits, train_size: 200}]
  model: {preset: vit_micro, image_size: 8, patch_size: 1, drop_rate: 0.1}
  recipe: {name: small, epochs: 12, hflip: 0.5}
  seeds: [0]
""")


class Study:
    """A grid and its results in a folder of their own; runs of GRID wait for the file `hold` to go, where it is."""

    def __init__(self, folder, grid, **profile):
        self.folder, self.root, self.hold = folder, folder / "results" / "local", folder / "hold"
        (folder / "study.yaml").write_text(yaml.safe_dump(grid))
        self.ask(**profile)

    def ask(self, **profile):
        """Set the profile of later jobs."""
        fields = {"partition": "main", "cpus": 1, "time": 10, "signal_seconds": 60, "jobs": 1} | profile
        (self.folder / "profile.yaml").write_text(yaml.safe_dump(fields))

    def vitinit(self, line, code=0, **environment):
        """Run a line, `run` with the profile; return its output. Its exit code must be `code`."""
        profile = "--profile profile.yaml" if "--executor slurm" in line else ""
        done = call(f"{line} {profile}", self.folder, **{HOLD: str(self.hold), **environment})
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self, **how):
        return self.vitinit("run study.yaml --executor slurm --checkpoint-minutes 0", **how)

    @property
    def records(self):
        return Store(self.root).read("study").done

    def live(self, epochs=0):
        """Runs in progress that have at least so many epochs behind them: how many, and who carries them out."""
        folders = (self.root / "study" / "unfinished").glob("*")
        runs = [(claims.progress(folder).epoch, owner) for folder in folders if (owner := claims.live(folder))]
        return [(epoch, owner) for epoch, owner in runs if epoch >= epochs]

    def until_trained(self, epochs=2):
        """Until some run has so many epochs behind it."""
        until(lambda: self.live(epochs))
        return self.live(epochs)[0]

    def until_saved(self):
        """Until some job has been told to stop, and has saved."""
        logs = self.root / "study" / "jobs"
        until(lambda: any("what had begun is saved" in log.read_text() for log in logs.glob("*/*_log.out")))

    def until_done(self, count=2):
        until(lambda: len(self.records) == count)

    def jobs(self):
        """Jobs that wait or run."""
        return list(jobs_of(self.root / "study").alive)


def same_bits(found, expected):
    assert found.keys() == expected.keys()
    for run_id, record in found.items():
        there, here = expected[run_id].without_times(), record.without_times()
        for content in (there, here):
            del content["environment"], content["execution"]["executor"]
        assert here == there
        assert here["weights"]


def preemption(slurm, study, owner):
    """Nothing is left to repair, but that nobody needs to know."""
    slurm.run("sbatch -p high -c 4 -o /dev/null --wrap 'sleep 2'")


def scancel(slurm, study, owner):
    assert "cancelled 1 job" in study.vitinit("slurm cancel study.yaml")


def kill_the_worker(slurm, study, owner):
    """The process of the job, whose children carry out the runs."""
    stat = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()
    fork_server = int(stat[1])
    parent = int(Path(f"/proc/{fork_server}/stat").read_text().rpartition(")")[2].split()[1])
    assert "vitinit.slurm.submit" in Path(f"/proc/{parent}/cmdline").read_text()
    os.kill(parent, signal.SIGKILL)


def kill_slurmd(slurm, study, owner):
    """The node's daemon, and everything that it had started, as when a node loses power."""
    slurm.kill("slurmd")
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_text()
        except OSError:
            continue
        if str(study.folder) in words and "vitinit.slurm.submit" in words:
            os.kill(int(process.parent.name), signal.SIGKILL)
    slurm.up()


def accidents_one_after_the_other(slurm, study, left_alone, states):
    """Let everything go wrong with one study; each time the same command repairs what is left.

    Args:
        slurm: that it goes through.
        study: GRID, in a folder of its own.
        left_alone: what its records must be like.
        states: a regular expression for how `status` may say that its last job has ended.
    """
    study.hold.touch()
    study.submit()
    epoch, owner = study.until_trained()
    preemption(slurm, study, owner)
    for accident in (scancel, kill_the_worker, kill_slurmd):
        epoch, owner = study.until_trained(epoch + 1)
        accident(slurm, study, owner)
        until(lambda: not study.jobs())
        until(lambda: not study.live())
        status = study.vitinit("status study.yaml")
        assert re.search(rf"to do, \d runs?: job \d+ ({states})", status), status
        study.submit()
    study.hold.unlink()
    study.until_done()
    same_bits(study.records, left_alone)
    assert max(len(record.sessions) for record in study.records.values()) >= 4
