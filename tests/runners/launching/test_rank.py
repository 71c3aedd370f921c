"""`vitinit rank`: real runs of a tiny tier, what it refuses, and what it claims."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.processes import fresh
from tests.runners.small_run import inside, tiny_tier
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records import looks
from vitinit.benchmark.spec import InitializerSpec, RunSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli import rank as cli_rank
from vitinit.runners.launching import rank
from vitinit.runners.options import LaunchOptions

ROOT = Path(__file__).parents[3]
MINE = '''
from typing import ClassVar
import torch
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, register

@register
class Mine(Initializer):
    """W_v is halved."""
    name: ClassVar[str] = "mine"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)
    @torch.no_grad()
    def apply(self, model, generator, progress):
        for layer in attention_layers(model):
            layer.value_DD.mul_(0.5)
'''

BASE = """
from typing import ClassVar
import torch
from vitinit.initializers.bases.kaiming_uniform import KaimingUniform
from vitinit.initializers.registry import register

@register
class Half(KaimingUniform):
    '''All of Kaiming's values, halved.'''
    name: ClassVar[str] = "half"
    @torch.no_grad()
    def apply(self, model, generator, progress):
        super().apply(model, generator, progress)
        for parameter in model.parameters():
            parameter.mul_(0.5)
"""


def test_budgets() -> None:
    assert [rank.seconds(budget) for budget in ("90s", "30m", "1.5h")] == [90, 1800, 5400]


def test_rounds_stop_before_the_budget_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(rank.time, "monotonic", lambda: clock[0])

    def taking(seconds: float, code: int = 0):
        seen: list[int] = []

        def carry_out(first: int, end: int) -> int:
            clock[0] += seconds
            seen.extend(range(first, end))
            return code

        return seen, carry_out

    for seconds, expected in ((10.0, 6), (100.0, 2), (0.0, 7)):
        seen, carry_out = taking(seconds)
        budget = rank.Budget(39.0)
        assert budget.rounds(0, 7, 2, carry_out) == (expected, 0)
        assert seen == list(range(expected))
        assert budget.longest == seconds
        assert budget.rounds(expected, 7, 2, carry_out) == (expected, 0), "the next look has what this one has left"
    assert rank.Budget(39.0).rounds(0, 7, 2, taking(1.0, 1)[1]) == (2, 1), "what went wrong ends them"


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prepare the quick tier, which is the grid smoke; paths and variables are as before after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setitem(rank.TIERS, "quick", "smoke")

    def prepared(method: str, base: str | None = None, model: str | None = None) -> rank.Ranked:
        return rank.prepare(method, "quick", base, model, tmp_path / "results", tmp_path)

    return prepared


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "base"),
    [("FILE:Mine", None), ("mimetic", "mine:Half"), ("mimetic", "FILE:Half"), ("mimetic", "{name: 'FILE:Half'}")],
)
def test_an_edited_method_or_base_is_another_study(method: str, base: str | None, tmp_path: Path, quick) -> None:
    """By its file, which Python does not find, or a base as a module, which it does."""
    file = tmp_path / "here/mine.py"
    file.parent.mkdir()
    method, base = method.replace("FILE", str(file)), base and base.replace("FILE", str(file))
    if base == "mine:Half":
        sys.path.append(str(file.parent))
    studies, text = [], MINE + BASE
    for edited in (text, text, text.replace("0.5", "0.6")):
        file.write_text(edited)
        sys.modules.pop("mine", None)  # as in a process of its own
        studies.append(quick(method, base).grid)
    assert studies[0] == studies[1] != studies[2]
    content = yaml.safe_load(studies[0].read_text())
    if base is None:
        assert content["rows"]["Mine"]["method"] == {"name": "mine:Mine"}
        assert content["contrasts"] == [["Mine", "Mine's base"], ["Mine", "Mine, placebo"]]
        return
    assert {cell.spec.base.name for cell in grid.load(str(studies[0])).cells} == {"mine:Half"}
    if "/" in base:
        assert str(file.parent) in os.environ["VITINIT_METHODS"].split(os.pathsep), "for the processes of the runs"


def test_method_and_base_of_one_file_name_are_not_taken_for_one_another(tmp_path: Path, quick, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    method, base = tmp_path / "a/mine.py", tmp_path / "b/mine.py"
    for file, text in ((method, MINE), (base, BASE)):
        file.parent.mkdir()
        file.write_text(text)
    with pytest.raises(VitinitError, match=r"'mine' is another module \(.*mine\.py\); give the file another name"):
        quick(f"{method}:Mine", f"{base}:Half")
    assert not (tmp_path / "results").exists()


def test_a_file_of_ours_is_the_method_that_it_brings_and_a_wrong_class_is_answered_with_those_of_the_file() -> None:
    file = ROOT / "initializers/methods/zero_query.py"
    assert rank.named(f"{file}:ZeroQuery") == ({"name": "vitinit.initializers.methods.zero_query:ZeroQuery"}, None)


def test_model_and_base_are_those_of_all_rows(tmp_path: Path, quick) -> None:
    def prepared(method: str, base: str | None, model: str | None) -> list[RunSpec]:
        ranked = quick(method, base, model)
        assert ranked.useless == ""
        return [cell.spec for cell in grid.load(str(ranked.grid), seeds=[0]).cells]

    plain = prepared("mimetic", None, None)
    assert [spec.base.name for spec in plain] == ["kaiming_uniform"] * 3
    wide = prepared("mimetic", "{name: trunc_normal, std: 0.1}", "{width: 24, depth: 1}")
    assert [spec.base for spec in wide] == [InitializerSpec(name="trunc_normal", params={"std": 0.1})] * 3
    for before, spec in zip(plain, wide, strict=True):
        assert spec.model == before.model.model_copy(update={"width": 24, "depth": 1})
        assert (spec.recipe, spec.dataset) == (before.recipe, before.dataset)
    assert [spec.base.name for spec in prepared("mimetic", "trunc_normal", None)] == ["trunc_normal"] * 3
    mixer = prepared("conv_filters", None, "{preset: convmixer_micro, patch_size: 2, width: 16, depth: 1}")
    assert {spec.model.arch for spec in mixer} == {"convmixer"}
    assert len({path.name for path in (tmp_path / "results").glob("*.yaml")}) == 4, "each is a study of its own"


FAILS = MINE.replace("import torch\n", "import multiprocessing\nfrom pathlib import Path\nimport torch\n").replace(
    "        for layer in",
    """        failed = Path(__file__).with_name("failed")
        if multiprocessing.parent_process() and not failed.exists():  # in a run
            failed.mkdir()
            raise RuntimeError("it fails once")
        for layer in""",
)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the quick tier a tiny one, its looks at 3 and 4 seeds, every command one of this process, a round 2 s."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setitem(rank.TIERS, "quick", tiny_tier(tmp_path))
    monkeypatch.setattr(looks, "PLAN", ((3, 0.01), (4, 0.2)))
    ticks = itertools.count(0, 2)
    monkeypatch.setattr(rank, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(rank, "standing", lambda words: inside("vitinit.analysis.standing", words))
    monkeypatch.setattr("vitinit.runners.launching.launch.default_workers", lambda *_: 1)
    for name in ("my_method", "mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.long
def test_a_method_of_ones_own_is_ranked(tmp_path: Path, vitinit, undisturbed, tiny) -> None:
    """The whole path in seconds, one run fails on the way."""
    (tmp_path / "my_method.py").write_text(FAILS)

    def ranked(*arguments: str) -> tuple[int, str, str]:
        code, out, err = vitinit("rank", *arguments)
        return code, " ".join(out.split()), err

    returned, out, err = ranked("my_method.py:Mine")
    assert returned == 1, out + err
    again = "1 run failed; to run again: vitinit rank my_method.py:Mine --tier quick --retry-failed --budget 30m"
    assert again in out
    assert "vitinit status" not in out, "it could not import the method"
    assert "Mine: no verdict yet: 0 of the 3 seeds" in out
    returned, out, err = ranked("my_method.py:Mine", "--retry-failed", "--worth", "100")
    assert (returned, "no second rule may look" in err) == (2, True)
    returned, out, err = ranked("my_method.py:Mine", "--retry-failed", "--budget", "1s")
    assert (returned, "1 of 3 seeds; another round takes about 2 s" in out) == (0, True), out + err
    assert "To go on: vitinit rank my_method.py:Mine --tier quick --budget 2h" in out
    returned, out, err = ranked("my_method.py:Mine")
    assert (returned, "minus its placebo" in out, "The answer is final" in out) == (0, True, True), out + err
    answer = out
    returned, out, err = ranked("my_method:Mine")
    assert (returned, answer.endswith(out)) == (0, True), "as a module it is the same study, and nothing is run"


@pytest.mark.long
def test_a_budget_decides_how_far_and_never_the_answer(tmp_path: Path, vitinit, undisturbed, tiny, monkeypatch) -> None:
    """One call, or one seed a call: the same looks at the same numbers, and what was planned before the first run."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(cli_rank, "LaunchOptions", lambda **given: LaunchOptions(**given | {"executor": "inline"}))
    taken = []
    for results, calls in (("one", [["--budget", "1h"]]), ("many", [["--budget", "1s"]] * 6)):
        for options in calls:
            code, out, err = vitinit("rank", "mine.py:Mine", "--worth", "0.5", "--results", results, *options)
            assert code == 0, out + err
        (found,) = (looks.read(folder) for folder in Path(results).iterdir() if folder.is_dir())
        assert found
        taken.append(found)
    assert taken[0] == taken[1]
    assert taken[0].target is None
    assert taken[0].worth == 0.5


