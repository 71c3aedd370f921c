"""`vitinit rank`: real runs of a tiny tier, what it refuses, and what it claims."""

import sys
from pathlib import Path

import pytest
import yaml

from tests.runners.small_run import tiny_tier
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records import looks
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.cli import plan as rank

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
from vitinit.initializers.bases.library_defaults import KaimingUniform
from vitinit.plugins import register

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


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Prepare the quick tier, which is the grid smoke; paths and variables are as before after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setitem(rank.TIERS, "quick", ["smoke"])

    def prepared(method, base=None, placebo=None):
        return rank.prepare(method, "quick", base, tmp_path / "results", tmp_path, placebo)

    return prepared


@pytest.mark.long
@pytest.mark.parametrize(("method", "base"), [("FILE:Mine", None), ("mimetic", "{name: 'FILE:Half'}")])
def test_an_edited_method_or_base_is_another_study(method, base, tmp_path, quick):
    file = tmp_path / "here/mine.py"
    file.parent.mkdir()
    method, base = method.replace("FILE", str(file)), base and base.replace("FILE", str(file))
    studies, text = [], MINE + BASE
    for edited in (text, text, text.replace("0.5", "0.6")):
        file.write_text(edited)
        studies.append(quick(method, base)[0])
    assert studies[0] == studies[1] != studies[2]
    loaded = grid.load(str(studies[0]))
    row = loaded.layout.rows[1]
    assert [list(each.weights) for each in loaded.layout.contrasts] == [
        [row, f"{row}'s base"],
        [row, f"{row}, placebo"],
    ]


def test_the_base_is_that_of_all_rows(tmp_path, quick):
    plain, named = (
        [cell.spec for cell in grid.load(str(quick("mimetic", base)[0]), [0]).cells]
        for base in (None, "{name: trunc_normal, std: 0.1}")
    )
    assert [spec.base.name for spec in plain] == ["kaiming_uniform"] * 3
    assert [spec.base for spec in named] == [InitializerSpec(name="trunc_normal", params={"std": 0.1})] * 3
    assert [spec.method and spec.method.name for spec in named] == [None, "mimetic", "placebo"]
    assert named[2].method.params["keep"] == "spectrum"
    assert len({path.name for path in (tmp_path / "results").glob("*.yaml")}) == 2, "each is a study of its own"


FAILS = MINE.replace("import torch\n", "import multiprocessing\nfrom pathlib import Path\nimport torch\n").replace(
    "        for layer in",
    """        failed = Path(__file__).with_name("failed")
        if multiprocessing.parent_process() and not failed.exists():  # in a run
            failed.mkdir()
            raise RuntimeError("it fails once")
        for layer in""",
)


@pytest.mark.long
def test_a_method_of_ones_own_is_ranked(tmp_path, vitinit, monkeypatch):
    """The whole path in seconds: one run fails on the way, and one command takes both looks."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setitem(rank.TIERS, "quick", [tiny_tier(tmp_path)])
    monkeypatch.setattr(looks, "PLAN", ((3, 0.01), (4, 0.2)))
    monkeypatch.setattr(looks.Look, "settled", False)  # so that the first look is not the last one
    monkeypatch.delitem(sys.modules, "my_method", raising=False)
    (tmp_path / "my_method.py").write_text(FAILS)
    command = "rank my_method.py:Mine"
    returned, out, err = vitinit(command)
    assert (returned, out.count("failed, RuntimeError: it fails once")) == (1, 1), out + err
    assert "Mine: no verdict yet: 0 of the 3 seeds" in " ".join(out.split())
    assert "But " in out
    assert "1 run failed before; --retry-failed runs them again" in vitinit(command)[1]
    returned, out, err = vitinit(command, "--retry-failed")
    assert (returned, "minus its placebo" in out, "The answer is final" in out) == (0, True, True), out + err
    (grid_file,) = Path("results/local").glob("rank-Mine-*.yaml")
    found = looks.read(grid_file.with_suffix(""))
    assert [look.n for look in found.taken] == [3, 4]
    assert (found.target, found.worth, found.tier) == (None, 1.0, "quick")
    again = vitinit(command)[1]
    assert "The answer is final" in again
    assert "finished" not in again, "no look is repeated"


def test_a_method_without_a_pattern_has_no_placebo(quick):
    written, _, _, useless = quick("zero_branch")
    assert "stays as it is when it is rotated, which would be no control" in useless
    content = yaml.safe_load(written.read_bytes())
    assert (len(content["rows"]), len(content["contrasts"])) == (2, 1)
    grid, _, _, useless = quick("zero_branch", placebo="{name: mimetic, alpha_qk: 0.5}")
    content = yaml.safe_load(grid.read_bytes())
    assert (useless, content["placebos"]) == ("", {"zero_branch, placebo": "zero_branch"})
    assert content["rows"]["zero_branch, placebo"]["method"] == {"name": "mimetic", "alpha_qk": 0.5}
