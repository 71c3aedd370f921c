"""`vitinit speed`, and the hours that `vitinit plan --estimate` makes of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.processes import FORKS, alive, until
from vitinit.benchmark import speed
from vitinit.benchmark.files import kept
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.run import _check_that_it_compiles
from vitinit.runners.measuring import precision
from vitinit.runners.measuring import speed as measuring
from vitinit.runners.measuring.speed import Meter, scaling

VIT = ViT(image_size=32, patch_size=4, width=48, depth=3, heads=4, mlp_ratio=3)
TOKEN = VIT.model_copy(update={"position": "learned", "pool": "token"})
CONVIT = resolve_model({"preset": "convit_micro", "image_size": 32, "patch_size": 4})
CONVMIXER = resolve_model({"preset": "convmixer_micro", "image_size": 32, "patch_size": 4, "kernel_size": 5})


@pytest.mark.parametrize(("spec", "exact"), [(VIT, True), (TOKEN, True), (CONVIT, False), (CONVMIXER, True)])
def test_operations_are_those_that_torch_counts(spec, exact):
    model = build_model(spec, 10)
    # attention as plain products: torch 2.14, the last for Python 3.10, does not count those of the fused kernel
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss = model.eval()(torch.zeros(1, 3, 32, 32)).sum()
    forward = counter.get_total_flops()
    # of ConViT, positions too are multiplied by values, and that once for all images
    assert spec.forward_operations(10) == pytest.approx(forward, rel=1e-12 if exact else 0.1)
    if spec is CONVMIXER:
        return  # torch counts the gradients of depthwise filters as those of filters that see every channel
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    # the gradient of the images is not asked for
    assert speed.training_flops(spec, 10) == pytest.approx(forward + counter.get_total_flops(), rel=0.1)


OPTIONS = ("--seconds", "0.01", "--threads", "1", "--results", "results", "--device", "cpu")


def timed(here, *words: str) -> tuple[int, str, speed.SpeedReport]:
    code, output = here("speed", *words, *OPTIONS)
    (file,) = Path("results/speed").glob("*/speed.json")
    return code, output, speed.read(file)


def test_the_report_is_printed_written_and_turned_into_hours(here, tmp_path):
    parts = ("--only", "training", "--only", "checkpoints")
    code, output, report = timed(here, "--model", "vit_micro/8", "--batch-size", "16", *parts)
    assert code == 0, output
    assert [row.precision for row in report.training] in (["fp32"], ["fp32", "bf16"])
    assert not report.loaders
    for row in report.training:
        flops = speed.training_flops(resolve_model({"preset": "vit_micro", "image_size": 32, "patch_size": 8}), 10)
        assert row.gflops == pytest.approx(row.images_per_s * flops / 1e9)
        share = row.gflops / report.matmul_gflops[row.precision]
        assert row.share_of_peak == (pytest.approx(share) if share <= 1 else None)
        assert row.peak_memory_mib > 100
    # 0.1 M parameters, and Adam keeps two values for each
    assert 0.5 < report.checkpoints[0].megabytes < 3
    assert f"{report.training[0].images_per_s:,.0f}" in output

    (tmp_path / "mine.yaml").write_text(
        'title: "mine"\nrows: {Kaiming uniform: {base: kaiming_uniform}}\nblocks:\n'
        "  - datasets: [cifar100]\n    model: {preset: vit_micro, image_size: 32, patch_size: 8}\n"
        "    recipe: {name: small, epochs: 700}\n    seeds: [0, 1]\n"
    )
    code, output = here("plan", "mine.yaml", "--estimate", *OPTIONS[4:])
    assert code == 0, output
    model = resolve_model({"preset": "vit_micro", "image_size": 32, "patch_size": 8})
    operations = 700 * model.forward_operations(100) * (3 * 50_000 + 10_000)
    hours = 2 * operations / (1e9 * report.training[0].gflops) / 3600
    assert f"{hours:.2f} hours, one run at a time, as measured on {report.name}" in output


GRID = """
title: mine
rows: {Kaiming uniform: {base: kaiming_uniform}}
blocks:
  - datasets: [digits]
    model: {preset: vit_micro, image_size: 8, patch_size: 2}
    recipe: {name: small, precision: PRECISION}
    seeds: [0]
