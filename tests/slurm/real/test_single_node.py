"""up.sh and down.sh: clear refusals, a second start, and a stop that stops everything."""

import os
import socket
import subprocess
from pathlib import Path

from single_node import SCRIPTS, four_free_ports


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
