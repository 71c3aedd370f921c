"""The one-machine SLURM of slurm/single_node, for tests: each its own folder and ports."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.processes import ROOT, until

SCRIPTS = ROOT / "slurm" / "single_node"


def four_free_ports():
    """The first of four free ports in a row."""
    while True:
        with ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            base = first.getsockname()[1]
            try:
                for port in range(base + 1, base + 4):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return base


class SingleNode:
    """A running SLURM; `settings` are those of up.sh."""

    def __init__(self, folder, settings):
        self.folder = folder
        self.conf = folder / "etc" / "slurm.conf"
        self.env = os.environ | settings | {"VITINIT_SLURM": str(folder)}

    def up(self):
        """Start what does not run."""
        script("up.sh", self.env)

    def down(self):
        """Stop everything."""
        script("down.sh", self.env)

    def kill(self, daemon):
        """SIGKILL to slurmd, slurmctld ...; `up` starts it again."""
        pid = int((self.folder / "pids" / daemon).read_text().split()[0])
        assert Path(f"/proc/{pid}/comm").read_text().strip() == daemon
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists())

    def run(self, line):
        """Run a command of SLURM; return what it prints."""
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(shlex.split(line), env=environment, check=True, capture_output=True, text=True).stdout


def script(name, env):
    """Run up.sh or down.sh without a terminal; what it printed, or an AssertionError with what it complained of."""
    done = subprocess.run(
        ["setsid", "--wait", SCRIPTS / name], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def single_node(**settings):
    """Bring a SLURM up and make it the one that this process and its children talk to; at the end take it down."""
    # pytest's folder has a path too long for a socket; this one lies where other users may not enter, as TMPDIR may
    private = Path(tempfile.mkdtemp(prefix="vitinit-slurm-"))
    folder = private / "state"
    defaults = {"PORT_BASE": str(four_free_ports()), "CRED_EXPIRE": "5", "MAX_ARRAY": "6", "PARENT": str(os.getpid())}
    defaults["GRACE"] = "300"  # a job that makes way asks SLURM things first, which takes long on a busy machine
    node = SingleNode(folder, defaults | settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(node.conf))
        patch.setenv("PYTHONPATH", str(ROOT))
        try:
            node.up()
            yield node
        finally:
            node.down()
            shutil.rmtree(private)
