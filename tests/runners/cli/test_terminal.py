"""What the command line prints fits the terminal, names what can be chosen, and is short where that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from benchmark.grids import parts
from benchmark.models import registry as models
from initializers.methods.impulse import solvers
from runners.cli.options import MEASURING, SAVING, SPEED, WHAT, WHERE
from tests.processes import fresh
from tests.runners.cli.test_cli import TINY, write


@pytest.mark.parametrize(
    "words", [["run", "--help"], *(["list", kind] for kind in ("initializers", "models", "recipes"))]
)
def test_it_fits_80_columns(tmp_path: Path, words: list[str]) -> None:
    done = fresh("-m", "runners.cli", *words, cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


def test_the_help_of_run_has_groups_and_names_every_option_whole(tmp_path: Path) -> None:
    printed = fresh("-m", "runners.cli", "run", "--help", cwd=tmp_path, COLUMNS="80").stdout
    places = [printed.index(f"─ {group} ─") for group in (WHAT, WHERE, SPEED, SAVING, MEASURING)]
    assert places == sorted(places)
    assert "…" not in printed
    assert {"--checkpoint-minutes", "--retry-failed", "--no-download"} <= set(re.findall(r"--[a-z-]+", printed))


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


def test_brief_is_one_line_for_the_runs_of_a_row_and_dataset(here, tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.yaml", {**TINY, "blocks": [{**TINY["blocks"][0], "seeds": [0, 1]}]})
    code, printed = here("run", path, "--executor", "inline", "--brief")
    assert code == 0
    assert sorted(re.findall(r"(\S+), digits\[100\]: top-1 \d+\.\d\d% \(mean of 2 seeds\), \d+ s", printed)) == [
        "Mimetic",
        "uniform",
    ]
    assert "after 2 epochs" not in printed
