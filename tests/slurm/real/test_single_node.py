"""up.sh and down.sh: clear refusals, a second start, and a stop that stops everything."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from single_node import ROOT, SCRIPTS, four_free_ports, until

pytestmark = pytest.mark.slurm


def refused(*command: str, **settings: str) -> str:
    environment = os.environ | settings
    done = subprocess.run([*command, SCRIPTS / "up.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    return line


def test_settings_that_cannot_be(slurm, tmp_path):
    assert refused(ACCT="yes", VITINIT_SLURM=str(tmp_path)) == "up.sh: ACCT=yes: expected dbd or none"
    with socket.socket() as taken:
        port = four_free_ports()
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        line = refused(ACCT="none", VITINIT_SLURM=str(tmp_path), PORT_BASE=str(port))
    assert line == f"up.sh: port {port + 1}, for slurmd, is taken; choose four free ones with PORT_BASE"
    assert list((tmp_path / "pids").iterdir()) == []


def test_not_root(slurm, tmp_path):
    copy = Path("/tmp") / f"vitinit-up-{os.getpid()}"
    copy.mkdir()
    try:
        for name in ("up.sh", "common.sh"):
            (copy / name).write_bytes((SCRIPTS / name).read_bytes())
        done = subprocess.run(["runuser", "-u", "nobody", "bash", copy / "up.sh"], capture_output=True, text=True)
    finally:
        for path in copy.iterdir():
            path.unlink()
        copy.rmdir()
    assert done.returncode == 1
    assert done.stderr == "up.sh: must be root: slurmd starts jobs as their users\n"


def test_listens_on_this_machine_only(slurm):
    pids = {path.read_text().split()[0] for path in (slurm.folder / "pids").iterdir()}
    assert len(pids) == 5
    listening = subprocess.run(["ss", "-Hltnp"], check=True, capture_output=True, text=True).stdout.splitlines()
    ours = [line.split()[3] for line in listening if any(f"pid={pid}," in line for pid in pids)]
    assert len(ours) == 4
    assert {address.rpartition(":")[0] for address in ours} == {"127.0.0.1"}


def test_make_brings_it_up_and_down(tmp_path):
    """The README's commands, on a cluster of their own."""
    settings = {"VITINIT_SLURM": str(tmp_path / "slurm"), "ACCT": "none", "PORT_BASE": str(four_free_ports())}

    def make(target: str) -> str:
        command = ["make", "--silent", target]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        printed = make("slurm-up")
        line = printed.partition("to use it: ")[2].strip()
        assert line == f". {tmp_path}/slurm/env.sh"
        found = subprocess.run(["bash", "-c", f"{line} && sinfo -h -o %T"], capture_output=True, text=True)
        assert set(found.stdout.split()) == {"idle"}
    finally:
        printed = make("slurm-down")
    assert printed.count("stopping") == 3
    assert "slurmctld" in printed


def test_ends_with_its_parent_even_a_killed_one(tmp_path):
    parent = subprocess.Popen(["sleep", "1000"])
    settings = {"VITINIT_SLURM": str(tmp_path / "slurm"), "ACCT": "none", "PORT_BASE": str(four_free_ports())}
    environment = os.environ | settings | {"PARENT": str(parent.pid)}
    up = ["setsid", "--wait", SCRIPTS / "up.sh"]
    subprocess.run(up, env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True)
    daemons = [int(path.read_text().split()[0]) for path in (tmp_path / "slurm/pids").iterdir()]
    assert len(daemons) == 3
    parent.kill()
    parent.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in daemons))
