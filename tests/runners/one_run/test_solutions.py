"""Solutions kept on disk: what is read is what would be solved, and whatever is wrong with a file costs time only."""

from __future__ import annotations

import pytest
import torch

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.runners.basics.environment import code
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.one_run.solutions import Solutions

HERE = {"packages": {"torch": "2.10"}, "platform": "Linux", "flags": {"threads": 1}, "argv": ["one"]}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of the solutions."""
    monkeypatch.setenv("VITINIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "solutions"


def solved(environment: dict, inputs: list[bytes]) -> bool:
    """Whether it was solved and not read; right it is in any case."""
    calls, expected = [], (torch.arange(6.0).view(2, 3), torch.eye(3).mT[None].expand(2, 3, 3))
    user = Solutions(environment)
    found = user(inputs, lambda: calls.append(1) or expected)
    assert all(map(torch.equal, found, expected))
    assert user.reused == (not calls) == (user.seconds > 0)
    return bool(calls)


def test_a_solution_is_read_where_inputs_and_machine_are_the_same():
    assert solved(HERE, [b"a", b"b"])
    assert not solved({**HERE, "argv": ["two"]}, [b"a", b"b"])
    for inputs in ([b"a", b"c"], [b"ab"], [b"", b"ab"]):
        assert solved(HERE, inputs)
    for fact in ("flags", "packages", "platform", "cpu", "blas", "gpu"):
        assert solved({**HERE, fact: "another"}, [b"a", b"b"])


def test_a_damaged_file_is_solved_anew_and_mended(cache, monkeypatch):
    assert solved(HERE, [b"a"])
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damage in (b"", whole[:-1], bytes(flipped)):
        path.write_bytes(damage)
        assert (solved(HERE, [b"a"]), solved(HERE, [b"a"])) == (True, False)
    for place in ("off", str(path)):  # without a cache, or where a file is in the way
        monkeypatch.setenv("VITINIT_CACHE", place)
        assert (solved(HERE, [b"a"]), solved(HERE, [b"a"])) == (True, True)


def test_a_run_that_reads_its_solution_has_the_same_bits_and_says_so(tmp_path, monkeypatch):
    def carried_out(name: str, **changes) -> RunRecord:
        spec = RunSpec(
            dataset=DatasetSpec(name="digits", train_size=100),
            model=ViT(image_size=8, patch_size=2, width=48, depth=1, heads=4),
            base=InitializerSpec(name="kaiming_uniform"),
            method=InitializerSpec(name="impulse", params={"solver": {"name": "gradient", "steps": 100}}),
            recipe=Recipe(name="small", epochs=1, batch_size=50, lr=1e-3),
            seed=0,
        )
        threads, root = torch.get_num_threads(), tmp_path / name
        setting = Setting(root, "tiny", root, Execution("cpu", 1, "inline"), code(), **changes)
        outcome = carry_out(Cell("Imp.-3", spec), setting, Stop())
        torch.set_num_threads(threads)
        assert isinstance(outcome, RunRecord)
        return outcome

    first, again = carried_out("one"), carried_out("two")
    anew = carried_out("three", reuse_solutions=False)  # as a repetition does
    assert [record.init.cached for record in (first, again, anew)] == [False, True, False]
    assert first.without_times() == again.without_times() == anew.without_times()