"""


@pytest.fixture
def grids(monkeypatch, tmp_path) -> Path:
    """A grid for each precision, and a cache that says that this processor is slow in bf16 and fp16."""
    monkeypatch.setenv("VITINIT_CACHE", str(tmp_path / "cache"))
    for name in ("fp32", "bf16", "fp16"):
        (tmp_path / f"{name}.yaml").write_text(GRID.replace("PRECISION", name))
    measured(fp32=100.0, bf16=9.0, fp16=1.0)
    return tmp_path


ASKS = re.compile(r"recipe small asks for (\w+), in which this processor is (\d+) times slower than in fp32")


def measured(**gflops: float) -> None:
    """What this processor is said to reach, as if it had been measured."""
    kept.write(precision.KIND, precision._key(), precision.Products(**gflops))


def test_a_precision_that_is_many_times_slower_here_is_measured_once_and_said(here, grids):
    (file,) = grids.glob("cache/precision/*.json")
    file.unlink()
    assert here("plan", "fp32.yaml", "--device", "cpu")[0] == 0
    assert not file.exists(), "nothing asks for it"
    file.write_text("{")  # damaged, so it is measured anew
    code, output = here("plan", "bf16.yaml", "--device", "cpu")
    assert code == 0, output
    found = precision.Products.model_validate_json(file.read_text().partition("\n")[2])
    times = found.fp32 / found.bf16
    assert ASKS.findall(output) == ([("bf16", f"{times:.0f}")] if times >= precision.MANY else [])
    measured(fp32=100.0, bf16=50.0, fp16=20.0)
    for command in (("plan",), ("run", "--dry-run", "--executor", "local")):
        assert not ASKS.search(here(*command, "bf16.yaml", "--device", "cpu")[1])
        code, output = here(*command, "fp16.yaml", "--device", "cpu")
        assert code == 0, output
        assert ASKS.findall(output) == [("fp16", "5")]
        assert "(a product of 256 x 256: 20.00 against 100 GFLOP/s)" in output


def test_hopeless_precisions_and_other_models_are_left_out_and_a_share_above_1_is_not_given(here, grids, monkeypatch):
    """A ViT-B, which initialisers are measured on else, takes minutes."""
    monkeypatch.setattr(Meter, "matmul", lambda meter, precision: meter.matmul_gflops.update({precision: 1e-9}))
    words = ("--model", "convmixer_micro/4@8", "--only", "training", "--only", "initializers", "--batch-size", "16")
    code, output, report = timed(here, *words)
    assert code == 0, output
    assert [row.precision for row in report.training] == list(report.matmul_gflops) == ["fp32"]
    assert report.training[0].share_of_peak is None
    assert "faster than it" in output
    said = "bf16 is left out, being many times slower than fp32 here (a product of 256 x 256: 9.00 against 100 GFLOP/s)"
    assert said in output
    assert {row.model for row in report.initializers} == {"convmixer_micro/4@8"}


def test_the_nearest_shape_at_the_precision_counts(tmp_path):
    rows = [
        {"tokens": tokens, "width": width, "precision": precision, "gflops": gflops}
        for tokens, width, precision, gflops in (
            (64, 192, "fp32", 100.0),
            (256, 192, "fp32", 80.0),
            (64, 384, "fp32", 150.0),
            (64, 192, "bf16", 300.0),
        )
    ]
    same = {"model": "m", "image_size": 32, "patch_size": 4, "depth": 2, "batch_size": 64, "compiled": False}
    same |= {"augmentation": "none", "images_per_s": 1.0, "share_of_peak": 0.5, "peak_memory_mib": 1.0}
    report = speed.SpeedReport.model_validate(
        {"written": "", "device": "cpu", "threads": 2, "machine": {"processor": "P"}, "matmul_size": 8}
        | {"matmul_gflops": {}, "loaders": [], "training": [row | same for row in rows], "scaling": []}
        | {"initializers": [], "checkpoints": [], "compiling": []}
    )
    shape = {"patch_size": 2, "depth": 12, "heads": 3}
    assert report.gflops(ViT(image_size=32, width=192, **shape), "fp32") == 80
    assert report.gflops(ViT(image_size=16, width=768, **shape), "fp32") == 150
    assert report.gflops(ViT(image_size=16, width=96, **shape), "fp16") == 300
    assert report.model_copy(update={"training": report.training[:3]}).gflops(VIT, "bf16") is None
    assert report.gflops(CONVMIXER, "fp32") is None, "transformers say nothing of it"

    path = speed.path(tmp_path, report)
    path.parent.mkdir(parents=True)
    path.write_text(report.model_dump_json())
    assert speed.reports([tmp_path / "none", tmp_path], "cpu") == [report]
    assert speed.reports([tmp_path], "cuda") == []
    path.write_text(json.dumps({"version": 2}))
    with pytest.raises(VitinitError, match=re.escape(f"{path} is no report of vitinit speed")):
        speed.reports([tmp_path], "cpu")


def test_every_method_that_fits_is_timed_also_one_that_needs_images():
    spec = ViT(image_size=16, patch_size=4, width=24, depth=1, heads=2)
    timed = {found.initializer for found in Meter(torch.device("cpu"), 0.01).initializers({"ViT": spec})}
    assert timed >= {"lsuv", "mimetic", "trunc_normal"}
    assert not timed & {"convit_gpsa", "weight_selection"}, "of another family; from a checkpoint"


def test_scaling_changes_one_thing_at_a_time():
    points = [(spec.grid, spec.width, size) for spec, size in scaling()]
    assert len(set(points)) == len(points) == 7
    assert all(sum(a != b for a, b in zip(points[0], point, strict=True)) == 1 for point in points[1:])


def test_what_cannot_be_measured_is_said_in_one_line(vitinit, monkeypatch):
    monkeypatch.setattr("vitinit.runners.basics.machine.default_device", lambda: "cpu")
    for arguments, said in (
        ("--model vit_tiny", "write PRESET/PATCH"),
        ("--model vit_huge/4", "vit_huge"),
        ("--model vit_tiny/5", "model: image_size 32 is not divisible by patch_size 5"),
        ("--model vit_tiny/²", "write PRESET/PATCH"),
        ("--model vit_tiny/0", "patch_size"),
        ("--batch-size 60000 --only training", "--batch-size 60000: at most 16666"),
        ("--only speed", "part of --only"),
        ("--device cuda", "no CUDA GPU"),
    ):
        code, _, error = vitinit("speed", *arguments.split())
        assert (code, said in error, error.count("\n")) == (2, True, 1), error


@pytest.fixture
def little_memory():
    """For this process, 2 GiB more than it has now."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space, and /proc")