def test_on_a_gpu_a_round_is_one_seed_and_the_committed_records_are_found_from_anywhere(
    tmp_path: Path, vitinit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` carries out one run at a time there."""
    asked: list[list[str]] = []
    trained: list[tuple[int, int]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(rank.TIERS, "quick", "smoke")
    monkeypatch.setattr("vitinit.runners.basics.machine.default_device", lambda: "cuda")
    monkeypatch.setattr(rank, "standing", lambda arguments: asked.append(arguments) or 0)
    monkeypatch.setattr(cli_rank, "train_seeds", lambda _, first, end, *rest: trained.append((first, end)) or 0)
    monkeypatch.setattr(looks, "PLAN", ((3, 0.5),))
    monkeypatch.setattr(
        looks, "read", lambda folder: looks.Looks(tier="quick", worth=1, seeds=[0, 1, 2], plan=[(3, 0.5)])
    )
    monkeypatch.setattr("vitinit.runners.cli.rank.console", SimpleNamespace(print=lambda *_, **__: None))
    ticks = itertools.count(0, 500)
    monkeypatch.setattr(rank, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    assert vitinit("rank", "mimetic", "--budget", "1h")[0] == 0
    assert trained == [(0, 1), (1, 2), (2, 3)]
    words = asked[-1]
    assert words[words.index("--beside") + 1 :] == [
        f"{ROOT}/results/reference/{name}" for name in ("smoke", "catalogue-small")
    ]


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("zero_branch", "gives no weight of .* a pattern that a placebo could be without"),
        ("only_norms:Norms", "sets no weight of .*, only what a placebo keeps"),
    ],
)
def test_a_method_without_a_pattern_has_no_placebo(method: str, why: str, tmp_path: Path, quick, monkeypatch) -> None:
    (tmp_path / "only_norms.py").write_text(NORMS)
    monkeypatch.syspath_prepend(tmp_path)
    ranked = quick(method)
    assert re.search(why, ranked.useless)
    content = yaml.safe_load(ranked.grid.read_text())
    assert len(content["rows"]) == 2
    assert len(content["contrasts"]) == 1


NORMS = '''
from typing import ClassVar
import torch
from vitinit.initializers.registry import Initializer, register

@register
class Norms(Initializer):
    """Norms begin at two."""
    name: ClassVar[str] = "only_norms"
    touches: ClassVar[tuple[str, ...]] = ("*norm*.weight",)
    @torch.no_grad()
    def apply(self, model, generator, progress):
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(2.0)
'''


@pytest.mark.long
def test_files_beside_a_method_are_not_taken_for_ours_nor_for_a_librarys(tmp_path: Path) -> None:
    """In the processes that are started, in the folder itself; and a method may not be called like a library."""
    (tmp_path / "my_method.py").write_text(MINE)
    for name in ("analysis", "benchmark", "initializers", "runners", "timm", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken for the real one')")
    code = """
from pathlib import Path
from vitinit.runners.launching import rank
rank.TIERS["quick"] = "smoke"
grid = rank.prepare("my_method.py:Mine", "quick", None, None, Path("results"), Path("data")).grid
import sys
from vitinit.runners.cli.main import app
app(["plan", str(grid)], standalone_mode=False)
try:
    rank.prepare("timm.py:Mine", "quick", None, None, Path("results"), Path("data"))
except rank.VitinitError as error:
    print(error)
"""
    (tmp_path / "timm.py").write_text(f"raise SystemExit('taken for the real one')\n{MINE}")
    done = fresh("-c", code, cwd=tmp_path)  # as the command vitinit, it does not look into the working folder
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mine, placebo" in done.stdout
    assert re.search(r"timm\.py: 'timm' is another module \(.*\); give the file another name", done.stdout)
