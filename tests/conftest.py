"""Fixtures that several test packages share, and the environment of all tests."""

import os
import shlex
import sys
import threading
from collections import defaultdict
from contextlib import ExitStack, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from multiprocessing.util import Finalize
from pathlib import Path
from shutil import which

import pytest

from tests.surroundings import FOLDER, other_installation, set_aside

LEADS, ASIDE = FOLDER not in os.environ, ExitStack()
TESTS = ASIDE.enter_context(set_aside())
"""Folder of this session: at import, for conftest.py of other folders may import what reads the environment."""

MEMORY = 1.2e9
"""Bytes that a pytest-xdist worker needs."""
PARTS = {
    "ffcv": (lambda: find_spec("ffcv"), "make ffcv"),
    "examples": (lambda: find_spec("transformers") and find_spec("lightning"), "make test-examples"),
    "wheel": (lambda: find_spec("pip") and find_spec("setuptools"), "pip install pip setuptools"),
    "latex": (lambda: which("pdflatex"), "apt-get install texlive-latex-recommended"),
    "browser": (lambda: which("chromium") or which("google-chrome"), "apt-get install chromium"),
    "slurm": (lambda: Path("/etc/debian_version").is_file() and os.getuid() == 0, "needs Debian, and root"),
}
"""Needs of tests with a marker, and where they come from."""


def by_default(config):
    """Return True if the tests are those of `make test`."""
    return config.option.markexpr in config.getini("addopts")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """A worker for each core, as far as memory goes."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(memory / MEMORY)))


def pytest_configure(config):
    """Hide GPUs from the tests of `make test`, and keep each pytest-xdist worker to one core.

    Before torch is imported, which then takes one thread: several on one core wait for one another far longer.
    """
    if LEADS:
        Finalize(None, ASIDE.close, exitpriority=-1000)  # after what multiprocessing itself tidies in there
        config.option.basetemp = config.option.basetemp or TESTS / "pytest"
        if complaint := other_installation():
            raise pytest.UsageError(complaint)
    if by_default(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def pytest_runtest_setup(item):
    """Skip tests of what is not installed here."""
    for marker, (needed, how) in PARTS.items():
        if item.get_closest_marker(marker) and not needed():
            pytest.skip(f"no {marker} here: {how}")


def pytest_unconfigure(config):
    """Say in the last line what was skipped, and how to run it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not reporter or not reporter.stats:
        return
    skipped = defaultdict[str, dict[str, None]](dict)
    for report in reporter.stats.get("skipped", []):
        what, _, how = report.longrepr[2].removeprefix("Skipped: ").partition(": ")
        skipped[how][what] = None
    lines = [f"skipped, {', '.join(parts)}: {how}" for how, parts in skipped.items()]
    if by_default(config):
        others = config.option.markexpr.strip("not ()").replace(" or ", ", ")
        lines.append(f"not run, {others}: make test-NAME; on a GPU: make test-gpu")
    reporter.write_line("; ".join(lines))


@pytest.fixture
def one_thread():
    """Tiny models: one torch thread is fastest, and their sums are always in one order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _no_initializer_of_another_test():
    """Forget what a test registers by a dotted path: other tests of this process go over the registry."""
    yield
    if registry := sys.modules.get("vitinit.initializers.registry"):
        for name, cls in list(registry.REGISTRY.known.items()):
            if not cls.__module__.startswith("vitinit.initializers."):
                del registry.REGISTRY.known[name]


@pytest.fixture(scope="session", autouse=True)
def _a_gpu_may_be_passed_over():
    """Tests run on the CPU of a machine whose driver torch cannot use; what they write need not outlive the machine."""
    from vitinit.runners.basics import environment

    environment.NVIDIA_GPU = "/dev/no-gpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def shared_folder(tmp_path_factory):
    """The folder that all pytest-xdist workers of this session have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """200 pieces of two photographs, of 64 to 96 pixels, as JPEG files of ten classes; 40 of them are for testing."""
    import random

    from tests.miniature import real_photographs

    root, draw, wholes = tmp_path_factory.mktemp("photographs"), random.Random(0), real_photographs()
    for number in range(200):
        whole, size = wholes[number % 2], (draw.randint(64, 96), draw.randint(64, 96))
        left, top = (draw.randint(0, room - side) for room, side in zip(whole.size, size, strict=True))
        file = root / ("test" if number < 40 else "train") / f"class{number % 10}" / f"{number:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        whole.crop((left, top, left + size[0], top + size[1])).save(file)
    return root


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Address of a web server over tmp_path/served."""
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    ) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture
def vitinit(capsys, monkeypatch, tmp_path):
    """Call a line of `vitinit` in this process and in tmp_path; return exit code, what it printed and its error line.

    Without data, and with as many threads afterwards as before, which runs set.
    """
    import torch

    from vitinit.runners.cli import __main__ as cli
    from vitinit.runners.options import console

    monkeypatch.setattr(console, "width", 300)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITINIT_DATA", "no-data")
    monkeypatch.setattr("vitinit.initializers.plugins.OF_OTHERS", set())  # as in a new process
    threads = torch.get_num_threads()

    def run(*line):
        monkeypatch.setattr(sys, "argv", ["vitinit", *shlex.split(" ".join(map(str, line)))])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err

    yield run
    torch.set_num_threads(threads)


@pytest.fixture
def cluster_says(tmp_path, monkeypatch):
    """Commands of SLURM that print what a test wants: what cannot be had from a real cluster at will."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def says(**commands):
        for name, text in commands.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    return says
