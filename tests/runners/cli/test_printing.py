"""What the command line prints fits the terminal, names what can be chosen, and is short where that is asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from rich.cells import cell_len
from torch import nn

import vitinit
from tests.processes import fresh
from tests.runners.cli.test_cli import TINY, write
from vitinit.benchmark.grids import grid, parts
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import NEVER_FOLDED
from vitinit.initializers import registry as initializers
from vitinit.initializers.methods.impulse import Impulse, solvers
from vitinit.runners.basics.environment import ROOT
from vitinit.runners.options import MEASURING, SAVING, SPEED, WHAT, WHERE, console

COMMANDS = [
    *(["plan"], ["run"], ["status"], ["rank"], ["check"], ["show"], ["reproduce"], ["list"]),
    *(["data", name] for name in ("get", "prepare")),
    *(["store", name] for name in ("check", "export")),
    *(["slurm", name] for name in ("profiles", "check", "cancel", "logs")),
]


@pytest.mark.long
def test_it_fits_80_columns_and_every_option_of_run_and_every_family_is_named_whole(here, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(console, "width", 80)
    lists = [
        ["list", kind]
        for kind in ("initializers", "datasets", "models", "fits", "recipes", "optimizers", "metrics", "trackers")
    ]
    printed = {}
    for words in (["run", "--help"], *lists, ["list", "initializers", "placebo"], ["list", "models", "vit_tiny"]):
        code, printed[words[1]] = here(*words)
        assert code == 0
        assert max(map(cell_len, printed[words[1]].splitlines())) <= 80, words
    text = printed["--help"]
    places = [text.index(f"─ {group} ─") for group in (WHAT, WHERE, SPEED, SAVING, MEASURING)]
    assert places == sorted(places)
    assert {"--checkpoint-minutes", "--retry-failed", "--no-download"} <= set(re.findall(r"--[a-z-]+", text))
    heads = [line.split()[1:] for line in printed["fits"].splitlines() if line.startswith(("base ", "method "))]
    assert heads == [list(models.described())] * 2
    assert "…" not in text + printed["fits"]


def test_a_plan_fits_80_columns_whatever_it_has_to_say(tmp_path: Path, here, monkeypatch) -> None:
    """Rows and models with long names; a run that failed with a long message, and one that was stopped."""
    rows = {"Trunc normal": {"base": "trunc_normal"}, "Learning rate 1e20": {"base": "trunc_normal"}}
    rows["Learning rate 1e20"]["recipe"] = {"lr": 1e20, "eps": 1e-30}
    block = {**TINY["blocks"][0], "recipe": {"name": "small", "epochs": 1}, "seeds": [0, 1]}
    mixer = {"preset": "convmixer_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1}
    path = write(tmp_path / "tiny.yaml", {**TINY, "rows": rows, "blocks": [block, {**block, "model": mixer}]})

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(console, "width", 80)

    def printed(*words: str) -> list[str]:
        code, out = here(*words)
        assert code in (0, 1)
        return out.splitlines()

    printed("run", path, "--executor", "inline", "--only", "arch=vit", "--only", "seed=0", "--no-probes")
    (failed,) = Store(tmp_path / "results/local").read("tiny").failed
    stopped = next(cell for cell in grid.load(path).cells if cell.spec.seed == 1)
    checkpoint = tmp_path / f"results/local/tiny/unfinished/{stopped.run_id}/step-1.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    lines = printed("plan", path)
    assert max(map(cell_len, lines)) <= 80, lines
    (at,) = (number for number, line in enumerate(lines) if line.startswith(failed))
    assert lines[at].endswith("failed")
    assert next(line for line in lines[at + 1 :] if "Diverged" in line).startswith("  Diverged: ")
    (at,) = (number for number, line in enumerate(lines) if line.startswith(stopped.run_id))
    assert "stopped, resumes from its checkpoint" in " ".join(" ".join(lines[at : at + 4]).split())
    assert max(map(cell_len, printed("store", "check"))) <= 80


def at_width(here, monkeypatch, columns: int, *words: str) -> str:
    monkeypatch.setattr(console, "width", columns)
    code, printed = here(*words)
    assert code == 0
    return printed


def test_labels_of_a_plan_fold_on_a_terminal_and_each_run_is_one_line_elsewhere(here, monkeypatch) -> None:
    places = {cell.run_id: cell.place for cell in grid.load("table4-small").cells}
    words = ("plan", "table4-small")
    whole, narrow, wide = (at_width(here, monkeypatch, columns, *words) for columns in (NEVER_FOLDED, 80, 200))
    lines = narrow.splitlines()
    assert max(map(cell_len, lines)) <= 80
    (heading,) = (line for line in lines if line.startswith("run "))
    start, end = heading.index("dataset"), heading.index("seed")
    for run_id, (row, dataset) in places.items():
        line = re.compile(rf"^{run_id}  {re.escape(row)} +{re.escape(dataset)} +\d+ +5  skip$", re.MULTILINE)
        assert [bool(line.search(printed)) for printed in (whole, wide, narrow)] == [True, True, False]
        at = next(at for at, line in enumerate(lines) if line.startswith(run_id))
        assert lines[at].endswith("skip"), "the state is on the first line"
        assert re.sub(r"\s+", " ", lines[at][18:start]).strip() == row
        assert f"{lines[at][start:end].strip()} {lines[at + 1].strip()}" == dataset


def test_what_is_piped_is_not_folded(tmp_path: Path) -> None:
    deep = Path("a" * 60) / ("b" * 60)
    (tmp_path / deep / "tiny").mkdir(parents=True)
    (tmp_path / deep / f"tiny/{'0' * 16}.json").write_text("{}")
    write(tmp_path / "tiny.yaml", TINY)
    words = ("-m", "vitinit.runners.cli", "status", "tiny.yaml", "--results", str(deep))
    printed = fresh(*words, cwd=tmp_path, COLUMNS="").stdout
    assert f"{deep}/tiny/{'0' * 16}.json" in printed
    assert max(map(len, printed.splitlines())) < NEVER_FOLDED / 10, "titles are not centred in a line without an end"


def test_the_version_is_that_of_the_project(here) -> None:
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert here("--version")[1] == f"vitinit {vitinit.__version__}\n" == f"vitinit {line.split(chr(34))[1]}\n"


def test_lists_name_what_can_be_chosen(here) -> None:
    listed = here("list", "initializers")[1]
    (names,) = re.findall(r"solver = rotation  \((.*)\)", listed)
    assert set(names.split(" | ")) == {"gradient", "rotation", "svd"}
    steps, lr = (solvers.Gradient.model_fields[name].default for name in ("steps", "lr"))
    assert f"gradient: steps = {steps}, lr = {lr}, " in listed
    lines = [line.split() for line in here("list", "models")[1].splitlines()]
    assert ["vit_tiny", "vit", "192", "12", "3"] in lines
    assert set(models.presets()) <= {line[0] for line in lines}
    assert set(parts.recipes()) <= {line.split()[0] for line in here("list", "recipes")[1].splitlines()}
    whole = here("list", "recipes", "standard")[1].splitlines()
    recipe = parts.resolve_recipe({"name": "standard"})
    assert [line.partition(":")[0] for line in whole] == [name for name in type(recipe).model_fields if name != "name"]
    assert here("list", "recipes", "standard2")[0] == 2


def test_one_initializer_is_listed_with_its_docstring_and_types_and_limits_as_in_yaml(here) -> None:
    listed = here("list", "initializers", "impulse")[1]
    assert " ".join((Impulse.__doc__ or "").split()) in " ".join(listed.split())
    lines = [" ".join(line.split()) for line in listed.splitlines()]
    assert "solver = rotation (gradient | svd | rotation)" in lines
    assert "steps = 10000 (whole number, at least 0, at most 10,000,000)" in lines
    assert "per_layer = false (true or false)" in lines
    assert "weight_norm = null (number, above 0; or null)" in lines
    assert "of = {name: mimetic}" in here("list", "initializers", "placebo")[1]
    assert "matrix = key  (query | key | value)" in here("list", "initializers", "dct")[1]
    by_path = here("list", "initializers", "vitinit.initializers.methods.dct:Dct")[1]
    assert by_path == here("list", "initializers", "dct")[1]
    assert here("list", "initializers", "dtc")[0] == 2


@pytest.mark.long
def test_every_initializer_and_every_model_can_be_listed_in_full(here) -> None:
    for name in initializers.names():
        printed = here("list", "initializers", name)[1]
        assert printed.startswith(f"{name} (")
        for field in initializers.get(name).model_fields:
            assert re.search(rf"^{field} = \S.*\(", printed, flags=re.MULTILINE), (name, field)
    for name in models.presets():
        assert here("list", "models", name)[0] == 0, name
    shown = yaml.safe_load(here("list", "models", "vit_tiny")[1])
    family = models.get("vit")
    assert list(shown) == list(family.model_fields)
    assert {"arch": "vit", "width": 192, "depth": 12}.items() <= shown.items()
    assert family.model_validate(shown) == resolve_model({"preset": "vit_tiny", "image_size": 32, "patch_size": 4})


def test_datasets_are_listed_with_their_numbers_and_each_name_once(here) -> None:
    lines = [re.split(r"\s{2,}", line.strip()) for line in here("list", "datasets")[1].splitlines()]
    assert ["digits", "1,437", "360", "10", "available"] in lines
    (flowers,) = (line for line in lines if line[0] == "flowers")
    assert flowers[1:4] == ["2,040", "6,149", "102"]
    assert flowers[4].startswith("not here: put flowers-102/ with jpg,")
    assert ["folder:PATH", "Any folder of images, one subfolder a class."] in lines
    assert "digits" not in here("list", "datasets", "flowers")[1]


def test_what_fits_what_is_a_table_with_reasons(here) -> None:
    printed = here("list", "fits")[1]
    assert "choose a ConViT" in " ".join(printed.split()), "the name of another family is not taken to pieces"
    lines = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]
    archs = next(line[1:] for line in lines if line[0] == "method")
    assert archs == list(models.described())
    cells = {line[0]: dict(zip(archs, line[1:], strict=True)) for line in lines if len(line) == len(archs) + 1}
    assert set(cells) - {"base", "method"} == set(initializers.names())
    assert cells["mimetic"]["vit"] == cells["impulse"]["convit"] == "yes"
    notes = dict(line[:2] for line in lines if line[0].isdigit())
    assert notes[cells["impulse"]["convmixer"].removeprefix("no ")] == "it has no attention layer"
    assert "convmixer  no: method 'impulse': ConvMixer has no attention layer\n" in here("list", "fits", "impulse")[1]
    assert "placebo  yes; where the method fits that it is a placebo of\n" in here("list", "fits", "convit")[1]
    assert here("list", "fits", "convix")[0] == 2


def test_brief_tells_models_apart_and_every_reason_for_a_skip_is_said(here, tmp_path: Path) -> None:
    small = {"image_size": 8, "patch_size": 2, "width": 16, "depth": 1}
    block = {**TINY["blocks"][0], "recipe": {"name": "small", "epochs": 1}}
    presets = "vit_micro", "convmixer_micro"
    blocks = [{**block, "model": {"preset": preset, **small}} for preset in presets]
    rows = {"Trunc normal": {"base": "trunc_normal"}, "Mimetic": {"base": "trunc_normal", "method": "mimetic"}}
    path = write(tmp_path / "tiny.yaml", {**TINY, "rows": rows, "blocks": blocks})
    for planned in (here("plan", path)[1], here("run", path, "--executor", "inline", "--brief")[1]):
        reason = "method 'mimetic': ConvMixer has no attention layer"
        assert re.search(rf"skip(ping)? Mimetic, digits\[100\] \(arch convmixer\): {reason}", planned)
    score = r"top-1 (\d+\.\d\d)% \(1 seed\), \d+ (?:s|min|h)\b"
    runs = dict(re.findall(rf"Trunc normal, digits\[100\] \(arch (\w+)\): {score}", planned))
    assert sorted(runs) == ["convmixer", "vit"]
    assert re.search(rf"Mimetic, digits\[100\] \(arch vit\): {score}", planned)
    status = here("status", path, "--seeds", "0,1")[1]
    for arch, top1 in runs.items():
        assert re.search(rf"Trunc normal +digits\[100\] \(arch {arch}\) .* {top1}% \(n=1\)", status)


def test_runs_are_told_apart_by_what_differs_and_by_nothing_else(here, tmp_path: Path) -> None:
    """Recipes of one dataset are; models that each have a dataset of their own are not."""
    block = TINY["blocks"][0]
    recipes = [{**block, "seeds": [0, 1], "recipe": {**block["recipe"], "epochs": epochs}} for epochs in (1, 2)]
    models = [
        {
            **block,
            "datasets": [{"name": "digits", "train_size": images}],
            "model": {**block["model"], "patch_size": patch},
        }
        for images, patch in ((100, 2), (120, 4))
    ]
    one = {**TINY, "rows": {"Trunc normal": {"base": "trunc_normal"}}}
    path = write(tmp_path / "tiny.yaml", {**one, "blocks": recipes})
    for epochs in (1, 2):
        assert re.search(rf"Trunc normal +digits\[100\] \(epochs {epochs}\) +2", here("status", path)[1])
        label = rf"Trunc normal +digits\[100\] \(epochs {epochs}\) +[01] +{epochs}  to do"
        assert len(re.findall(label, here("plan", path)[1])) == 2
    cells = grid.load(write(tmp_path / "models.yaml", {**one, "blocks": models})).cells
    assert [cell.place for cell in cells] == [("Trunc normal", f"digits[{images}]") for images in (100, 120)]


EVERY_COMMAND = """
import sys
from vitinit.runners.cli import main as cli
for words in {commands!r}:
    sys.argv = ["vitinit", *words]
    try:
        cli.main()
    except SystemExit as stop:
        print("ENDED", stop.code or 0, *words)