def test_a_part_that_has_no_memory_is_one_line_and_the_others_are_written(here, grids, little_memory):
    words = ("--model", "vit_micro/16@224", "--batch-size", "16000", "--only", "training", "--only", "checkpoints")
    code, output, report = timed(here, *words)
    assert code == 1
    assert output.count("training cannot be measured: ") == 1
    assert "allocate memory" in output
    assert (report.training, [row.model for row in report.checkpoints]) == ([], ["vit_micro/16@224"])


def test_a_measurement_that_is_interrupted_leaves_the_report_of_before(here, grids, monkeypatch):
    model = ("--model", "vit_micro/16")
    code, _, before = timed(here, *model, "--only", "checkpoints")
    assert code == 0

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Meter, "checkpoint", interrupted)
    with suppress(KeyboardInterrupt):
        here("speed", *model, "--only", "training", "--only", "checkpoints", *OPTIONS)
    (file,) = Path("results/speed").glob("*/speed.json")
    assert speed.read(file) == before
    assert speed.read(file.with_name("unfinished.json")).training


def compiles(said: Path) -> None:
    threading.Thread(target=measuring._outlive_nobody, daemon=True).start()
    said.write_text(str(os.getpid()))
    signal.pause()


def waits(said: Path) -> None:
    multiprocessing.get_context("fork").Process(target=compiles, args=(said,)).start()
    signal.pause()


def test_what_compiles_ends_with_the_command(tmp_path):
    """An executor's process does not notice by itself that its parent was killed."""
    said = tmp_path / "pid"
    parent = FORKS.Process(target=waits, args=(said,))
    parent.start()
    until(lambda: said.exists() and said.read_text(), "the process that compiles", parent)
    parent.kill()
    until(lambda: not alive(int(said.read_text())), "the end of what compiles")


def killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_compiles_and_is_killed_is_noticed(monkeypatch):
    """As by a system that has no memory left; `vitinit speed` says a RuntimeError in one line."""
    monkeypatch.setattr(measuring, "_compiled", killed)
    monkeypatch.setattr(measuring, "lacks_compiler", lambda: "")
    forks = SimpleNamespace(get_context=lambda kind: multiprocessing.get_context("fork"))  # spares importing torch
    monkeypatch.setattr(measuring, "multiprocessing", forks)
    with pytest.raises(RuntimeError, match="terminated abruptly"):
        Meter(torch.device("cpu")).compiling("vit_micro/8", VIT, "fp32")


def test_without_a_compiler_all_but_compiling_is_measured_and_nothing_is_compiled(here, grids, monkeypatch):
    """torch takes g++ or what CXX says, and no other."""
    compiler = grids / "bin/clang++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    monkeypatch.delenv("CXX", raising=False)
    why = "torch.compile needs a C++ compiler on a CPU, and 'g++' is not on the PATH"
    code, output, report = timed(here, "--model", "vit_micro/8", "--only", "checkpoints", "--only", "compiling")
    assert (code, f"compiling cannot be measured: {why}" in output) == (1, True), output
    assert len(report.checkpoints) == 1
    for variable, says in ((None, f"--compile: {why}"), ("g++ 'not closed", "not closed")):
        if variable:
            monkeypatch.setenv("CXX", variable)
        with pytest.raises(VitinitError, match=re.escape(says)):
            _check_that_it_compiles("cpu", False, here=True)
    monkeypatch.setenv("CXX", "clang++ -v")
    _check_that_it_compiles("cpu", False, here=True)