"""


@pytest.mark.long
def test_every_command_on_a_terminal_that_lacks_characters(tmp_path: Path) -> None:
    """With the live display too, which rich shows where colours are forced: Latin-1 has umlauts, but no minus."""
    path = tmp_path / "tiny.yaml"
    name = "初期化 −Größe"
    path.write_text(yaml.safe_dump({**TINY, "title": name, "rows": {name: {"base": "trunc_normal"}}}), encoding="utf-8")
    grid = ["tiny.yaml"]
    helps = [[*words, "--help"] for words in ([], *COMMANDS)]
    lists = [["list", kind] for kind in ("initializers", "datasets", "models", "recipes")]
    real = [
        ["plan", *grid],
        ["run", *grid, "--executor", "inline", "--no-probes"],
        ["run", *grid, "--dry-run"],
        ["status", *grid],
        ["store", "check"],
        ["store", "export"],
        ["slurm", "profiles"],
        ["plan", name],
    ]
    commands = [*helps, *lists, *real]
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_COMMAND.format(commands=commands)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "latin-1",
            "LC_ALL": "C",
            "FORCE_COLOR": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
    )
    said, wrong = (stream.decode("latin-1") for stream in (ran.stdout, ran.stderr))
    assert ran.returncode == 0, wrong
    assert "Traceback" not in said + wrong
    ended = [int(line.split()[1]) for line in said.splitlines() if line.startswith("ENDED")]
    assert ended == [0] * (len(commands) - 1) + [2]
    assert "all runs" in said, "the live display"
    assert "??? -Größe" in said, "a minus is a minus"
    assert "error: " in wrong


def test_a_method_without_a_docstring_is_listed_with_the_others(here, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(initializers.Initializer):
        name: ClassVar[str] = "bare"
        touches: ClassVar[tuple[str, ...]] = ()

        def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
            pass

    Bare.__doc__ = None
    initializers.names()  # all files are read before one is added
    monkeypatch.setitem(initializers.REGISTRY.known, "bare", Bare)
    for words in ((), ("bare",)):
        code, printed = here("list", "initializers", *words)
        assert (code, "bare (method)" in printed) == (0, True)
    (known,) = [one for one in vitinit.catalogue() if one.name == "bare"]
    assert str(known).startswith("method bare()")
